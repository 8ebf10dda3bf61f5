"""One request per thing to the broker that is responsible for it, retried until each thing has a result."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from copy import copy
from functools import partial
from random import Random
from typing import Any, Generic, NamedTuple, TypeVar

from kwire.cluster import Backoff, ClusterView, PendingRequest, Route, ToController, ToCoordinator, ToLeader
from kwire.consumer.routing import leader_of
from kwire.errors import BrokerError, ErrorCode, KwireError, timeout_error
from kwire.protocol import Request, Response

Name = TypeVar("Name")
Result = TypeVar("Result")

# What a broker responds that is not, or not yet, responsible: by the kind of the route.
_MOVED_CODES: Mapping[type[object], frozenset[ErrorCode]] = {
    ToCoordinator: frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}),
    ToController: frozenset({ErrorCode.NOT_CONTROLLER}),
    ToLeader: frozenset({
        ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.REPLICA_NOT_AVAILABLE,
    }),
}  # fmt: skip
_BUSY_CODES = frozenset({
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.THROTTLING_QUOTA_EXCEEDED,
})  # fmt: skip


class NextRequest(NamedTuple):
    """What is sent about a name after the request before: for an error that asks for it, or as its `parse` says.

    `at_most` is the highest version to use.
    """

    api: type[Request[Any]]
    build: Callable[[Any, int], Request[Any]]
    parse: Callable[[Any, Any, bool], Any]
    is_after: Callable[[KwireError], bool] = lambda error: False
    at_most: int | None = None


class RoutedRequests(Generic[Name, Result]):
    """A `StateMachine`. `future` gets a result or an error per name, in the order of `routes`.

    routes  where the request about each name goes
    build   makes the request about a name for the negotiated version
    parse   returns the result in a response, or raises the error in it; `in_doubt` says that an earlier attempt got no
            response and may have been carried out. A `NextRequest` is no result: it is sent, and others are not
    busy    error codes of this API after which it may succeed later, beyond those of all APIs
    others  further requests, in this order. Each name goes on to the next one without waiting for the other names
    """

    def __init__(
        self,
        routes: Mapping[Name, Route],
        api: type[Request[Any]],
        build: Callable[[Name, int], Request[Any]],
        parse: Callable[[Name, Any, bool], Result | NextRequest],
        *,
        timeout: float,
        backoff: Backoff,
        random: Random,
        at_most: int | None = None,
        busy: Collection[int] = (),
        others: Sequence[NextRequest] = (),
    ) -> None:
        self.future: Future[dict[Name, Result | KwireError]] = Future()
        self._routes = dict(routes)
        first = NextRequest(api, build, parse, at_most=at_most)
        # About each name, those that are done left out.
        self._requests: dict[Name, tuple[NextRequest, ...]] = dict.fromkeys(self._routes, (first, *others))
        self._busy = _BUSY_CODES | frozenset(busy)
        self._timeout = timeout
        self._backoff = backoff
        self._random = random
        self._results: dict[Name, Result | KwireError] = {}
        self._not_before = dict.fromkeys(self._routes, 0.0)  # of the names that wait to be sent
        self._attempts = dict.fromkeys(self._routes, 0)
        self._last_error: dict[Name, KwireError] = {}
        self._in_doubt: set[Name] = set()
        self._moved: dict[Name, KwireError] = {}  # what is responsible for them must be looked up again
        self._started_at = 0.0
        self._expires_at: float | None = None
        self._complete_if_done()

    # -- StateMachine

    def topics(self) -> Collection[str]:
        return {route.topic for route in self._routes.values() if isinstance(route, ToLeader)}

    def deadline(self) -> float | None:
        if self._expires_at is None or self.future.done():
            return None
        return min([self._expires_at, *self._not_before.values()])

    def closed(self, error: KwireError) -> None:
        if not self.future.done():
            self.future.set_exception(error)

    def turn(self, now: float, view: ClusterView) -> list[PendingRequest]:
        if self._expires_at is None:
            self._started_at, self._expires_at = now, now + self._timeout
        for name, error in self._moved.items():
            route = self._routes[name]
            if isinstance(route, ToCoordinator):
                view.forget_coordinator(route)
            else:
                view.request_metadata(f"{self._request(name).api.__name__}: {error.message}")
        self._moved.clear()
        if now >= self._expires_at:
            for name in list(self._not_before):
                self._set_result(name, self._expired(name, view))
            return []
        due = [name for name, not_before in self._not_before.items() if now >= not_before]
        left = self._expires_at - now
        return [self._pending_request(name, left) for name in due if self._has_partition(name, now, view)]

    def _request(self, name: Name) -> NextRequest:
        return self._requests[name][0]

    def _has_partition(self, name: Name, now: float, view: ClusterView) -> bool:
        """Return False where metadata lacks the partition of a leader: look again, or fail if metadata is newer."""
        route = self._routes[name]
        if not isinstance(route, ToLeader) or view.snapshot.partition(*route) is not None:
            return True
        error = leader_of(view.snapshot, *route).error
        if error is not None and view.snapshot.at > self._started_at:
            self._set_result(name, error)
        else:
            view.request_metadata(f"{route.topic}-{route.partition} is not known")
            self._not_before[name] = now + self._backoff.seconds(1, self._random)
        return False

    def _pending_request(self, name: Name, seconds: float) -> PendingRequest:
        del self._not_before[name]
        request = self._request(name)
        return PendingRequest(
            self._routes[name],
            request.api,
            partial(request.build, name),
            partial(self._done, name),
            timeout_ms=max(1, int(seconds * 1000)),
            at_most=request.at_most,
        )

    def _done(self, name: Name, result: Response | KwireError | None, now: float) -> None:
        if self.future.done():
            return
        try:
            if isinstance(result, KwireError):
                raise result
            parsed = self._request(name).parse(name, result, name in self._in_doubt)
            if isinstance(parsed, NextRequest):
                self._begin(name, (parsed,))
            else:
                self._set_result(name, parsed)
        except BrokerError as error:
            moved = _MOVED_CODES.get(type(self._routes[name]), frozenset())
            if error.code in moved or error.code in self._busy:
                if error.code in moved:
                    self._moved[name] = error
                self._retry(name, error, now)
            elif not self._goes_on(name, error):
                self._set_result(name, error)
        except KwireError as error:
            if error.is_retriable and self._expires_at is not None and now < self._expires_at:
                self._in_doubt.add(name)
                self._moved[name] = error
                self._retry(name, error, now)
            elif not self._goes_on(name, error):
                self._set_result(name, error)

    def _goes_on(self, name: Name, error: KwireError) -> bool:
        """Go on to the next request about a name. Return False if there is none, or not after this error."""
        others = self._requests[name][1:]
        if not others or not others[0].is_after(error):
            return False
        self._begin(name, others)
        return True

    def _begin(self, name: Name, requests: tuple[NextRequest, ...]) -> None:
        self._requests[name] = requests
        self._in_doubt.discard(name)
        self._not_before[name] = 0.0

    def _retry(self, name: Name, error: KwireError, now: float) -> None:
        self._attempts[name] += 1
        self._last_error[name] = error
        self._not_before[name] = now + self._backoff.seconds(self._attempts[name], self._random)

    def _set_result(self, name: Name, result: Result | KwireError) -> None:
        self._not_before.pop(name, None)
        self._results[name] = self._named(name, result) if isinstance(result, KwireError) else result
        self._complete_if_done()

    def _complete_if_done(self) -> None:
        if len(self._results) == len(self._routes) and not self.future.done():
            self.future.set_result({name: self._results[name] for name in self._routes})

    def _named(self, name: Name, error: KwireError) -> KwireError:
        """Return the error with what it is about. One of a connection may belong to many names, and is copied."""
        route = self._routes[name]
        where: dict[str, Any] = {}
        if isinstance(route, ToCoordinator):
            is_group = route.kind == "group"
            where = {"group": route.key} if is_group else {"resource": f"transactional id {route.key}"}
        elif isinstance(route, ToLeader):
            where = {"topic": route.topic, "partition": route.partition}
        if where.keys() <= error.where.keys():
            return error
        named = copy(error).at(**where)
        named.__cause__ = error.__cause__
        return named

    def _expired(self, name: Name, view: ClusterView) -> KwireError:
        return timeout_error(
            "no result in time",
            self._last_error.get(name) or view.connection_error,
            api=self._request(name).api.__name__.removesuffix("Request"),
            remedy="check that the broker that is responsible can be reached from here",
        )
