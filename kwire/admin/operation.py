"""A change that only the controller can make, on several things at once: asked for until each is settled.

The answer has a code for each thing. Some may be settled while others have to wait: the controller moved, or throttles.
Only those are asked for again, after a pause and with newer metadata, until the time is over. An answer that never came
leaves its things in doubt: the controller may have carried them out, which the subclass takes into account.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from random import Random
from typing import Any, Generic, NamedTuple, TypeVar

from kwire.cluster import Backoff, ClusterView, PendingRequest, ToAny, ToController
from kwire.errors import (
    BrokerError,
    ErrorCode,
    KwireError,
    RequestTimeoutError,
)
from kwire.protocol.schema import Request, Response

Thing = TypeVar("Thing")
Outcome = TypeVar("Outcome")

# The controller is given less time than the caller has, by this (milliseconds) or a quarter, so that its answer that it
# took too long still arrives.
_TRAVEL_MS = 1_000


# Codes after which the same request makes sense again. Of what Kafka calls retriable that is the smaller part here: to
# delete a topic that is unknown will not work the second time.
_PASSING = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.REQUEST_TIMED_OUT})


class Settled(NamedTuple, Generic[Outcome]):
    """One thing's part of an answer: its name, and what was achieved or the error."""

    name: str
    outcome: Outcome | BrokerError


class Operation(ABC, Generic[Thing, Outcome]):
    """A `Machine`. `future` gets an outcome or a BrokerError for every thing, or the error that kept all from us."""

    api: type[Request[Any]]

    def __init__(self, things: Mapping[str, Thing], *, timeout: float, backoff: Backoff, random: Random) -> None:
        self.future: Future[dict[str, Outcome | BrokerError]] = Future()
        self._open = dict(things)
        self._outcomes: dict[str, Outcome | BrokerError] = {}
        self._order = list(things)
        self._in_doubt: set[str] = set()  # an earlier attempt may have been carried out
        self._timeout = timeout
        self._backoff = backoff
        self._random = random
        self._expires_at: float | None = None
        self._now = 0.0  # of the last turn
        self._not_before = 0.0
        self._attempts = 0
        self._is_asked = False
        self._refresh_reason: str | None = None
        self._last_error: KwireError | None = None
        self._finish_if_settled()

    @abstractmethod
    def request(self, things: Iterable[Thing], timeout_ms: int, version: int) -> Request[Any]: ...

    @abstractmethod
    def settled(self, response: Response, in_doubt: Collection[str]) -> Iterable[Settled[Outcome]]:
        """The answer, thing by thing. `in_doubt` are those that an earlier attempt may already have changed."""

    # -- Machine

    def topics(self) -> Collection[str]:
        return ()

    def deadline(self) -> float | None:
        if self._expires_at is None or self.future.done():
            return None
        waits = self._not_before > self._now and not self._is_asked  # what is past must not hide what is to come
        return min(self._expires_at, self._not_before) if waits else self._expires_at

    def closed(self, error: KwireError) -> None:
        self._fail(error)

    def turn(self, now: float, view: ClusterView) -> list[PendingRequest]:
        self._now = now
        if self.future.done():
            return []
        if self._expires_at is None:
            self._expires_at = now + self._timeout
        if self._refresh_reason is not None:
            view.request_metadata(self._refresh_reason)
            self._refresh_reason = None
        if now >= self._expires_at:
            self._fail(self._too_late(view.connection_error))
            return []
        if view.has_fatal_error and view.connection_error is not None:
            self._fail(view.connection_error)
            return []
        snapshot = view.snapshot
        if self._is_asked or now < self._not_before or not snapshot.brokers:
            return []
        self._is_asked = True
        # Brokers before 0.10 do not say who the controller is, and while none is elected nobody can: then any of them
        # has the answer, if only that it is not the one or that it lacks the API.
        route = ToController() if snapshot.controller_id in snapshot.brokers else ToAny()
        things, remaining_ms = dict(self._open), max(1, int((self._expires_at - now) * 1000))
        controllers_ms = remaining_ms - min(_TRAVEL_MS, remaining_ms // 4)
        return [
            PendingRequest(
                route,
                self.api,
                lambda version: self.request(things.values(), controllers_ms, version),
                self._done,
                timeout_ms=remaining_ms,
            )
        ]

    # -- answers

    def _done(self, result: Response | KwireError | None, now: float) -> None:
        self._is_asked = False
        if self.future.done():
            return
        if isinstance(result, KwireError):
            if not result.is_retriable:
                self._fail(result)
                return
            self._in_doubt.update(self._open)
            self._retry(result, now)
            return
        assert result is not None
        last_error: BrokerError | None = None
        for name, outcome in self.settled(result, self._in_doubt):
            if name not in self._open:
                continue
            if isinstance(outcome, BrokerError) and outcome.code in _PASSING:
                last_error = outcome
                if outcome.code == ErrorCode.REQUEST_TIMED_OUT:  # begun, and not done when the controller gave up
                    self._in_doubt.add(name)
                continue
            self._outcomes[name] = outcome
            del self._open[name]
        if not self._finish_if_settled():
            self._retry(last_error or RequestTimeoutError("the controller left something out of its answer"), now)

    def _finish_if_settled(self) -> bool:
        if self._open:
            return False
        self.future.set_result({name: self._outcomes[name] for name in self._order})
        return True

    def _retry(self, error: KwireError, now: float) -> None:
        # That nothing came in time says less than what was in its way.
        self._last_error = error.__cause__ if isinstance(error.__cause__, KwireError) else error
        self._attempts += 1
        self._not_before = now + self._backoff.seconds(self._attempts, self._random)
        self._refresh_reason = f"{self.api.__name__}: {error.message}"

    def _fail(self, error: KwireError) -> None:
        if not self.future.done():
            self.future.set_exception(error)

    def _too_late(self, trouble: KwireError | None) -> KwireError:
        cause = self._last_error or trouble
        why = f"; the last failure was: {cause}" if cause is not None else ""
        error = RequestTimeoutError(
            f"not settled in time for {', '.join(self._open)}{why}",
            api=self.api.__name__.removesuffix("Request"),
            remedy="the controller may have carried it out, or may yet: look before repeating it",
        )
        error.__cause__ = cause
        return error
