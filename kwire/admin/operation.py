"""A request to the controller that changes several resources, retried until each has a result.

The response has an error code per resource. Resources whose error is retriable (the controller moved, or throttles) are
requested again after a back-off and with newer metadata, until the timeout. A request without a response leaves its
resources in doubt: the controller may have applied the change, which the subclass takes into account.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from random import Random
from typing import Any, Generic, NamedTuple, TypeVar

from kwire.cluster import Backoff, ClusterView, PendingRequest, ToAny, ToController
from kwire.errors import BrokerError, ErrorCode, KwireError, RequestTimeoutError, timeout_error
from kwire.protocol.schema import Request, Response

Resource = TypeVar("Resource")
Result = TypeVar("Result")

# The request's own timeout is this much (milliseconds), or a quarter, shorter than the caller's: so the controller's
# response that it timed out still arrives.
_RESPONSE_MARGIN_MS = 1_000

# Kafka calls more codes retriable, but here a retry would not help: an unknown topic cannot be deleted later either.
_RETRIED_CODES = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.REQUEST_TIMED_OUT})


def broker_timeout_ms(remaining_ms: int) -> int:
    """Return the timeout of a request's own, for a caller that waits for so long."""
    return remaining_ms - min(_RESPONSE_MARGIN_MS, remaining_ms // 4)


class ResourceResult(NamedTuple, Generic[Result]):
    """The part of a response that concerns one resource: its name, and the result or the error."""

    name: str
    result: Result | BrokerError


class Operation(ABC, Generic[Resource, Result]):
    """A `StateMachine`. `future` gets a result or an error per resource.

    What ends the whole operation, such as the timeout, is the error of each resource without a result; it fails the
    future only if no resource has one.
    """

    api: type[Request[Any]]

    def __init__(self, resources: Mapping[str, Resource], *, timeout: float, backoff: Backoff, random: Random) -> None:
        self.future: Future[dict[str, Result | KwireError]] = Future()
        self._pending = dict(resources)
        self._results: dict[str, Result | KwireError] = {}
        self._order = list(resources)
        self._in_doubt: set[str] = set()  # an earlier attempt may have been applied
        self._timeout = timeout
        self._backoff = backoff
        self._random = random
        self._expires_at: float | None = None
        self._now = 0.0  # of the last turn
        self._not_before = 0.0
        self._attempts = 0
        self._is_in_flight = False
        self._refresh_reason: str | None = None
        self._last_error: dict[str, KwireError] = {}
        self._complete_if_done()

    @abstractmethod
    def build_request(self, resources: Mapping[str, Resource], timeout_ms: int, version: int) -> Request[Any]: ...

    @abstractmethod
    def parse_response(self, response: Response, in_doubt: Collection[str]) -> Iterable[ResourceResult[Result]]:
        """Return the results in a response. An earlier attempt may already have changed the resources `in_doubt`."""

    # -- StateMachine

    def topics(self) -> Collection[str]:
        return ()

    def deadline(self) -> float | None:
        if self._expires_at is None or self.future.done():
            return None
        # A time that has passed must not hide the one that is still to come.
        waits = self._not_before > self._now and not self._is_in_flight
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
            self._expire(view.connection_error)
            return []
        if view.has_fatal_error and view.connection_error is not None:
            self._fail(view.connection_error)
            return []
        snapshot = view.snapshot
        if self._is_in_flight or now < self._not_before or not snapshot.brokers:
            return []
        self._is_in_flight = True
        # Brokers before 0.10 do not name the controller, and during an election there is none. Then any broker gets
        # the request, and responds NOT_CONTROLLER or lacks the API.
        route = ToController() if snapshot.controller_id in snapshot.brokers else ToAny()
        resources, remaining_ms = dict(self._pending), max(1, int((self._expires_at - now) * 1000))
        timeout_ms = broker_timeout_ms(remaining_ms)
        return [
            PendingRequest(
                route,
                self.api,
                lambda version: self.build_request(resources, timeout_ms, version),
                self._handle_response,
                timeout_ms=remaining_ms,
            )
        ]

    # -- responses

    def _handle_response(self, result: Response | KwireError | None, now: float) -> None:
        self._is_in_flight = False
        if self.future.done():
            return
        if isinstance(result, KwireError):
            if not result.is_retriable:
                self._fail(result)
                return
            self._in_doubt.update(self._pending)
            self._retry(dict.fromkeys(self._pending, result), now)
            return
        assert result is not None
        refused: dict[str, KwireError] = {}
        for name, outcome in self.parse_response(result, self._in_doubt):
            if name not in self._pending:
                continue
            if isinstance(outcome, BrokerError) and outcome.code in _RETRIED_CODES:
                refused[name] = outcome
                if outcome.code == ErrorCode.REQUEST_TIMED_OUT:  # the controller has started and may complete it
                    self._in_doubt.add(name)
                continue
            self._results[name] = outcome
            del self._pending[name]
        if not self._complete_if_done():
            lacking = RequestTimeoutError("the controller's response lacks a resource")
            self._retry({name: refused.get(name, lacking) for name in self._pending}, now)

    def _complete_if_done(self) -> bool:
        if self._pending:
            return False
        self.future.set_result({name: self._results[name] for name in self._order})
        return True

    def _retry(self, errors: Mapping[str, KwireError], now: float) -> None:
        for name, error in errors.items():  # the cause of a timeout says more than the timeout
            self._last_error[name] = error.__cause__ if isinstance(error.__cause__, KwireError) else error
        self._attempts += 1
        self._not_before = now + self._backoff.seconds(self._attempts, self._random)
        self._refresh_reason = f"{self.api.__name__}: {next(iter(errors.values())).message}"

    def _fail(self, error: KwireError) -> None:
        if self.future.done():
            return
        if self._results:
            self._end(dict.fromkeys(self._pending, error))
        else:
            self.future.set_exception(error)

    def _expire(self, connection_error: KwireError | None) -> None:
        if self._results:
            self._end({name: self._timeout_error([name], connection_error) for name in self._pending})
        else:
            self.future.set_exception(self._timeout_error(self._pending, connection_error))

    def _end(self, errors: Mapping[str, KwireError]) -> None:
        """Complete with these errors of the resources that have no result."""
        self._results.update(errors)
        self._pending.clear()
        self._complete_if_done()

    def _timeout_error(self, names: Collection[str], connection_error: KwireError | None) -> KwireError:
        return timeout_error(
            f"no result in time for {', '.join(names)}",
            next((self._last_error[name] for name in names if name in self._last_error), connection_error),
            api=self.api.__name__.removesuffix("Request"),
            remedy="the controller may have applied the change, or may do so later: check before you repeat it",
        )
