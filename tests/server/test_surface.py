"""What OpenAI clients see: shapes of answers and streams, errors, keys, health, metrics."""

import base64
import struct

import pytest
from llm_client.server import text

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def _one(inside, simulate, path, body, headers=None, **settings):
    async def scenario():
        server = inside(**{"seconds": 0.1, **settings})
        return await server.call(path, body, headers)

    return simulate(scenario())


def _chat(inside, simulate, headers=None, settings=None, **body):
    body = {"model": "m", "messages": [{"role": "user", "content": "hello"}], **body}
    return _one(inside, simulate, "/v1/chat/completions", body, headers, **(settings or {}))


def test_infer_gives_a_result_made_from_the_prompt(inside, simulate):
    """The plain form, with text a test can predict."""
    answer = _one(inside, simulate, "/infer", {"prompt": "hello", "max_tokens": 4})

    assert answer.data == {"result": text.answer("hello", 4)}


def test_chat_answers_in_openais_shape(inside, simulate):
    """Choices, reasons, usage."""
    data = _chat(inside, simulate, max_tokens=4, n=2).data

    assert data["object"] == "chat.completion"
    assert [choice["message"]["content"] for choice in data["choices"]] == [
        text.answer("hello", 4), text.answer("hello", 4, 1),
    ]  # fmt: skip
    assert {choice["finish_reason"] for choice in data["choices"]} == {"length"}
    assert data["usage"]["completion_tokens"] == 8
    assert data["usage"]["total_tokens"] == 8 + data["usage"]["prompt_tokens"]


def test_chat_stops_by_itself_without_a_limit(inside, simulate):
    """The natural length, and the reason is `stop`."""
    choice = _chat(inside, simulate).data["choices"][0]

    assert choice["message"]["content"] == text.answer("hello")
    assert choice["finish_reason"] == "stop"


def test_chat_streams_one_chunk_a_token(inside, simulate):
    """Role, tokens, reason, usage when asked for, end marker; spread over the time the work takes."""
    answer = _chat(
        inside, simulate, max_tokens=4, stream=True, stream_options={"include_usage": True}, settings={"seconds": 1.0}
    )  # fmt: skip
    events = answer.events

    assert events[-1] == "[DONE]"
    assert events[0]["choices"][0]["delta"]["role"] == "assistant"
    assert answer.text == text.answer("hello", 4)
    assert [event["choices"][0]["finish_reason"] for event in events[1:-2]] == [None] * 4 + ["length"]
    assert events[-2]["choices"] == []
    assert events[-2]["usage"]["completion_tokens"] == 4
    assert [round(when, 2) for when, _ in answer.parts] == [0.25, 0.5, 0.75, 1.0]


def test_tools_are_called_when_required_or_named(inside, simulate):
    """Arguments fit the tool's schema, streamed and not."""
    for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
        message = _chat(inside, simulate, tools=[TOOL], tool_choice=choice).data["choices"][0]["message"]
        call = message["tool_calls"][0]["function"]
        assert call["name"] == "get_weather"
        assert set(__import__("json").loads(call["arguments"])) == {"city"}

    events = _chat(inside, simulate, tools=[TOOL], tool_choice="required", stream=True).events
    pieces = [
        call["function"].get("arguments", "")
        for event in events[:-1]
        for call in event["choices"][0]["delta"].get("tool_calls", ())
    ]
    assert "".join(pieces) == call["arguments"]
    assert events[-2]["choices"][0]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize(
    ("messages", "called"),
    [
        ([{"role": "user", "content": "use get_weather"}], True),
        ([{"role": "user", "content": "just talk"}], False),
        ([{"role": "user", "content": "get_weather"}, {"role": "tool", "content": "get_weather: sunny"}], False),
    ],
)
def test_tool_is_called_by_itself_when_the_prompt_names_it(inside, simulate, messages, called):
    """`auto` follows the words; a tool's result is answered by text."""
    message = _chat(inside, simulate, tools=[TOOL], messages=messages).data["choices"][0]["message"]

    assert ("tool_calls" in message) is called


def test_structured_output_fits_its_schema(inside, simulate):
    """`json_schema` and `json_object`."""
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 3}}}
    wish = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}

    content = _chat(inside, simulate, response_format=wish).data["choices"][0]["message"]["content"]
    assert content == '{"n": 3}'
    content = _chat(inside, simulate, response_format={"type": "json_object"}).data["choices"][0]["message"]["content"]
    assert content == '{"answer": "hazel"}'


def test_log_probabilities_come_for_each_token(inside, simulate):
    """In the answer and in the chunks."""
    choice = _chat(inside, simulate, max_tokens=3, logprobs=True, top_logprobs=2).data["choices"][0]
    rows = choice["logprobs"]["content"]
    assert "".join(row["token"] for row in rows) == choice["message"]["content"]
    assert {len(row["top_logprobs"]) for row in rows} == {2}

    events = _chat(inside, simulate, max_tokens=3, logprobs=True, stream=True).events
    tokens = [event["choices"][0]["logprobs"]["content"][0]["token"] for event in events[1:4]]
    assert "".join(tokens) == choice["message"]["content"]


def test_completions_take_several_prompts_and_token_ids(inside, simulate):
    """Choices come in the order of the prompts."""
    data = _one(inside, simulate, "/v1/completions", {"prompt": ["a", "b"], "max_tokens": 2, "n": 2}).data
    assert [choice["text"] for choice in data["choices"]] == [
        text.answer(prompt, 2, choice) for prompt in "ab" for choice in (0, 1)
    ]  # fmt: skip

    data = _one(inside, simulate, "/v1/completions", {"prompt": [1, 2, 3], "max_tokens": 2, "echo": True}).data
    assert data["choices"][0]["text"] == "1 2 3" + text.answer("1 2 3", 2)
    assert data["usage"]["prompt_tokens"] == 3


def test_completions_stream(inside, simulate):
    """Text chunks, a reason, the end marker."""
    events = _one(inside, simulate, "/v1/completions", {"prompt": "a", "max_tokens": 3, "stream": True}).events

    assert "".join(event["choices"][0]["text"] for event in events[:-1]) == text.answer("a", 3)
    assert events[-2]["choices"][0]["finish_reason"] == "length"
    assert events[-1] == "[DONE]"


def test_responses_answer_and_stream_the_same_items(inside, simulate):
    """Named events in sequence, ended by `response.completed`, without `[DONE]`."""
    whole = _one(inside, simulate, "/v1/responses", {"input": "hello"}).data
    assert whole["status"] == "completed"
    assert whole["output"][0]["content"][0]["text"] == text.answer("hello")

    answer = _one(inside, simulate, "/v1/responses", {"input": "hello", "stream": True})
    events = answer.events
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[0]["type"] == "response.created"
    assert events[-1]["type"] == "response.completed"
    deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    assert "".join(deltas) == text.answer("hello")
    assert events[-1]["response"]["output"][0]["content"] == whole["output"][0]["content"]
    assert b"[DONE]" not in answer.body


def test_responses_cut_by_a_limit_are_incomplete(inside, simulate):
    """`incomplete` with its reason, as event and as status."""
    body = {"input": "hello", "max_output_tokens": 2, "stream": True}
    last = _one(inside, simulate, "/v1/responses", body).events[-1]

    assert last["type"] == "response.incomplete"
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}


def test_responses_call_tools(inside, simulate):
    """A function call is an item of its own."""
    tool = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {"x": {"const": 1}}}}
    body = {"input": "go", "tools": [tool], "tool_choice": "required", "stream": True}
    events = _one(inside, simulate, "/v1/responses", body).events

    assert events[-1]["response"]["output"][0]["arguments"] == '{"x": 1}'
    assert "".join(event["delta"] for event in events if event["type"].endswith("arguments.delta")) == '{"x": 1}'
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


def test_embeddings_come_as_floats_and_as_base64(inside, simulate):
    """The same numbers both ways, of length one, in the dimensions asked for."""
    body = {"input": ["red apple", "apple red"], "dimensions": 16}
    floats = [row["embedding"] for row in _one(inside, simulate, "/v1/embeddings", body).data["data"]]
    coded = _one(inside, simulate, "/v1/embeddings", {**body, "encoding_format": "base64"}).data["data"]

    assert floats[0] == floats[1]
    assert sum(x * x for x in floats[0]) == pytest.approx(1.0)
    assert struct.unpack("<16f", base64.b64decode(coded[0]["embedding"])) == pytest.approx(floats[0])


def test_rerank_sorts_and_score_compares(inside, simulate):
    """Who shares words with the query comes first."""
    body = {"query": "red apple", "documents": ["green pear", "a red apple"], "top_n": 1}
    results = _one(inside, simulate, "/v1/rerank", body).data["results"]
    assert [row["index"] for row in results] == [1]

    body = {"text_1": "red apple", "text_2": ["green pear", "red apple"]}
    scores = [row["score"] for row in _one(inside, simulate, "/v1/score", body).data["data"]]
    assert scores[1] == 1.0 > scores[0]


@pytest.mark.parametrize(
    ("path", "raw", "word"),
    [
        ("/v1/chat/completions", b"{", "JSON"),
        ("/v1/chat/completions", b"", "JSON"),
        ("/v1/chat/completions", b"[]", "object"),
        ("/v1/chat/completions", b'{"messages": []}', "messages"),
        ("/v1/chat/completions", b'{"messages": 3}', "messages"),
        ("/v1/chat/completions", b'{"messages": [{"content": "x"}]}', "messages.0.role"),
        ("/v1/chat/completions", b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": 0}', "max_tokens"),
        ("/v1/chat/completions", b'{"messages": [{"role": "user", "content": "x"}], "n": 129}', "n"),
        ("/infer", b'{"prompt": 3}', "prompt"),
        ("/infer", b'{"prompt": "\\ud800"}', "JSON"),
        ("/infer", b"[" * 100_000, "JSON"),
        ("/v1/completions", b'{"prompt": []}', "prompt"),
        ("/v1/score", b'{"text_1": ["a", "b"], "text_2": ["a", "b", "c"]}', "text_1"),
        ("/v1/embeddings", b'{"input": "x", "dimensions": 99999}', "dimensions"),
    ],
)
def test_what_makes_no_sense_is_a_400_that_names_the_field(inside, simulate, path, raw, word):
    """Malformed JSON and wrong types are never a 500."""

    async def scenario():
        return await inside().call(path, raw=raw)

    answer = simulate(scenario())

    assert answer.status == 400
    assert word in answer.data["error"]["message"]
    assert answer.data["error"]["code"] == "invalid_request"


def test_too_large_body_is_a_413(inside, simulate):
    """Told by its length before it is read, and by counting when it lies."""

    async def scenario():
        server = inside(max_body=100)
        return [
            await server.call(raw=b'{"prompt": "' + b"x" * 200 + b'"}', headers=headers)
            for headers in ({"content-length": "214"}, {})
        ]

    for answer in simulate(scenario()):
        assert answer.status == 413
        assert answer.headers["connection"] == "close"


def test_too_long_context_is_told_in_words_clients_know(inside, simulate):
    """400 with both numbers."""
    answer = _chat(inside, simulate, max_tokens=200, ignore_eos=True, settings={"context": 100})

    assert answer.status == 400
    assert answer.data["error"]["code"] == "context_length_exceeded"
    assert "maximum context length is 100 tokens" in answer.data["error"]["message"]


def test_only_known_keys_come_in(inside, simulate):
    """401 without, with a wrong one; 200 with either of the right ones; `/health` asks for none."""

    async def scenario():
        server = inside(api_keys=("one", "two"))
        keys = [{}, {"authorization": "Bearer thr"}, {"authorization": "bearer two"}, {"api-key": "one"}]
        chats = [(await server.chat(headers=key)).status for key in keys]
        models = [(await server.call("/v1/models", method="GET", headers=key)).status for key in keys]
        health = (await server.call("/health", method="GET")).status
        return chats, models, health

    assert simulate(scenario()) == ([401, 401, 200, 200], [401, 401, 200, 200], 200)


def test_unknown_models_are_let_through_unless_strict(inside, simulate):
    """A laptop server answers whatever it is called; `strict_models` does not."""
    assert _chat(inside, simulate, model="whatever").status == 200
    answer = _chat(inside, simulate, model="whatever", settings={"strict_models": True, "models": ("a", "b")})

    assert answer.status == 404
    assert answer.data["error"]["code"] == "model_not_found"
    assert "a, b" in answer.data["error"]["message"]


def test_routes_work_without_the_prefix_too(inside, simulate):
    """Some clients are given a base URL without `/v1`."""
    assert _one(inside, simulate, "/chat/completions", {"messages": [{"role": "user", "content": "x"}]}).status == 200


def test_unknown_routes_answer_in_the_same_shape(inside, simulate):
    """404 and 405 are JSON errors as well."""

    async def scenario():
        server = inside()
        return [await server.call("/nope", method="GET"), await server.call("/infer", method="GET")]

    missing, method = simulate(scenario())

    assert (missing.status, missing.data["error"]["code"]) == (404, "not_found")
    assert (method.status, method.headers["allow"]) == (405, "POST")


def test_models_tokens_and_load_are_told(inside, simulate):
    """What routers and clients ask before they send."""

    async def scenario():
        server = inside(models=("a", "b/c"))
        models = await server.call("/v1/models", method="GET")
        nested = await server.call("/v1/models/b/c", method="GET")
        count = await server.call("/tokenize", {"prompt": "hello wörld"})
        back = await server.call("/detokenize", {"tokens": count.data["tokens"]})
        load = await server.call("/load", method="GET")
        return models.data, nested.data["id"], count.data["count"], back.data["prompt"], load.data

    models, nested, count, prompt, load = simulate(scenario())

    assert [row["id"] for row in models["data"]] == ["a", "b/c"]
    assert nested == "b/c"
    assert count == text.count_tokens("hello wörld")
    assert prompt == "hello wörld"
    assert load["server_load"] == 0


def test_every_request_is_logged_without_its_content(inside, simulate):
    """Hash of the body, attempt, idempotency key; only for this machine."""

    async def scenario():
        server = inside()
        headers = {"x-llm-client-attempt": "2", "idempotency-key": "k"}
        for _ in range(2):
            await server.chat("secret words", headers=headers)
        here = await server.call("/stats?log=2", method="GET")
        elsewhere = await server.call("/stats?log=2", method="GET", client="192.0.2.7")
        proxied = await server.call("/stats?log=2", method="GET", headers={"x-forwarded-for": "192.0.2.7"})
        return here, elsewhere, proxied

    here, elsewhere, proxied = simulate(scenario())
    one, other = here.data["log"]

    assert one["body"] == other["body"]
    assert (one["attempt"], one["idempotency_key"], one["outcome"]) == ("2", "k", "answered")
    assert b"secret" not in here.body
    assert "log" not in elsewhere.data
    assert "log" not in proxied.data


def test_books_can_be_reset(inside, simulate):
    """A test counts from where it begins; from elsewhere it is forbidden."""

    async def scenario():
        server = inside()
        await server.chat()
        refused = await server.call("/stats/reset", client="192.0.2.7")
        await server.call("/stats/reset")
        return refused.status, server.ledger.as_dict()

    refused, books = simulate(scenario())

    assert refused == 403
    assert (books["arrived"], books["answered"]) == (0, 0)


def test_metrics_name_queue_waits_refusals_and_tokens(inside, simulate):
    """Prometheus text, and OpenMetrics when asked for."""

    async def scenario():
        server = inside()
        await server.chat(max_tokens=5)
        plain = await server.call("/metrics", method="GET")
        opened = await server.call("/metrics", method="GET", headers={"accept": "application/openmetrics-text"})
        return plain, opened

    plain, opened = simulate(scenario())

    for name in ("queue_length", "queue_wait_seconds_bucket", "service_seconds_sum", "refusals", "in_flight",
                 "client_disconnected_total", "tokens_total"):  # fmt: skip
        assert f"llm_server_{name}" in plain.body.decode()
    assert 'llm_server_tokens_total{kind="completion"} 5.0' in plain.body.decode()
    assert plain.headers["content-type"].startswith("text/plain")
    assert opened.headers["content-type"].startswith("application/openmetrics-text")
    assert opened.body.endswith(b"# EOF\n")


def test_openapi_describes_every_route_with_its_body(inside, simulate):
    """The hot routes bypass the framework's parsing, not its document."""

    async def scenario():
        return (await inside().call("/openapi.json", method="GET")).data

    document = simulate(scenario())

    for path in ("/infer", "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings"):
        operation = document["paths"][path]["post"]
        assert operation["requestBody"]["content"]["application/json"]["schema"]
        assert {"200", "400", "429", "503", "504"} <= set(operation["responses"])
    assert "ChatRequest" in document["components"]["schemas"]
