"""What every test runs under: an environment that says nothing about proxies, keys or profiles.

This file is read by pytest in foreign environments too (`tests/hosts`): standard library and pytest only.
"""

import gc
import os
import signal
from collections.abc import Iterator

import pytest

PROXIES = {"http_proxy", "https_proxy", "all_proxy", "ftp_proxy", "no_proxy"}
OURS = ("OPENAI_", "LLM_CLIENT_")


def pytest_configure() -> None:
    """Heed Ctrl-C: a shell starts what runs in the background with SIGINT ignored, and processes inherit that.

    Tests that interrupt themselves or their children would then wait for an interrupt that nobody sees.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Set aside what was collected: some 5000 tests and all modules live to the end.

    Or every full collection, those that tests ask for included, would walk them in vain: a third of the suite's time.
    """
    gc.collect()
    gc.freeze()


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
