"""Fields that vLLM and SGLang add to the bodies of chat and completions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypedDict

__all__ = ["ChatTemplateFields", "SGLangFields", "SamplingFields", "ServerFields", "StructuredOutputs", "VLLMFields"]


class StructuredOutputs(TypedDict, total=False):
    """What the text has to match: one of the constraints, and how to apply it."""

    json: str | Mapping[str, Any]
    regex: str
    choice: Sequence[str]
    grammar: str
    json_object: bool
    structural_tag: str
    disable_any_whitespace: bool
    disable_additional_properties: bool
    whitespace_pattern: str


class SamplingFields(TypedDict, total=False):
    """Known to both.

    Attributes:
        top_k: sample from the k most likely tokens only.
        min_p: drop tokens less likely than this share of the most likely one.
        repetition_penalty: above 1 discourages tokens that occurred in prompt or output.
        min_tokens: no end before this many tokens.
        ignore_eos: go on past the end-of-sequence token.
        cache_salt: keeps the prefix cache of one tenant from another's.
    """

    top_k: int | None
    min_p: float | None
    repetition_penalty: float | None
    min_tokens: int | None
    stop_token_ids: Iterable[int] | None
    ignore_eos: bool | None
    skip_special_tokens: bool | None
    cache_salt: str | None
    session_id: str | None
    return_token_ids: bool | None


class VLLMFields(TypedDict, total=False):
    """Known to vLLM.

    The `guided_*` fields belong to releases before `structured_outputs`; later ones ignore them silently.
    """

    structured_outputs: StructuredOutputs | None
    guided_json: str | Mapping[str, Any] | None
    guided_regex: str | None
    guided_choice: Iterable[str] | None
    guided_grammar: str | None
    guided_decoding_backend: str | None
    use_beam_search: bool | None
    length_penalty: float | None
    include_stop_str_in_output: bool | None
    spaces_between_special_tokens: bool | None
    truncate_prompt_tokens: int | None
    truncation_side: Literal["left", "right"] | None
    prompt_logprobs: int | None
    logprob_token_ids: Iterable[int] | None
    allowed_token_ids: Iterable[int] | None
    bad_words: Iterable[str] | None
    add_special_tokens: bool | None
    request_id: str | None
    return_tokens_as_token_ids: bool | None
    kv_transfer_params: Mapping[str, Any] | None
    vllm_xargs: Mapping[str, Any] | None
    repetition_detection: Mapping[str, Any] | None
    stream_interval: int | None


class SGLangFields(TypedDict, total=False):
    """Known to SGLang.

    Attributes:
        regex: the output matches this expression.
        ebnf: the output matches this grammar.
        lora_path: the adapter to use.
        rid: the request's id.
    """

    regex: str | None
    ebnf: str | None
    stop_regex: str | Iterable[str] | None
    no_stop_trim: bool | None
    lora_path: str | None
    session_params: Mapping[str, Any] | None
    custom_logit_processor: str | None
    custom_params: Mapping[str, Any] | None
    return_hidden_states: bool | Literal["last"] | None
    rid: str | None
    extra_key: str | None
    bootstrap_host: str | None
    bootstrap_port: int | None
    bootstrap_room: int | None
    routed_dp_rank: int | None


class ServerFields(SamplingFields, VLLMFields, SGLangFields, total=False):
    """All of them, for chat and completions."""


class ChatTemplateFields(TypedDict, total=False):
    """How the server turns messages into a prompt.

    Attributes:
        chat_template: a Jinja template in place of the model's own.
        chat_template_kwargs: variables for it, such as `{"enable_thinking": False}`.
        continue_final_message: go on with the last message in place of starting a new one.
        documents: texts for templates that know retrieval.
    """

    add_generation_prompt: bool | None
    continue_final_message: bool | None
    chat_template: str | None
    chat_template_kwargs: Mapping[str, Any] | None
    documents: Iterable[Mapping[str, str]] | None
    mm_processor_kwargs: Mapping[str, Any] | None
    media_io_kwargs: Mapping[str, Mapping[str, Any]] | None
    include_reasoning: bool | None
    separate_reasoning: bool | None
    stream_reasoning: bool | None
    thinking_token_budget: int | None
