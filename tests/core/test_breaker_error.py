"""The error of an open circuit, for those who catch ours and those who catch pybreaker's."""

import pickle

import pybreaker
from llm_client import errors
from llm_client.core.breaker import circuit_open_error


def test_it_is_both_errors():
    """`except pybreaker.CircuitBreakerError` keeps working for code that came from pybreaker."""
    error = circuit_open_error("open", endpoint="gpu-a", retry_after=3.0)

    assert isinstance(error, errors.CircuitOpenError)
    assert isinstance(error, pybreaker.CircuitBreakerError)
    assert (error.kind, error.endpoint, error.retry_after, str(error)) == ("circuit_open", "gpu-a", 3.0, "open")
    assert type(error) is type(circuit_open_error("again"))


def test_it_survives_pickling():
    """A worker process hands its error to its parent."""
    error = pickle.loads(pickle.dumps(circuit_open_error("open", endpoint="gpu-a", retry_after=3.0)))

    assert isinstance(error, pybreaker.CircuitBreakerError)
    assert (type(error).__name__, error.endpoint, error.retry_after) == ("CircuitOpenError", "gpu-a", 3.0)
