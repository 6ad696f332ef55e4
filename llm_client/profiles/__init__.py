"""YAML to a validated, frozen profile.

`llm_client.profiles.load` is the module of functions: load, parse, built_in, merge, explain.
"""

from __future__ import annotations

from llm_client.profiles.load import built_in, explain, merge, parse
from llm_client.profiles.reading import Row
from llm_client.profiles.secret import Secret
from llm_client.profiles.types import File, PoolSpec, Profile

__all__ = ["File", "PoolSpec", "Profile", "Row", "Secret", "built_in", "explain", "merge", "parse"]
