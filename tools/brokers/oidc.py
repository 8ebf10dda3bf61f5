"""Run NAV's mock-oauth2-server, an OIDC server for tests: it signs tokens for any client, and publishes its keys."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Self

from brokers.configuration import log4j_properties
from brokers.jars import fetch_jars
from brokers.java import java_command
from brokers.probe import free_ports, wait_for_port
from brokers.process import JavaProcess

VERSION = "2.1.10"
_START_TIMEOUT_S = 90


class OidcServer:
    """Use it as a context manager. A token's audience is the scope of the request."""

    def __init__(self) -> None:
        self.port = free_ports(1)[0]
        self.issuer = f"http://127.0.0.1:{self.port}/default"
        self.token_url = f"{self.issuer}/token"
        self.jwks_url = f"{self.issuer}/jwks"
        self._directory = Path(tempfile.mkdtemp(prefix="kwire-oidc-"))
        self._process: JavaProcess | None = None

    def __enter__(self) -> Self:
        jars = fetch_jars("mock-oauth2-server", VERSION)
        log4j = self._directory / "log4j.properties"
        log4j.write_text(log4j_properties())
        command = java_command(
            jars, "no.nav.security.mock.oauth2.StandaloneMockOAuth2ServerKt", [], heap_mb=128, log4j=log4j
        )
        port = f"SERVER_PORT={self.port}"
        self._process = process = JavaProcess(["env", port, *command], self._directory / "oidc.log")

        def check() -> None:
            if not process.is_running:
                raise RuntimeError(f"the OIDC server ended:\n{process.log_tail()}")

        try:
            wait_for_port(self.port, timeout_s=_START_TIMEOUT_S, check=check)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        if self._process is not None:
            self._process.stop()
        shutil.rmtree(self._directory, ignore_errors=True)
