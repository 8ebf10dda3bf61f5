"""Push a client's metrics to the brokers that ask for them (KIP-714), and those of the program (KIP-1076).

A broker that can take metrics lists the APIs. It says which metrics it wants and how often; without such a broker, or
without a subscription to this client, nothing is pushed.

    subscribe -> wait an interval -> sample -> push -> wait an interval -> sample -> push -> ... -> last push

The metrics are sampled on the callback thread, since the program's own are functions of the program. A failure never
concerns the client: the broker is asked again later, or not at all.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from enum import Enum, auto
from math import inf, isfinite
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from uuid import UUID

from kwire.arguments import check_timeout
from kwire.cluster.metrics import ClusterMetrics, Distribution
from kwire.cluster.otlp import Sample, encode_metrics
from kwire.cluster.requests import ClusterView, PendingRequest, ToAny, ToNode
from kwire.cluster.unpicklable import Unpicklable
from kwire.errors import ClosedError, ConfigurationError, ErrorCode, KwireError, UnsupportedVersionError, broker_error
from kwire.protocol import Request, Response
from kwire.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from kwire.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from kwire.records import Compression
from kwire.records.compression import compress

if TYPE_CHECKING:
    from kwire.cluster.config import ClientConfig
    from kwire.cluster.thread import LoopThread
    from kwire.cluster.waiting import Waiter

_log = logging.getLogger("kwire.telemetry")

# After a failure that is not the subscription's, and while a broker gives no interval: seconds (Kafka's default).
_PAUSE_SECONDS = 300.0
# How long, in seconds, a client that is being closed waits for its last push.
_LAST_SECONDS = 1.0
_PREFIX = "org.apache.kafka."
_NO_ID = UUID(int=0)
_ALL = ("*", "")
_CODECS = frozenset(map(int, Compression))
_NEVER_AGAIN = (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_RECORD, ErrorCode.UNSUPPORTED_VERSION)
_SUBSCRIBE_AGAIN = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
_NEXT_TIME = (ErrorCode.TELEMETRY_TOO_LARGE, ErrorCode.THROTTLING_QUOTA_EXCEEDED)


class Reading(NamedTuple):
    """What one metric is at the moment, under Kafka's name without "org.apache.kafka.".

    A number that changes is a gauge. A count, which only grows, is pushed as `name`.total and, as the count for each
    second since the last push, `name`.rate; of rare things, with `is_hourly`, as `name`.rate.per.hour. Of durations
    `name`.avg is pushed, their mean since the last push, in ms.
    """

    name: str
    value: float | Distribution
    is_count: bool = False
    labels: Mapping[str, str] = {}
    is_hourly: bool = False


def cluster_readings(client: str, metrics: ClusterMetrics) -> list[Reading]:
    """Return the metrics about brokers of a client; `client` is "producer", "consumer" or "admin.client"."""
    connects = sum(broker.connects for broker in metrics.brokers.values())
    return [
        Reading(f"{client}.connection.creation", connects, is_count=True),
        *(
            Reading(f"{client}.node.request.latency", _merged(broker.latency.values()), labels={"node_id": str(node)})
            for node, broker in metrics.brokers.items()
            if node >= 0
        ),
    ]


def api_latency(api: str, metrics: ClusterMetrics) -> Distribution:
    """Return the time from request to response of one API, of all brokers."""
    return _merged(broker.latency[api] for broker in metrics.brokers.values() if api in broker.latency)


def _merged(distributions: Iterable[Distribution]) -> Distribution:
    known = list(distributions)
    counts = tuple(map(sum, zip(*(one.counts for one in known), strict=True)))
    return Distribution(counts, sum(one.total_seconds for one in known))


class Subscription(NamedTuple):
    """What the brokers want of this client. `names`: prefixes of metrics; empty: none."""

    id: int
    names: tuple[str, ...]
    interval: float  # seconds
    codec: Compression
    bytes_max: int
    is_delta: bool

    @classmethod
    def of(cls, response: GetTelemetrySubscriptionsResponse) -> Subscription:
        known = [Compression(number) for number in response.accepted_compression_types if number in _CODECS]
        return cls(
            response.subscription_id,
            tuple(response.requested_metrics),
            max(0.0, response.push_interval_ms / 1000),
            known[0] if known else Compression.NONE,
            response.telemetry_max_bytes,
            response.delta_temporality,
        )

    def wants(self, name: str) -> bool:
        return any(prefix in _ALL or name.startswith(prefix) for prefix in self.names)


class Changes:
    """Counts and means since the last push, of readings that only grow."""

    def __init__(self) -> None:
        self._before: dict[tuple[str, tuple[tuple[str, str], ...]], tuple[float, float]] = {}

    def samples(self, readings: Iterable[Reading], seconds: float, *, is_delta: bool) -> list[Sample]:
        """Return what to push; `seconds` have passed since the last push."""
        samples: list[Sample] = []
        for name, value, is_count, labels, is_hourly in readings:
            full = _PREFIX + name
            if isinstance(value, Distribution):
                total, count = self._change(name, labels, value.total_seconds, value.count)
                if count:
                    samples.append(Sample(full + ".avg", total / count * 1000, labels=labels))
            elif is_count:
                change, _ = self._change(name, labels, value, 0)
                samples.append(Sample(full + ".total", change if is_delta else value, is_sum=True, labels=labels))
                rate = change / seconds if seconds > 0 else 0.0
                per, value = (".rate.per.hour", rate * 3600) if is_hourly else (".rate", rate)
                samples.append(Sample(full + per, value, labels=labels))
            else:
                samples.append(Sample(full, value, labels=labels))
        return samples

    def _change(self, name: str, labels: Mapping[str, str], first: float, second: float) -> tuple[float, float]:
        key = name, tuple(labels.items())
        before = self._before.get(key, (0.0, 0.0))
        self._before[key] = first, second
        return first - before[0], second - before[1]


class _State(Enum):
    SUBSCRIBE = auto()  # request the subscription at `due_at`
    WAIT = auto()  # sample at `due_at`
    SAMPLE = auto()  # being sampled, on the callback thread
    PUSH = auto()  # sampled
    IN_FLIGHT = auto()
    OVER = auto()


class TelemetryReporter:
    """The state machine that pushes a client's metrics. Methods without a note are for the loop's thread.

    `read` returns the client's metrics, and `resource` what describes it, such as its group. Both run by `dispatch`, on
    another thread; `post` calls a function on the loop's thread.
    """

    def __init__(
        self,
        read: Callable[[], Iterable[Reading]],
        resource: Callable[[], Mapping[str, str]],
        *,
        dispatch: Callable[..., object],
        post: Callable[..., object],
        random: Random,
        time_ms: Callable[[], int],
    ) -> None:
        self.instance_id: UUID | None = None
        self._read = read
        self._resource = resource
        self._dispatch = dispatch
        self._post = post
        self._random = random
        self._time_ms = time_ms
        self._own: dict[str, Callable[[], float]] = {}  # the program's metrics
        self._own_lock = threading.Lock()
        self._state = _State.SUBSCRIBE
        self._due_at = 0.0
        self._is_reached = False
        self._node: int | None = None  # the broker that gave the subscription
        self._subscription: Subscription | None = None
        self._readings: list[Reading] = []
        self._described: Mapping[str, str] = {}
        self._changes = Changes()
        self._began_ms = time_ms()
        self._pushed_at: float | None = None  # of the last push, or when the subscription came
        self._pushed_ms = self._began_ms
        self._is_last = False
        self._on_last: list[Callable[[], object]] = []
        self._on_id: list[Callable[[UUID | KwireError], object]] = []

    # -- from any thread

    def add(self, name: str, read: Callable[[], float]) -> None:
        """Push a metric of the program, a gauge, from now on."""
        with self._own_lock:
            self._own[name] = read

    def remove(self, name: str) -> None:
        """Push a metric of the program no more."""
        with self._own_lock:
            self._own.pop(name, None)

    # -- for the client

    def when_identified(self, on_id: Callable[[UUID | KwireError], object]) -> None:
        """Call `on_id` with the id that a broker gave this client, or with an error if none gives one."""
        if self.instance_id is not None:
            on_id(self.instance_id)
        elif self._state is _State.OVER:
            on_id(_no_telemetry())
        else:
            self._on_id.append(on_id)

    def end(self, on_done: Callable[[], object]) -> None:
        """Push once more, as the last time, then call `on_done`; at once if there is nothing to push to."""
        is_wanted = self._subscription is not None and self._subscription.names
        if self._is_last or not is_wanted or self._state in (_State.OVER, _State.SUBSCRIBE):
            self._stop()
            on_done()
            return
        self._is_last = True
        self._on_last.append(on_done)
        if self._state is _State.WAIT:
            self._due_at = 0.0

    # -- StateMachine

    def turn(self, now: float, view: ClusterView) -> Iterable[PendingRequest]:
        self._is_reached = bool(view.snapshot.brokers)
        if self._state is _State.WAIT and now >= self._due_at:
            self._state = _State.SAMPLE
            self._dispatch(self._sample)
        elif self._state is _State.PUSH:
            return self._push(now, view)
        elif self._state is _State.SUBSCRIBE and now >= self._due_at and self._is_reached:
            self._state = _State.IN_FLIGHT
            return [self._request_subscription(view)]
        return ()

    def deadline(self) -> float | None:
        if self._state is _State.PUSH:
            return 0.0
        is_timed = self._state is _State.WAIT or (self._state is _State.SUBSCRIBE and self._is_reached)
        return self._due_at if is_timed else None

    def topics(self) -> Collection[str]:
        return ()

    def closed(self, error: KwireError) -> None:
        self._stop(error)

    # -- the subscription

    def _request_subscription(self, view: ClusterView) -> PendingRequest:
        id = self.instance_id or _NO_ID
        return self._pending(
            GetTelemetrySubscriptionsRequest,
            lambda version: GetTelemetrySubscriptionsRequest(client_instance_id=id),
            self._subscribed,
            view,
        )

    def _pending(
        self,
        api: type[Request[Any]],
        build: Callable[[int], Request[Any]],
        on_done: Callable[[Response | KwireError | None, float], None],
        view: ClusterView,
    ) -> PendingRequest:
        node = self._node

        def done(response: Response | KwireError | None, now: float) -> None:
            self._node = pending.node if isinstance(response, Response) else None
            on_done(response, now)

        is_there = node is not None and node in view.snapshot.brokers and view.is_ready(node)
        pending = PendingRequest(ToNode(node) if is_there and node is not None else ToAny(), api, build, done)
        return pending

    def _subscribed(self, response: Response | KwireError | None, now: float) -> None:
        if not isinstance(response, GetTelemetrySubscriptionsResponse):
            self._failed(response, now)
            return
        if response.error_code:
            self._refused(response.error_code, now)
            return
        self.instance_id = response.client_instance_id
        for on_id in self._on_id:
            on_id(self.instance_id)
        self._on_id.clear()
        self._subscription = subscription = Subscription.of(response)
        if self._pushed_at is None:
            self._pushed_at = now
        # So that clients which started together do not push together.
        wait = subscription.interval * self._random.uniform(0.5, 1.5)
        self._go(_State.WAIT if subscription.names else _State.SUBSCRIBE, now + wait)

    # -- a push

    def _sample(self) -> None:
        """Read all metrics, on the callback thread."""
        readings: list[Reading] = []
        described: Mapping[str, str] = {}
        try:
            readings += self._read()
            described = self._resource()
        except Exception as error:  # the client was closed meanwhile
            _log.debug("the client's metrics cannot be read: %r", error)
        with self._own_lock:
            own = list(self._own.items())
        for name, read in own:
            try:
                value = float(read())
            except Exception:
                _log.exception("the metric %s cannot be read, and is not pushed", name)
                continue
            readings.append(Reading(name, value))
        with suppress(ClosedError):
            self._post(self._sampled, readings, described)

    def _sampled(self, readings: list[Reading], described: Mapping[str, str]) -> None:
        if self._state is _State.SAMPLE:
            self._readings, self._described = readings, described
            self._state = _State.PUSH

    def _push(self, now: float, view: ClusterView) -> list[PendingRequest]:
        subscription, readings = self._subscription, self._readings
        assert subscription is not None
        seconds = now - (now if self._pushed_at is None else self._pushed_at)
        samples = [
            sample
            for sample in self._changes.samples(readings, seconds, is_delta=subscription.is_delta)
            if subscription.wants(sample.name) and isfinite(sample.value)
        ]
        now_ms, is_last, id = self._time_ms(), self._is_last, self.instance_id
        since_ms = self._pushed_ms if subscription.is_delta else self._began_ms
        data = encode_metrics(
            samples, self._described, since_ms=since_ms, now_ms=now_ms, is_delta=subscription.is_delta
        )
        data = bytes(compress(subscription.codec, data))
        self._pushed_at, self._pushed_ms = now, now_ms
        if len(data) > subscription.bytes_max and not is_last:
            self._refused(ErrorCode.TELEMETRY_TOO_LARGE, now)
            return []
        self._state = _State.IN_FLIGHT
        assert id is not None

        def build(version: int) -> PushTelemetryRequest:
            return PushTelemetryRequest(
                client_instance_id=id, subscription_id=subscription.id, terminating=is_last,
                compression_type=int(subscription.codec), metrics=data,
            )  # fmt: skip

        def pushed(response: Response | KwireError | None, now: float) -> None:
            if is_last:
                self._stop()
            elif not isinstance(response, PushTelemetryResponse):
                self._failed(response, now)
            elif response.error_code:
                self._refused(response.error_code, now)
            else:
                self._go(_State.WAIT, now + subscription.interval)

        return [self._pending(PushTelemetryRequest, build, pushed, view)]

    # -- failures

    def _refused(self, code: int, now: float) -> None:
        """Go on after an error of a response, by the table of KIP-714."""
        interval = _PAUSE_SECONDS if self._subscription is None else self._subscription.interval
        if code in _NEVER_AGAIN:
            _log.warning("brokers refuse this client's metrics, so it pushes no more: %s", broker_error(code))
            self._stop()
        elif code in _SUBSCRIBE_AGAIN:
            self._go(_State.SUBSCRIBE, now)
        elif code in _NEXT_TIME and self._subscription is not None:
            self._go(_State.WAIT, now + interval)
        else:
            self._go(_State.SUBSCRIBE, now + _PAUSE_SECONDS)

    def _failed(self, error: object, now: float) -> None:
        if isinstance(error, UnsupportedVersionError):
            self._stop()
        else:
            _log.debug("metrics were not pushed: %s", error)
            self._go(_State.SUBSCRIBE, now + _PAUSE_SECONDS)

    def _go(self, state: _State, due_at: float) -> None:
        """Go on to a state, at once if the client is being closed: with the last push, or with none."""
        if not self._is_last:
            self._state, self._due_at = state, due_at
        elif state is _State.WAIT:
            self._state, self._due_at = state, 0.0
        else:
            self._stop()

    def _stop(self, error: KwireError | None = None) -> None:
        self._state, self._due_at = _State.OVER, inf
        on_last, self._on_last = self._on_last, []
        for on_done in on_last:
            on_done()
        on_id, self._on_id = self._on_id, []
        for on_id_one in on_id:
            on_id_one(error or _no_telemetry())


def _no_telemetry() -> KwireError:
    return UnsupportedVersionError(
        "no broker takes metrics of clients, so this client has no instance id",
        api="GetTelemetrySubscriptions",
        remedy="brokers take them from Kafka 3.7 on, with a plug-in (ClientTelemetry) among their metric.reporters",
    )


class Reporting(Protocol):
    """A client whose metrics are pushed."""

    def telemetry_readings(self) -> Iterable[Reading]:
        """Return the metrics. Called on the callback thread."""
        ...

    def telemetry_resource(self) -> Mapping[str, str]:
        """Return what describes the client: KIP-714's client_rack, group_id, transactional_id and so on."""
        ...


class ClientTelemetry:
    """The telemetry of one client. Keeps no reference to the client."""

    def __init__(self, client: Reporting, runtime: LoopThread, *, is_on: bool) -> None:
        self._runtime = runtime
        self._is_started = False
        self._start_lock = threading.Lock()  # an admin client is used by many threads
        self.reporter: TelemetryReporter | None = None
        if is_on:
            # A client that nobody refers to any more ends, although its loop thread runs.
            reference = weakref.ref(client)
            self.reporter = TelemetryReporter(
                lambda: () if (found := reference()) is None else found.telemetry_readings(),
                lambda: {} if (found := reference()) is None else found.telemetry_resource(),
                dispatch=runtime.dispatch,
                post=runtime.call_soon,
                random=Random(),
                time_ms=runtime.clock.time_ms,
            )

    def start(self) -> None:
        """Take part in the loop, which opens connections; at the first call."""
        if self.reporter is None or self._is_started:
            return
        with self._start_lock:
            if not self._is_started:
                self._runtime.add(self.reporter)
                self._is_started = True

    async def instance_id(self, waiter: Waiter, timeout: float) -> UUID:
        reporter, future = self.required(), Future[UUID]()

        def identified(id: UUID | KwireError) -> None:
            if isinstance(id, KwireError):
                future.set_exception(id)
            else:
                future.set_result(id)

        self.start()
        self._runtime.call_soon(reporter.when_identified, identified)
        return await waiter.result_of(future, timeout)

    async def end(self, waiter: Waiter, timeout: float | None) -> None:
        """Push for the last time, if something was ever pushed, and wait at most a second for it."""
        if self.reporter is None or not self._is_started:
            return
        ended = waiter.signal()
        with suppress(ClosedError):
            self._runtime.call_soon(self.reporter.end, ended.set)
            await ended.wait(_LAST_SECONDS if timeout is None else min(_LAST_SECONDS, max(0.0, timeout)))

    def required(self) -> TelemetryReporter:
        """Return the reporter. Raises ConfigurationError without one."""
        if self.reporter is None:
            raise ConfigurationError("telemetry is off", remedy="make the client with telemetry=True")
        return self.reporter


class TelemetryMethods(Unpicklable):
    """The methods of every client whose metrics are pushed. `_waiter` is how its face waits."""

    _waiter: Waiter
    _client_telemetry: ClientTelemetry
    _config: ClientConfig

    @property
    def _telemetry(self) -> ClientTelemetry:
        return self._client_telemetry

    @property
    def _request_timeout(self) -> float:
        """Return the client's request_timeout_ms, in seconds."""
        return self._config.request_timeout_ms / 1000

    def add_metric(self, name: str, read: Callable[[], float]) -> None:
        """Push a number of the program with the client's own metrics, to brokers that ask for it (KIP-1076).

        `read` returns the number; it is called on the callback thread, once for each push. Brokers see the metric as
        "org.apache.kafka." and its name, such as "app.orders.waiting". A metric of the same name is replaced.
        """
        if not isinstance(name, str) or not name:
            raise TypeError(f"name is {name!r:.60}: give the name of a metric, such as 'app.orders.waiting'")
        if not callable(read):
            raise TypeError(f"read is {read!r:.60}: give a function that returns a number")
        self._telemetry.required().add(name, read)

    def remove_metric(self, name: str) -> None:
        """Push this metric of the program no more; nothing if there is none."""
        self._telemetry.required().remove(name)

    async def _client_instance_id(self, timeout: float | None = None) -> UUID:
        """Return the id by which brokers know this client in its metrics (KIP-714); it stays the same until `close`.

        RequestTimeoutError after `timeout` seconds, by default request_timeout_ms; UnsupportedVersionError if the
        brokers take no metrics.
        """
        check_timeout(timeout)
        return await self._telemetry.instance_id(self._waiter, self._request_timeout if timeout is None else timeout)
