"""The login of one client: its token, ticket or secret, obtained once for all of its connections, ahead of its expiry.

What blocks runs on threads that may wait, never on the loop's. Everything else runs on the loop's thread: `turn` takes
what the threads have obtained, and begins what is due. One token is obtained at a time, whoever waits for it.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from math import inf
from random import Random
from typing import Any, TypeAlias

from kwire.errors import KwireError, LoginError
from kwire.net import Clock
from kwire.net.backoff import Backoff
from kwire.session.sasl import HttpResponse, Sasl, SaslClient
from kwire.session.sasl.aws import AwsMskSigner
from kwire.session.sasl.exchange import LaterClient, Obtained
from kwire.session.sasl.kerberos import Ticket
from kwire.session.sasl.oauth import OAuthClient, Token, secret_text
from kwire.session.sasl.refresh import RETRY_SECONDS, refresh_at

_log = logging.getLogger("kwire.cluster")

# Between attempts for which connections wait (Java's sasl.login.retry.backoff.ms and its maximum).
_BACKOFF_MS, _BACKOFF_MS_MAX = 100, 10_000

_NO_THREAD = "end threads of the program, or raise the limit of threads of its user or container"

# What a login has; all of these have an expiry.
Credentials: TypeAlias = Token | Ticket | AwsMskSigner
Submit: TypeAlias = Callable[[Callable[[], object]], object]


class SharedLogin:
    """The login of one client object. `submit` runs a call that may block; `wake` makes the loop call `turn`."""

    def __init__(
        self,
        sasl: Sasl,
        clock: Clock,
        random: Random,
        *,
        timeout_ms: int,
        wake: Callable[[], object],
        submit: Submit,
    ) -> None:
        self.mechanism = sasl.mechanism
        self.identity = sasl.identity
        # Where the coroutine functions of an asyncio client run; else each call has a loop of its own.
        self.asyncio_loop: asyncio.AbstractEventLoop | None = None
        self._sasl = sasl
        self._clock = clock
        self._random = random
        self._timeout = timeout_ms / 1000
        # A connection that waits meets one attempt at least, and so its error instead of a timeout.
        self._backoff = Backoff(_BACKOFF_MS, min(_BACKOFF_MS_MAX, timeout_ms / 2))
        self._wake = wake
        self._submit = submit
        self._results: deque[Callable[[], object]] = deque()  # from the threads
        self._token: Credentials | None = None
        self._refused_by: set[str] = set()  # hosts that rejected the token, or for which the ticket gave none
        self._waiting: list[Callable[[Credentials | KwireError], object]] = []
        self._fetch = 0  # the number of the newest attempt; results of others are dropped
        self._fetch_deadline = inf  # while one runs
        self._failures = 0  # in a row
        self._refusals: Counter[str] = Counter()  # likewise, of tokens by each host
        self._retry_at = 0.0  # no attempt before this
        self._refresh_at = inf  # once there has been a token

    # -- for sessions

    def exchange(self, host: str) -> SaslClient:
        if self._sasl.tokens is not None:
            return LaterClient(partial(self._obtain_token, host))
        if not isinstance(self._sasl.password, str):
            return LaterClient(self._obtain_password)
        return self._sasl.client(run=self._run)

    def _obtain_password(self, done: Obtained) -> None:
        def client() -> SaslClient:
            return self._sasl.password_client(secret_text(self._sasl.password, self, "the password"), run=self._run)

        self._run(client, done)

    def _obtain_token(self, host: str, done: Obtained) -> None:
        token = self._token
        obtained = partial(self._begin_exchange, host, done)
        if token is not None and host not in self._refused_by and token.expires_at > self.unix_time():
            obtained(token)
        else:
            self._waiting.append(obtained)
            self._begin_due(self._clock.now())

    def _begin_exchange(self, host: str, done: Obtained, token: Credentials | KwireError) -> None:
        if isinstance(token, KwireError):
            done(token)
        elif isinstance(token, Token):
            done(OAuthClient(token, self._sasl.extensions), partial(self._judged, host, token))
        else:  # for this broker alone; a ticket comes from the key distribution centre too
            self._run(partial(token.client, host), partial(self._ticket_obtained, host, token, done))

    def _ticket_obtained(
        self, host: str, ticket: Ticket | AwsMskSigner, done: Obtained, result: SaslClient | KwireError
    ) -> None:
        if isinstance(result, KwireError):
            self._judged(host, ticket, is_accepted=False)
        done(result, partial(self._judged, host, ticket))

    def _judged(self, host: str, token: Credentials, is_accepted: bool) -> None:
        """Note whether a broker took the credentials: others are obtained for its next connection, with back-off.

        Many connections may be refused one token, which counts once; other hosts go on with it.
        """
        if is_accepted:
            del self._refusals[host]
        elif token is self._token and host not in self._refused_by:
            self._refused_by.add(host)
            self._refusals[host] += 1
            self._retry_at = self._clock.now() + self._backoff.seconds(self._refusals[host], self._random)

    # -- for the loop

    def deadline(self) -> float:
        """Return when to call `turn` next, at the latest."""
        if self._fetch_deadline < inf:
            return self._fetch_deadline
        return max(self._retry_at, 0.0 if self._waiting else self._refresh_at)

    def turn(self, now: float) -> None:
        """Take what was obtained, and begin what is due."""
        while self._results:
            self._results.popleft()()
        if now >= self._fetch_deadline:
            self._failed(
                LoginError(
                    f"{self.identity} did not come within {self._timeout:,.0f} s",
                    may_retry=True,
                    remedy="check the token server, the key distribution centre or the callable",
                ),
                now,
            )
        self._begin_due(now)

    def _begin_due(self, now: float) -> None:
        due = max(self._retry_at, 0.0 if self._waiting else self._refresh_at)
        if self._fetch_deadline < inf or now < due:
            return
        source = self._sasl.tokens
        assert source is not None
        self._fetch += 1
        self._fetch_deadline = now + self._timeout
        self._run(partial(source.fetch, self), partial(self._fetched, self._fetch))

    def _fetched(self, number: int, result: Credentials | KwireError) -> None:
        if number != self._fetch or self._fetch_deadline == inf:
            return
        now = self._clock.now()
        if isinstance(result, KwireError):
            self._failed(result, now)
            return
        self._fetch_deadline = inf
        self._token, self._failures = result, 0
        self._refused_by.clear()
        unix_now = self.unix_time()
        at = refresh_at(result.issued_at, result.expires_at, unix_now, self._random.random())
        self._refresh_at = now + at - unix_now
        for done in self._take_waiting():
            done(result)

    def _failed(self, error: KwireError, now: float) -> None:
        self._fetch_deadline = inf
        self._failures += 1
        self._retry_at = now + self._backoff.seconds(self._failures, self._random)
        if self._token is not None:
            self._refresh_at = now + RETRY_SECONDS
            if self._failures == 1:
                _log.warning("the login is not renewed yet: %s", error)
        for done in self._take_waiting():
            done(error)

    def _take_waiting(self) -> list[Callable[[Credentials | KwireError], object]]:
        waiting, self._waiting = self._waiting, []
        return waiting

    # -- on threads that may wait

    def _run(self, call: Callable[[], Any], done: Callable[[Any], object]) -> None:
        """Run a call that may block, and `done` with its result or error in a later `turn`."""

        def run() -> None:
            result: Any
            try:
                result = call()
            except LoginError as error:
                result = error
            except KwireError as error:
                result = _login_error(error.message, error.remedy, error)
            except Exception as error:  # a library's; its text may hold a secret
                text = f"{self.identity} failed with {type(error).__name__}"
                result = _login_error(text, "see the traceback of __cause__", error)
            finish(result)

        def finish(result: Any) -> None:
            self._results.append(partial(done, result))
            self._wake()

        try:
            self._submit(run)
        except RuntimeError as error:  # no thread is left; others may end
            finish(_login_error(f"no thread for {self.identity}: {error}", _NO_THREAD, error, may_retry=True))

    def unix_time(self) -> float:
        return self._clock.time_ms() / 1000

    def post(self, url: str, headers: Mapping[str, str], body: bytes, ca_file: str | None) -> HttpResponse:
        from kwire.net.http import post  # only those who need it pay for the import

        return HttpResponse(*post(url, headers, body, ca_file=ca_file, seconds=self._timeout))

    def call(self, function: Callable[[], Any]) -> Any:
        result = function()
        if not inspect.isawaitable(result):
            return result
        loop = self.asyncio_loop
        if loop is None or not loop.is_running():
            return asyncio.run(_awaited(result, self._timeout))
        future = asyncio.run_coroutine_threadsafe(_awaited(result, self._timeout), loop)
        try:
            return future.result(self._timeout)  # the loop may be blocked, or end
        finally:
            future.cancel()


async def _awaited(result: Awaitable[Any], seconds: float) -> Any:
    """Await a coroutine of the user's, which is cancelled after its time: otherwise each attempt would leave one."""
    async with asyncio.timeout(seconds):
        return await result


def _login_error(message: str, remedy: str | None, cause: Exception, *, may_retry: bool = False) -> LoginError:
    error = LoginError(message, may_retry=may_retry, remedy=remedy)
    error.__cause__ = cause
    return error
