"""A token server on loopback for tests: it checks nothing, records requests, and responds as a test says.

The live tests use a real OIDC server; this one is for what such a server never does: garbage, delays, redirects.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa


@dataclass
class Received:
    path: str
    headers: dict[str, str]
    body: str


@dataclass
class Issuer:
    """Signs tokens with a key, which `jwks` publishes."""

    kid: str = "one"

    @cached_property
    def key(self) -> rsa.RSAPrivateKey:
        """Return the key, made at its first use: it costs too much to be made when tests are collected."""
        return rsa.generate_private_key(65537, 2048)

    def token(self, subject: str = "alice", lifetime: float = 3600, **claims: Any) -> str:
        now = time.time()
        fields = {"sub": subject, "iss": "https://issuer", "aud": "kafka", "iat": now, "exp": now + lifetime, **claims}
        return jwt.encode(fields, self.key, algorithm="RS256", headers={"kid": self.kid})

    def jwks(self) -> dict[str, Any]:
        key = jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        return {"keys": [{**key, "kid": self.kid, "alg": "RS256", "use": "sig"}]}


class TokenServer:
    """Use it as a context manager. `respond(received)` returns status, headers and body."""

    def __init__(self, issuer: Issuer) -> None:
        self.issuer = issuer
        self.received: list[Received] = []
        self.respond: Callable[[Received], tuple[int, dict[str, str], bytes]] = self.give_token
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                request = Received(self.path, dict(self.headers.items()), body)
                server.received.append(request)
                status, headers, content = server.respond(request)
                self.send_response(status)
                for name, value in {"Content-Length": str(len(content)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                with contextlib.suppress(BrokenPipeError):  # a client that waited long enough has gone
                    self.wfile.write(content)

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/token"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    def give_token(self, received: Received, lifetime: float = 3600) -> tuple[int, dict[str, str], bytes]:
        fields = {"access_token": self.issuer.token(lifetime=lifetime), "expires_in": lifetime, "token_type": "Bearer"}
        return 200, {}, json.dumps(fields).encode()

    def __enter__(self) -> TokenServer:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
