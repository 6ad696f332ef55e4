"""Completions, models, rerank, score, tokenize and transcriptions."""

from __future__ import annotations

import pytest
from llm_client.errors import InvalidResponseError
from llm_client.wire import completions, models, ranking, tokenize, transcriptions


def test_a_completion_reads_like_openai_python():
    """Text, finish, logprobs, unknown fields."""
    body = {
        "id": "cmpl-1",
        "choices": [
            {
                "index": 0,
                "text": "Hello",
                "finish_reason": "eos_token",
                "logprobs": {"tokens": ["Hello"], "token_logprobs": [None], "top_logprobs": [None]},
                "stop_reason": 2,
            }
        ],
        "usage": None,
    }
    done = completions.Completion.from_dict(body)

    assert (done.text, done.choices[0].finish_reason, done.choices[0].finish) == ("Hello", "eos_token", "other")
    assert done.choices[0].logprobs.token_logprobs == [None]
    assert body == done.to_dict()


@pytest.mark.parametrize(
    "body", [{}, {"choices": None}, {"choices": [{"text": None}]}, {"choices": [{"index": 1, "text": "b"}]}]
)
def test_a_completion_without_text_has_an_empty_one(body):
    """Stream events often have none."""
    assert completions.Completion.from_dict(body).text == ""


def test_completions_take_embeddings_in_place_of_a_prompt():
    """VLLM does."""
    assert completions.build_body({"prompt_embeds": "AA=="}) == {"prompt_embeds": "AA=="}
    with pytest.raises(TypeError, match="'prompt' or 'prompt_embeds'"):
        completions.build_body({})


def test_models_iterate_and_tell_their_context():
    """vLLM, llama.cpp and OpenRouter name it three ways; Together sends a bare list."""
    rows = [
        {"id": "a", "max_model_len": 4096, "root": "r"},
        {"id": "b", "meta": {"n_ctx_train": 2048}},
        {"id": "c", "context_length": 1024},
        {"id": "d"},
    ]

    page = models.ModelList.from_dict({"object": "list", "data": rows})
    bare = models.ModelList.from_bytes(b'[{"id": "a"}]')

    assert ["a", "b", "c", "d"] == [model.id for model in page] == page.ids
    assert [model.context for model in page] == [4096, 2048, 1024, None]
    assert bare.ids == ["a"]


def test_no_models_is_still_a_true_answer():
    """An empty list does not read as no answer."""
    assert models.ModelList.from_dict({"data": None})


@pytest.mark.parametrize(
    "body",
    [
        {
            "results": [
                {"index": 1, "relevance_score": 0.9, "document": {"text": "b"}},
                {"index": 0, "relevance_score": 0.1},
            ]
        },
        {"data": [{"index": 1, "relevance_score": 0.9, "document": "b"}, {"index": 0, "relevance_score": 0.1}]},
        [{"index": 1, "score": 0.9, "document": "b"}, {"index": 0, "score": 0.1}],
    ],
)
def test_rerank_reads_the_frames_of_all_servers(body):
    """vLLM, Jina and Cohere; Voyage; SGLang and text-embeddings-inference."""
    made = ranking.RerankResponse.from_dict(body)

    assert made.scores == {0: 0.1, 1: 0.9}
    assert list(made.scores) == [0, 1]
    assert [row.text for row in made.results] == ["b", None]


def test_rerank_needs_query_and_documents():
    """By name."""
    assert ranking.build_rerank({"query": "q", "documents": ["a"], "top_n": 1}) == {
        "query": "q",
        "documents": ["a"],
        "top_n": 1,
    }
    with pytest.raises(TypeError, match="'documents'"):
        ranking.build_rerank({"query": "q"})


def test_score_reads_vllm_and_sglang():
    """Scores by pair, and scores by label."""
    pairs = ranking.ScoreResponse.from_dict({"data": [{"index": 0, "score": 0.5}, {"index": 1, "score": None}]})
    labels = ranking.ScoreResponse.from_dict({"scores": [[0.1, 0.9]]})

    assert pairs.scores == [0.5, None]
    assert labels.labels == [[0.1, 0.9]]
    assert labels.to_dict() == {"scores": [[0.1, 0.9]]}


def test_score_needs_two_sides():
    """Under any of the names."""
    assert ranking.build_score({"text_1": "a", "text_2": ["b"]}) == {"text_1": "a", "text_2": ["b"]}
    assert ranking.build_score({"query": "a", "items": ["b"]}) == {"query": "a", "items": ["b"]}
    with pytest.raises(TypeError, match="'text_2' or 'documents'"):
        ranking.build_score({"text_1": "a"})


def test_tokens_are_numbers_with_or_without_pieces():
    """VLLM sends numbers, llama.cpp objects when asked for pieces."""
    plain = tokenize.TokenizeResponse.from_dict({"count": 2, "max_model_len": 9, "tokens": [1, 2]})
    pieces = tokenize.TokenizeResponse.from_dict({"tokens": [{"id": 1, "piece": "a"}]})

    assert (plain.ids, plain.length) == ([1, 2], 2)
    assert (pieces.ids, pieces.length) == ([1], 1)


@pytest.mark.parametrize("name", ["prompt", "text", "content"])
def test_detokenized_text_goes_by_three_names(name):
    """vLLM, SGLang, llama.cpp."""
    assert tokenize.DetokenizeResponse.from_dict({name: "a"}).text == "a"


def test_tokenize_takes_a_prompt_or_messages():
    """And needs one of them."""
    assert tokenize.build_tokenize({"messages": [], "add_generation_prompt": True}) == {
        "messages": [],
        "add_generation_prompt": True,
    }
    assert tokenize.build_detokenize({"tokens": iter([1])}) == {"tokens": [1]}
    with pytest.raises(TypeError, match="'prompt' or 'messages' or 'content'"):
        tokenize.build_tokenize({})


def test_a_transcription_reads_every_format():
    """JSON with words and segments, and the three plain ones."""
    verbose = (
        b'{"text":"Hi","duration":"1.5","words":[{"word":"Hi","start":0.1,"end":0.4}],'
        b'"segments":[{"id":0,"text":"Hi"}]}'
    )

    made = transcriptions.parse_transcription(verbose, response_format="verbose_json")
    plain = transcriptions.parse_transcription("Zoë\n".encode(), response_format="text")

    assert (made.text, made.duration, made.words[0].end, made.segments[0].text) == ("Hi", 1.5, 0.4, "Hi")
    assert plain.text == "Zoë\n"


@pytest.mark.parametrize("form", [None, "json", "text", "srt"])
def test_a_web_page_is_no_transcription(form):
    """Whatever format was asked for."""
    with pytest.raises(InvalidResponseError, match="base_url"):
        transcriptions.parse_transcription(b"<!DOCTYPE html><p>Log in", response_format=form, content_type="text/html")


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (b"x", ("upload", b"x", "application/octet-stream")),
        (("a.mp3", b"x"), ("a.mp3", b"x", "audio/mpeg")),
        ((None, bytearray(b"x"), "audio/x"), ("upload", b"x", "audio/x")),
        (("a.WAV", memoryview(b"x"), None), ("a.WAV", b"x", "audio/wav")),
    ],
)
def test_an_upload_is_bytes_with_a_name(file, expected):
    """Name and media type are optional."""
    assert expected == transcriptions.build_form({"file": file})[1]


@pytest.mark.parametrize("file", [open, "path.wav", ("a.wav", "text")])
def test_an_upload_that_is_not_read_yet_is_refused(file):
    """An attempt that fails has to send it again."""
    with pytest.raises(TypeError, match="read it first"):
        transcriptions.build_form({"file": file})


def test_a_form_cannot_be_broken_by_names():
    """Quotes and line ends in names and media types do not open new fields."""
    fields, upload = transcriptions.build_form(
        {"file": ('a"\r\nX: 1.wav', b"x", "audio/wav\r\nX: 2"), "prompt": "\ud83d"}, {"seed": 3}
    )
    _, body = transcriptions.encode_form(fields, upload, boundary="b")

    assert b'filename="a%22%0D%0AX: 1.wav"\r\nContent-Type: audio/wavX: 2\r\n\r\nx\r\n--b--\r\n' in body
    assert "\r\n\r\n\ufffd\r\n".encode() in body
    assert ("seed", "3") in fields


def test_transcription_events_add_text():
    """OpenAI's and vLLM's forms."""
    event = transcriptions.TranscriptionEvent

    assert event.from_dict({"type": "transcript.text.delta", "delta": "a"}).text_delta == "a"
    assert event.from_dict({"choices": [{"delta": {"content": "a"}}]}).text_delta == "a"
    assert event.from_dict({"type": "transcript.text.done", "text": "all"}).text_delta == ""


def test_a_form_needs_a_file():
    """By name."""
    with pytest.raises(TypeError, match="'file'"):
        transcriptions.build_form({"model": "m"})
