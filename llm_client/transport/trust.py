"""The TLS context both families share: one trust store, loaded at the first TLS connection.

Loading a certificate bundle takes tens of milliseconds, which a client of plain-http servers need not pay.
"""

from __future__ import annotations

import os
import ssl
import threading
from pathlib import Path

import certifi

from llm_client.errors import ConfigError
from llm_client.profiles.pool_types import ClientCert, HttpSpec


class Trust:
    """One `ssl.SSLContext` made from a profile's network settings. Thread-safe."""

    def __init__(self, spec: HttpSpec) -> None:
        """Check what was configured; leave the well-known authorities for later.

        Raises:
            ConfigError: a certificate file cannot be read, or is no certificate.
        """
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._lock = threading.Lock()
        self._trust_env = spec.trust_env
        self._loaded = True
        if not spec.verify:
            self.context.check_hostname = False
            self.context.verify_mode = ssl.CERT_NONE
        elif spec.ca_file is not None:
            _load_authorities(self.context, spec.ca_file)
        else:
            self._loaded = False
        if spec.client_cert is not None:
            _load_identity(self.context, spec.client_cert)

    @property
    def loaded(self) -> bool:
        """Whether `load` would return at once."""
        return self._loaded

    def load(self) -> None:
        """Load the authorities, once: SSL_CERT_FILE or SSL_CERT_DIR where the environment counts, else certifi's."""
        with self._lock:
            if self._loaded:
                return
            file, folder = None, None
            if self._trust_env:
                file, folder = os.environ.get("SSL_CERT_FILE") or None, os.environ.get("SSL_CERT_DIR") or None
            if file is None and folder is None:
                file = certifi.where()
            self.context.load_verify_locations(file, folder)
            self._loaded = True

    def after_fork(self) -> None:
        """Replace a lock that may have been held by a thread which does not exist here."""
        self._lock = threading.Lock()


def _load_authorities(context: ssl.SSLContext, place: str) -> None:
    try:
        if Path(place).is_dir():
            context.load_verify_locations(capath=place)
        else:
            context.load_verify_locations(cafile=place)
    except (OSError, ssl.SSLError) as error:
        msg = f"http.ca_file: expected a PEM file of certificate authorities, cannot load {place!r} ({_why(error)})"
        raise ConfigError(msg, path="http.ca_file") from error


def _load_identity(context: ssl.SSLContext, identity: ClientCert) -> None:
    password = None if identity.password is None else identity.password.reveal()
    try:
        # Without a callback OpenSSL would ask on the terminal for a password that is missing.
        context.load_cert_chain(identity.cert, identity.key, password if password is not None else lambda: "")
    except (OSError, ssl.SSLError, ValueError) as error:
        msg = (
            f"http.client_cert: cannot load certificate {identity.cert!r} with key {identity.key or identity.cert!r} "
            f"({_why(error)}); expected PEM files, and the key's password if it has one"
        )
        raise ConfigError(msg, path="http.client_cert") from error


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or "no PEM data"
    return getattr(error, "strerror", None) or type(error).__name__
