"""YAML to a validated, frozen profile."""

from __future__ import annotations

from llm_client.profiles.load import built_in
from llm_client.profiles.secret import Secret
from llm_client.profiles.types import File, PoolSpec, Profile

__all__ = ["File", "PoolSpec", "Profile", "Secret", "built_in"]
