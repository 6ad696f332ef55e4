"""What every test runs under: an environment that says nothing about proxies, keys or profiles.

This file is read by pytest in foreign environments too (`tests/hosts`): standard library and pytest only.
"""

import os
from collections.abc import Iterator

import pytest

PROXIES = {"http_proxy", "https_proxy", "all_proxy", "ftp_proxy", "no_proxy"}
OURS = ("OPENAI_", "LLM_CLIENT_")


@pytest.fixture(scope="session", autouse=True)
def clean_environment() -> Iterator[None]:
    """Remove proxy, OPENAI_* and LLM_CLIENT_* variables, for child processes as well.

    Session scope, because it has to come before servers that live longer than one test.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in tuple(os.environ):
            if name.lower() in PROXIES or name.upper().startswith(OURS):
                patch.delenv(name)
        yield
