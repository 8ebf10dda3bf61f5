"""One request per group to its coordinator, retried until each group has a result."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future
from functools import partial
from random import Random
from typing import Any, Generic, TypeVar

from kwire.cluster import Backoff, ClusterView, PendingRequest, ToCoordinator
from kwire.errors import BrokerError, ErrorCode, KwireError, timeout_error
from kwire.protocol import Request, Response

Result = TypeVar("Result")

_MOVED_CODES = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
_RETRIED_CODES = _MOVED_CODES | {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


class CoordinatedRequests(Generic[Result]):
    """A `StateMachine`. `future` gets a result or an error per group, in the order of `groups`.

    build  makes the request of a group for the negotiated version
    parse  returns the result in a response, or raises the error in it; `in_doubt` says that an earlier attempt got no
           response and may have been carried out
    """

    def __init__(
        self,
        groups: Iterable[str],
        api: type[Request[Any]],
        build: Callable[[str, int], Request[Any]],
        parse: Callable[[str, Any, bool], Result],
        *,
        timeout: float,
        backoff: Backoff,
        random: Random,
        at_most: int | None = None,
    ) -> None:
        self.future: Future[dict[str, Result | KwireError]] = Future()
        self._api = api
        self._build = build
        self._parse = parse
        self._at_most = at_most  # the highest version to use
        self._timeout = timeout
        self._backoff = backoff
        self._random = random
        self._order = list(dict.fromkeys(groups))
        self._results: dict[str, Result | KwireError] = {}
        self._not_before = dict.fromkeys(self._order, 0.0)  # of the groups that wait to be sent
        self._attempts = dict.fromkeys(self._order, 0)
        self._last_error: dict[str, KwireError] = {}
        self._in_doubt: set[str] = set()
        self._moved: set[str] = set()  # their coordinator must be looked up again
        self._expires_at: float | None = None
        self._complete_if_done()

    # -- StateMachine

    def topics(self) -> Collection[str]:
        return ()

    def deadline(self) -> float | None:
        if self._expires_at is None or self.future.done():
            return None
        return min([self._expires_at, *self._not_before.values()])

    def closed(self, error: KwireError) -> None:
        if not self.future.done():
            self.future.set_exception(error)

    def turn(self, now: float, view: ClusterView) -> list[PendingRequest]:
        if self._expires_at is None:
            self._expires_at = now + self._timeout
        for group in self._moved:
            view.forget_coordinator(ToCoordinator(group))
        self._moved.clear()
        if now >= self._expires_at:
            for group in list(self._not_before):
                self._set_result(group, self._expired(group, view))
            return []
        due = [group for group, not_before in self._not_before.items() if now >= not_before]
        return [self._pending_request(group, self._expires_at - now) for group in due]

    def _pending_request(self, group: str, seconds: float) -> PendingRequest:
        del self._not_before[group]
        return PendingRequest(
            ToCoordinator(group),
            self._api,
            partial(self._build, group),
            partial(self._done, group),
            timeout_ms=max(1, int(seconds * 1000)),
            at_most=self._at_most,
        )

    def _done(self, group: str, result: Response | KwireError | None, now: float) -> None:
        if self.future.done():
            return
        try:
            if isinstance(result, KwireError):
                raise result
            self._set_result(group, self._parse(group, result, group in self._in_doubt))
        except BrokerError as error:
            if error.code in _RETRIED_CODES:
                if error.code in _MOVED_CODES:
                    self._moved.add(group)
                self._retry(group, error, now)
            else:
                self._set_result(group, error)
        except KwireError as error:
            if error.is_retriable and self._expires_at is not None and now < self._expires_at:
                self._in_doubt.add(group)
                self._moved.add(group)
                self._retry(group, error, now)
            else:
                self._set_result(group, error)

    def _retry(self, group: str, error: KwireError, now: float) -> None:
        self._attempts[group] += 1
        self._last_error[group] = error
        self._not_before[group] = now + self._backoff.seconds(self._attempts[group], self._random)

    def _set_result(self, group: str, result: Result | KwireError) -> None:
        self._not_before.pop(group, None)
        self._results[group] = result
        self._complete_if_done()

    def _complete_if_done(self) -> None:
        if len(self._results) == len(self._order) and not self.future.done():
            self.future.set_result({group: self._results[group] for group in self._order})

    def _expired(self, group: str, view: ClusterView) -> KwireError:
        return timeout_error(
            "no result in time",
            self._last_error.get(group) or view.connection_error,
            api=self._api.__name__.removesuffix("Request"),
            group=group,
            remedy="check that the group's coordinator can be reached from here",
        )
