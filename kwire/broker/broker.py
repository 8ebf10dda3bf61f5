"""One broker: it finds the handler of a request and applies faults (Kafka's KafkaApis).

A broker has no socket and no clock. What a request means is in `handlers`; what the brokers of a cluster share is in
`cluster_state`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING, Any

from kwire.broker.cluster_state import ClusterState, Node
from kwire.broker.faults import (
    Answer,
    ApplyLate,
    Corrupt,
    Cut,
    Delay,
    Disconnect,
    Fault,
    HalfOpen,
    Mute,
    Refuse,
    Reset,
    Throttle,
    Trickle,
)
from kwire.broker.request_context import (
    CloseConnection,
    Completion,
    DamagedReply,
    ForgetConnection,
    Reply,
    RequestContext,
    ResetConnection,
    SlowReply,
    TruncatedReply,
)
from kwire.errors import BrokerError, ConfigurationError, ErrorCode, broker_error
from kwire.protocol import ApiKey
from kwire.protocol.schema import Response

if TYPE_CHECKING:
    from kwire.broker.handlers.handler import Handler


class Broker:
    """The broker `id` of a cluster. `handlers` are those of `handlers.table`, which import this file."""

    def __init__(self, id: int, cluster: ClusterState, handlers: Mapping[ApiKey, Handler[Any]]) -> None:
        self.id = id
        self.cluster = cluster
        self._handlers = handlers

    @property
    def node(self) -> Node:
        """This broker as the cluster knows it."""
        return self.cluster.nodes[self.id]

    def coordinates(self, key: str) -> bool:
        """Return whether this broker is the coordinator of a group or a transactional id."""
        return self.cluster.coordinator_of(key) == self.id

    def check_coordinates(self, key: str) -> None:
        """Raise NOT_COORDINATOR unless this broker is the coordinator of a group or a transactional id."""
        if not self.coordinates(key):
            raise broker_error(ErrorCode.NOT_COORDINATOR, f"broker {self.id} does not coordinate {key}")

    def handle(self, context: RequestContext, now: float) -> None:
        """Handle a request. It completes now, later (by a timer or a change of state) or, by a fault, never."""
        api = ApiKey(context.request.API_KEY)
        handler = self._handlers[api]
        self.cluster.requests[api] += 1
        faults = self.cluster.faults
        fault = None
        if faults:
            partitions = handler.named_partitions(self, context.request)
            fault = faults.match(api, self.id, context.client_id, partitions, context)
        if fault is None:
            self._run(handler, context, now)
        else:
            self._run_with_fault(fault, handler, context, now)

    def _run(self, handler: Handler[Any], context: RequestContext, now: float) -> None:
        if not self.node.is_up:  # the broker was stopped while a fault delayed the request
            return
        response: Response | None
        try:
            handler.authorize(context.request, context.access, context.version)
        except BrokerError as error:
            response = handler.error_response(context.request, error.code, context.version)
        else:
            response = handler.handle(self, context.request, context, now)
        if response is not None:
            context.respond(response)

    def _apply(self, handler: Handler[Any], context: RequestContext, now: float) -> None:
        """Run the handler and drop its response."""
        self._run(handler, context.with_callback(lambda completion: None), now)

    def _run_with_fault(self, fault: Fault, handler: Handler[Any], context: RequestContext, now: float) -> None:
        match fault.effect:
            case Refuse(code, applied):
                self._refuse(fault, handler, context, code, applied, now)
            case Disconnect(applied):
                if applied:
                    self._apply(handler, context, now)
                context.complete(CloseConnection())
            case Reset(applied):
                if applied:
                    self._apply(handler, context, now)
                context.complete(ResetConnection())
            case HalfOpen(applied):
                if applied:
                    self._apply(handler, context, now)
                context.complete(ForgetConnection())
            case Cut(keep_bytes):
                truncated = context.with_callback(
                    lambda completion: context.complete(_truncate(completion, keep_bytes))
                )
                self._run(handler, truncated, now)
            case Corrupt(what):
                corrupted = context.with_callback(
                    lambda completion: context.complete(_corrupt(completion, what, self.cluster.random))
                )
                self._run(handler, corrupted, now)
            case Trickle(rate):
                slow = context.with_callback(lambda completion: context.complete(_slow(completion, rate)))
                self._run(handler, slow, now)
            case Delay():
                self._delay(handler, context, now + fault.delay_seconds(), fault.effect.applied, now)
            case Mute(applied):
                if applied:
                    self._apply(handler, context, now)
            case Throttle(ms):
                until = now + ms / 1000
                throttled = context.with_callback(lambda completion: context.complete(_throttle(completion, ms, until)))
                self._run(handler, throttled, now)
            case Answer(change):
                changed = context.with_callback(
                    lambda completion: context.complete(_change(completion, change, context.request))
                )
                self._run(handler, changed, now)
            case ApplyLate(ms):
                self.cluster.timers.at(now + ms / 1000, lambda now: self._apply(handler, context, now))
                context.complete(CloseConnection())

    def _refuse(
        self, fault: Fault, handler: Handler[Any], context: RequestContext, code: int, applied: bool, now: float
    ) -> None:
        error_response = handler.error_response
        if applied:
            self._apply(handler, context, now)
            error_response = handler.applied_error_response or error_response
        elif fault.names_partition and handler.supports_partition_errors:
            context.partition_fault = fault.error_for
            self._run(handler, context, now)
            return
        context.respond(error_response(context.request, code, context.version))

    def _delay(self, handler: Handler[Any], context: RequestContext, until: float, applied: bool, now: float) -> None:
        timers = self.cluster.timers
        if not applied:
            timers.at(until, lambda now: self._run(handler, context, now))
            return

        def complete_later(completion: Completion) -> None:
            timers.at(until, lambda _: context.complete(completion))

        self._run(handler, context.with_callback(complete_later), now)


def _throttle(completion: Completion, ms: int, until: float) -> Completion:
    if not isinstance(completion, Reply):
        return completion
    response: Any = completion.response
    if hasattr(response, "throttle_time_ms"):
        response.throttle_time_ms = ms
    return Reply(response, until)


def _change(completion: Completion, change: Callable[[Any, Any], Response | None], request: Any) -> Completion:
    if not isinstance(completion, Reply):
        return completion
    response = completion.response
    try:
        changed = change(request, response)
    except Exception as error:
        why = f"the function of Answer raised {error!r} for a {type(request).__name__}"
        raise ConfigurationError(why, remedy="let it handle every request that the fault matches") from error
    if changed is not None and not isinstance(changed, type(response)):
        why = f"the function of Answer returned {changed!r} for a {type(request).__name__}"
        raise ConfigurationError(
            why, remedy=f"return a {type(response).__name__}, or None for the one that it was given"
        )
    return Reply(changed or response, completion.mute_until)


def _corrupt(completion: Completion, what: str, random: Random) -> Completion:
    if not isinstance(completion, Reply):
        return completion
    response = completion.response
    if what == "records":
        _damage_records(response)
        return Reply(response)
    damages: dict[str, Callable[[bytes], bytes]] = {
        "correlation": lambda frame: frame[:4] + bytes([frame[4] ^ 0x40]) + frame[5:],
        "length": lambda frame: b"\x7f\xff\xff\xff" + frame[4:],
        "garbage": lambda frame: frame[:4] + random.randbytes(len(frame) - 4),
        "duplicate": lambda frame: frame + frame,
    }
    return DamagedReply(response, damages[what])


def _damage_records(response: Any) -> None:
    """Flip a bit of the last byte of each partition's records, where a Fetch response has any."""
    for topic in getattr(response, "responses", None) or ():
        for partition in getattr(topic, "partitions", None) or ():
            if getattr(partition, "records", None):
                records = bytes(partition.records)
                partition.records = records[:-1] + bytes([records[-1] ^ 1])


def _slow(completion: Completion, rate: int) -> Completion:
    return SlowReply(completion.response, rate) if isinstance(completion, Reply) else completion


def _truncate(completion: Completion, keep_bytes: int) -> Completion:
    return TruncatedReply(completion.response, keep_bytes) if isinstance(completion, Reply) else completion
