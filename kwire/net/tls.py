"""TLS as a user configures it, and the files that a client's connections have loaded.

This file imports no `ssl`: programs that connect without TLS never load OpenSSL.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kwire.errors import ConfigurationError

if TYPE_CHECKING:
    import ssl

_log = logging.getLogger("kwire.net")

FILES = ("ca_file", "cert_file", "key_file", "crl_file")


@dataclass(frozen=True)
class Tls:
    """TLS for a connection or a listener. Files are PEM.

    For a client, `ca_file` has the certificate authorities to trust (None: those of the system), and `cert_file` and
    `key_file` are the client's certificate and key, for mutual TLS. For a listener, `cert_file` is required, and a
    `ca_file` makes client certificates mandatory. `server_name` replaces the host name in SNI and in the check of the
    certificate. `verify=False` accepts any certificate; use it for experiments only. A client may have its files
    replaced while it runs: new connections use the new ones. `crl_file` has revocation lists (CRL): a peer whose
    certificate is in one is refused, and so is one whose authority has no list there. Without it nothing is revoked.
    """

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    key_password: str | None = field(default=None, repr=False)
    check_hostname: bool = True
    verify: bool = True
    server_name: str | None = None
    crl_file: str | None = None

    def __post_init__(self) -> None:
        for option in (*FILES, "key_password", "server_name"):
            value = getattr(self, option)
            if option in FILES and isinstance(value, os.PathLike):
                object.__setattr__(self, option, os.fspath(value))
            elif value is not None and not isinstance(value, str):
                raise ConfigurationError(f"{option} is {type(value).__name__}", remedy="give a str")
            elif option in FILES and value is not None and "-----BEGIN" in value:  # no error or repr may show a key
                raise ConfigurationError(
                    f"{option} is the text of a PEM file, not its path",
                    remedy="write the text into a file that only you can read, and give its path",
                )
        if self.key_file is not None and self.cert_file is None:
            raise ConfigurationError("key_file without cert_file", remedy="give both")
        if self.crl_file is not None and not self.verify:
            raise ConfigurationError(
                "crl_file with verify=False, which accepts any certificate", remedy="leave one out"
            )

    def client_context(self) -> ssl.SSLContext:
        """Load the files for a client. Raises ConfigurationError that names the option and the file at fault."""
        from kwire.net.tls_context import client_context

        return client_context(self)

    def server_context(self) -> ssl.SSLContext:
        """Load the files for a listener. Raises ConfigurationError that names the option and the file at fault."""
        from kwire.net.tls_context import server_context

        return server_context(self)


class ClientContexts:
    """The contexts of a client's connections. Files that were replaced on disk are loaded for the next connection.

    Open connections keep what they have. While the new files cannot be loaded, because one of them is not written yet
    or is broken, the old context is used, with one warning for each state of the files.
    """

    def __init__(self) -> None:
        self._loaded: dict[Tls, tuple[ssl.SSLContext, Hashable]] = {}

    def of(self, tls: Tls) -> ssl.SSLContext:
        """Return the context for a new connection. Raises ConfigurationError if the first files cannot be loaded."""
        state = tuple(_file_state(getattr(tls, option)) for option in FILES)
        known = self._loaded.get(tls)
        if known is not None and known[1] == state:
            return known[0]
        try:
            context = tls.client_context()
        except ConfigurationError as error:
            if known is None:
                raise
            _log.warning("the TLS files changed, but the old ones are used on: %s", error)
            context = known[0]
        self._loaded[tls] = context, state
        return context


def _file_state(path: str | None) -> Hashable:
    """Return what changes when a file is replaced or written."""
    if path is None:
        return None
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return "missing"
    return status.st_mtime_ns, status.st_size, status.st_ino
