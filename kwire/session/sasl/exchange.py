"""What the mechanisms have in common: one exchange, on each side, and a message that takes time.

An exchange never waits. Where it needs a token server, a ticket or a function of the user's, it returns a `Deferred`
instead of a message; who drives the exchange begins it, and goes on with its result.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from kwire.errors import ConfigurationError, KwireError

T = TypeVar("T")

# The mechanisms that the handshake treats in a way of their own.
GSSAPI = "GSSAPI"
AWS_MSK_IAM = "AWS_MSK_IAM"
_TEXT_MAX = 300  # of a peer's text in an error
# PEM, a JWT, a JSON object.
_CONTENT = re.compile(r"-----BEGIN|^\s*eyJ[\w-]+\.[\w-]+\.|^\s*\{|\n")


class SaslError(Exception):
    """The exchange cannot succeed. `args[0]` says why, without a secret."""


def on_one_line(text: str) -> str:
    """Return the start of a peer's text, for an error, without line ends and control characters: it may forge a log."""
    return " ".join("".join(char if char.isprintable() else " " for char in text[:_TEXT_MAX]).split())


def parse_json(data: bytes | str) -> Any:
    """Return the value of a peer's JSON. Raises ValueError, also for one that is nested too deeply."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


def is_utf8(text: str) -> bool:
    """Return whether a text has no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_path(option: str, path: object) -> None:
    """Raise ConfigurationError for what is no path, such as the content of the file: no error or repr may show it."""
    if isinstance(path, os.PathLike):
        return
    if not isinstance(path, str) or not path:
        what = "empty" if path == "" else type(path).__name__
        raise ConfigurationError(f"{option} is {what}", remedy="give the path of a file")
    if _CONTENT.search(path):
        raise ConfigurationError(
            f"{option} is the content of a file, not its path",
            remedy="write it into a file that only you can read, and give its path; a token may come from a function, "
            "by kwire.Sasl.oauth",
        )


class Deferred(NamedTuple):
    """A message that takes time. `begin(done)` does not block; it calls `done` once, now or later, from any thread,
    with the message (None: there is none) or with the error."""

    begin: Callable[[Callable[[bytes | KwireError | None], object]], object]


ClientMessage: TypeAlias = bytes | Deferred | None
# Runs a slow function on another thread, then calls the second argument with its result or its error.
Run: TypeAlias = Callable[[Callable[[], bytes], Callable[[bytes | KwireError | None], object]], object]


class SaslClient(Protocol):
    """One exchange: `start` returns the first message, `step` the next one for a challenge of the broker, or None.

    `step` raises SaslError for a challenge that cannot be accepted. With `is_done` the exchange has succeeded.
    `refusal` is what the broker said of credentials that it does not accept, or "".
    """

    @property
    def is_done(self) -> bool: ...

    @property
    def refusal(self) -> str: ...

    def start(self) -> ClientMessage: ...

    def step(self, challenge: bytes) -> ClientMessage: ...


class Obtained(Protocol):
    """A callback. It takes an exchange that has its credentials, or the error that came instead of them.

    `LaterClient` calls `on_result(is_accepted)` once, when the broker has accepted or refused the credentials.
    """

    def __call__(self, client: SaslClient | KwireError, on_result: Callable[[bool], object] = ..., /) -> object: ...


class LaterClient:
    """An exchange whose credentials take time: `begin(obtained)` calls `obtained` when it has them."""

    def __init__(self, begin: Callable[[Obtained], object]) -> None:
        self._begin = begin
        self._client: SaslClient | None = None
        self._on_result: Callable[[bool], object] | None = None

    @property
    def is_done(self) -> bool:
        return self._client is not None and self._client.is_done

    @property
    def refusal(self) -> str:
        return "" if self._client is None else self._client.refusal

    def start(self) -> ClientMessage:
        return Deferred(self._obtain)

    def step(self, challenge: bytes) -> ClientMessage:
        assert self._client is not None
        try:
            message = self._client.step(challenge)
        except SaslError:
            self.refused()
            raise
        if self._client.is_done:
            self._judged(is_accepted=True)
        elif self._client.refusal:
            self.refused()
        return message

    def refused(self) -> None:
        """Note that the broker refused the credentials, by an error instead of a challenge."""
        self._judged(is_accepted=False)

    def _judged(self, *, is_accepted: bool) -> None:
        on_result, self._on_result = self._on_result, None
        if on_result is not None:
            on_result(is_accepted)

    def _obtain(self, done: Callable[[bytes | KwireError | None], object]) -> None:
        def obtained(client: SaslClient | KwireError, on_result: Callable[[bool], object] | None = None, /) -> None:
            if isinstance(client, KwireError):
                done(client)
                return
            self._client, self._on_result = client, on_result
            message = client.start()
            assert not isinstance(message, Deferred)
            done(message)

        self._begin(obtained)


class HttpResponse(NamedTuple):
    """What an HTTP server responded."""

    status: int
    body: bytes


class LoginTools(Protocol):
    """What may block, for the source of a token or a secret: it is called on a thread that may wait."""

    def unix_time(self) -> float:
        """Return seconds since 1970."""
        ...

    def post(self, url: str, headers: Mapping[str, str], body: bytes, ca_file: str | None) -> HttpResponse:
        """Send a POST request. Raises LoginError if there is no response in time."""
        ...

    def call(self, function: Callable[[], Any]) -> Any:
        """Call a function, or a coroutine function, of the user's and return its result."""
        ...


class Login(Protocol):
    """The logins of one client object, which all its connections share."""

    def exchange(self, host: str) -> SaslClient:
        """Return a new exchange with the broker of this host name."""
        ...

    @property
    def mechanism(self) -> str: ...

    @property
    def identity(self) -> str:
        """Return who logs in, for errors: "user 'alice'"."""
        ...


class SaslExchange(Protocol):
    """The broker's side of one exchange. `step` returns the challenge for a message, or raises SaslError.

    `username` is the authenticated user once `is_done` is true, and `expires_at` when its credentials end, in seconds
    since 1970 (None: never). `is_by_token` says that they are a delegation token.
    """

    @property
    def is_done(self) -> bool: ...

    @property
    def username(self) -> str | None: ...

    @property
    def expires_at(self) -> float | None: ...

    @property
    def is_by_token(self) -> bool: ...

    def step(self, message: bytes) -> bytes: ...
