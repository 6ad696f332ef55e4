"""The models route: what a server serves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import Field, model_validator

from llm_client.wire.base import Answer, WireModel
from llm_client.wire.tolerant import Listed, MaybeInt, MaybeStr

__all__ = ["Model", "ModelList"]


class Model(WireModel):
    """One model.

    Attributes:
        max_model_len: its context in tokens, where the server says (vLLM, SGLang).
        root: the model itself, where `id` is an alias or an adapter.
        parent: what an adapter builds on.
    """

    id: str = ""
    object: MaybeStr = None
    created: MaybeInt = None
    owned_by: MaybeStr = None
    max_model_len: MaybeInt = None
    root: MaybeStr = None
    parent: MaybeStr = None

    @property
    def context(self) -> int | None:
        """The context in tokens, under whichever name the server gives it."""
        for name in ("context_length", "context_window", "max_context_length"):
            found = self.unknown(name)
            if self.max_model_len is None and isinstance(found, int):
                return found
        meta = self.unknown("meta")
        trained = meta.get("n_ctx_train") if isinstance(meta, dict) else None
        return self.max_model_len or (trained if isinstance(trained, int) else None)


class ModelList(Answer):
    """All models; iterates over them."""

    object: MaybeStr = None
    data: Listed[Model] = Field(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _bare_list(cls, value: Any) -> Any:
        # Together sends the list itself.
        return {"data": value} if isinstance(value, list) else value

    def __iter__(self) -> Iterator[Model]:  # type: ignore[override]
        """Iterate over the models, as over openai-python's page."""
        return iter(self.data)

    @property
    def ids(self) -> list[str]:
        """The names to call them by."""
        return [model.id for model in self.data]
