"""What every noun of the admin client stands on: deadlines, and requests to those who are responsible.

A noun is a class with a coroutine for each verb, which waits by the client's `Waiter` only. `kwire.Admin` has it for
threads and `kwire.aio.Admin` for asyncio.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from random import Random
from typing import Any, TypeVar

from kwire.admin.metadata import metadata_request, snapshot_of
from kwire.admin.operation import broker_timeout_ms
from kwire.admin.routed import NextRequest, RoutedRequests
from kwire.arguments import check_timeout
from kwire.cluster import Backoff, LoopThread, Route, Snapshot, StateMachine, ToAny, ToController, ToNode
from kwire.cluster.config import INT32_MAX
from kwire.cluster.telemetry import ClientTelemetry
from kwire.cluster.waiting import BLOCKING, Waiter
from kwire.errors import (
    AuthorizationError,
    ConfigurationError,
    ErrorCode,
    KwireError,
    acting_principal,
    broker_error,
)
from kwire.protocol import Request
from kwire.protocol.messages.metadata import MetadataRequest, MetadataResponse

Name = TypeVar("Name")
Result = TypeVar("Result")
T = TypeVar("T")
TopicPartition = tuple[str, int]

# How many seconds a caller waits beyond the deadline, at which the loop gives a result.
_GRACE_SECONDS = 5.0
_ONLY = "controller"


class Noun:
    """The requests that the verbs of a noun send. The coroutines wait by the client's waiter only."""

    def __init__(self, runtime: LoopThread, waiter: Waiter, telemetry: ClientTelemetry | None = None) -> None:
        self._runtime = runtime
        self._waiter = waiter
        self._telemetry = telemetry

    def _deadline(self, timeout: float | None) -> float:
        """Return when a call ends that may take `timeout` seconds, by default request_timeout_ms.

        Each verb begins with it, and the first one of a client has its metrics pushed from then on.
        """
        check_timeout(timeout, none="wait for request_timeout_ms")
        if self._telemetry is not None:
            self._telemetry.start()
        if self._waiter is not BLOCKING:  # `blocking` does it for threads; this is of the caller's task alone
            acting_principal.set(self._runtime.config.principal)
        seconds = self._runtime.config.request_timeout_ms / 1000 if timeout is None else timeout
        return self._runtime.clock.now() + seconds

    def _left(self, deadline: float) -> float:
        return max(0.001, deadline - self._runtime.clock.now())

    def _broker_timeout_ms(self, deadline: float) -> int:
        """Return the timeout for a request that has one of its own, in milliseconds."""
        return broker_timeout_ms(max(1, int(self._left(deadline) * 1000)))

    def _backoff(self) -> Backoff:
        config = self._runtime.config
        return Backoff(config.retry_backoff_ms, config.retry_backoff_ms_max)

    async def _snapshot(self, topics: Sequence[str] | None, deadline: float) -> Snapshot:
        """Request the metadata of these topics (None: of all) from a broker; a topic in error has its code."""
        build = partial(metadata_request, topics)
        response: MetadataResponse = await self._ask(ToAny(), MetadataRequest, build, deadline)
        return snapshot_of(response, self._runtime.clock.now())

    async def _ask(
        self, route: Route, api: type[Request[Any]], build: Callable[[int], Request[Any]], deadline: float
    ) -> Any:
        """Send a request that changes nothing, again after a lost connection, and return its response."""
        left = self._left(deadline)
        return await self._waiter.result_of(
            self._runtime.request_future(route, api, build, left), left + _GRACE_SECONDS
        )

    async def _ask_brokers(
        self, brokers: Iterable[int], api: type[Request[Any]], build: Callable[[int], Request[Any]], deadline: float
    ) -> dict[int, Any]:
        """Send a request that changes nothing to each of these brokers; the first error is raised."""
        left = self._left(deadline)
        futures = {node: self._runtime.request_future(ToNode(node), api, build, left) for node in brokers}
        return {node: await self._waiter.result_of(one, left + _GRACE_SECONDS) for node, one in futures.items()}

    async def _routed(
        self,
        routes: Mapping[Name, Route],
        api: type[Request[Any]],
        build: Callable[[Name, int], Request[Any]],
        parse: Callable[[Name, Any, bool], Result],
        deadline: float,
        at_most: int | None = None,
        busy: Collection[int] = (),
        others: Sequence[NextRequest] = (),
    ) -> dict[Name, Result | KwireError]:
        """Send a request per name to the broker that is responsible for it; see `RoutedRequests`."""
        requests = RoutedRequests(
            routes, api, build, parse, timeout=self._left(deadline), backoff=self._backoff(), random=Random(),
            at_most=at_most, busy=busy, others=others,
        )  # fmt: skip
        return await self._run(requests, requests.future, deadline)

    async def _controlled(
        self,
        api: type[Request[Any]],
        build: Callable[[int], Request[Any]],
        parse: Callable[[Any], Result],
        deadline: float,
        route: Route | None = None,
    ) -> Result:
        """Send one request to the controller, again while it moves, and return what `parse` makes of the response."""
        results = await self._routed(
            {_ONLY: route or ToController()}, api, lambda _, version: build(version),
            lambda _, response, in_doubt: parse(response), deadline,
        )  # fmt: skip
        return raised(results, _ONLY)

    def _named(self, results: Mapping[Name, Result | KwireError]) -> Mapping[Name, Result | KwireError]:
        """Return results whose errors name the principal, where a caller's thread has made them."""
        for result in results.values():
            if isinstance(result, AuthorizationError):
                result.at(principal=self._runtime.config.principal)
        return results

    async def _run(self, machine: StateMachine, future: Future[Result], deadline: float) -> Result:
        self._runtime.add(machine)
        try:
            return await self._waiter.result_of(future, self._left(deadline) + _GRACE_SECONDS)
        finally:
            self._runtime.remove(machine)


# -- arguments


def checked_names(what: str, names: Iterable[str]) -> list[str]:
    """Return names without repetition. Raises ConfigurationError for a str, whose characters would be the names."""
    if isinstance(names, str):
        raise ConfigurationError(f"{what} is {names!r}", remedy=f"give a list: {what}=[{names!r}]")
    found = checked_items(what, names, str)
    for name in found:
        if not name:
            raise ConfigurationError(f"{what} contains {name!r}", remedy="give names, each a str that is not empty")
    return list(dict.fromkeys(found))


def checked_name(what: str, name: str) -> str:
    """Return a name. Raises ConfigurationError unless it is a str that is not empty."""
    if not isinstance(name, str) or not name:
        raise ConfigurationError(f"{what} is {name!r:.60}", remedy="give a str that is not empty")
    return name


def checked_items(what: str, items: Iterable[T], *kinds: type[T]) -> list[T]:
    """Return the items of a list. Raises ConfigurationError unless each is of one of these classes."""
    named = " or ".join(kind.__name__ for kind in kinds)
    if not isinstance(items, Iterable) or isinstance(items, (str, bytes)):
        raise ConfigurationError(f"{what} is {items!r:.60}", remedy=f"give a list of {named}")
    found = list(items)
    for one in found:
        if not isinstance(one, kinds) or isinstance(one, bool):
            raise ConfigurationError(f"{what} contains {one!r:.60}", remedy=f"give only {named}")
    return found


def checked_mapping(what: str, mapping: Mapping[Name, T], example: str) -> Mapping[Name, T]:
    """Return a mapping. Raises ConfigurationError for anything else, with an example of one."""
    if not isinstance(mapping, Mapping):
        raise ConfigurationError(f"{what} is {mapping!r:.60}", remedy=f"give a dict such as {example}")
    return mapping


def checked_node(what: str, id: int) -> int:
    """Return the id of a broker or a controller. Raises ConfigurationError unless it is a whole number from 0 up."""
    if isinstance(id, bool) or not isinstance(id, int) or not 0 <= id <= INT32_MAX:
        raise ConfigurationError(f"{what} is {id!r:.60}", remedy="give its node.id, a whole number from 0 up")
    return id


def one_of(what: str, value: str, choices: Mapping[str, int]) -> int:
    """Return the number that Kafka has for a name. Raises ConfigurationError for another one."""
    number = choices.get(value) if isinstance(value, str) else None
    if number is None:
        raise ConfigurationError(f"{what} is {value!r}", remedy=f"give one of {', '.join(map(repr, choices))}")
    return number


def by_topic(keys: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the partitions of each topic, in the order of `keys`."""
    topics: dict[str, list[int]] = {}
    for topic, partition in keys:
        topics.setdefault(topic, []).append(partition)
    return topics


# -- results


def raised(results: Mapping[Name, Result | KwireError], name: Name) -> Result:
    """Return the result of this name, or raise its error."""
    result = results[name]
    if isinstance(result, KwireError):
        raise result
    return result


def check_code(code: int, api: str, message: str | None = None, **where: Any) -> None:
    """Raise the error of a code in a response, if it is one."""
    if code:
        raise broker_error(code, message, api=api, **where)


def error_or_none(code: int, api: str, message: str | None = None, **where: Any) -> KwireError | None:
    """Return the error of one thing in a response, None for success. Raises that the controller has moved."""
    if code == ErrorCode.NOT_CONTROLLER:  # `RoutedRequests` sends the request again
        raise broker_error(code, message, api=api)
    return broker_error(code, message, api=api, **where) if code else None
