"""Whether a leader's log still has what was read: positions are checked against its leader epochs (KIP-320).

A leader election can cut records off a log: those that no in-sync replica had. A reader behind them would not notice,
because the new leader writes other records at the same offsets. So the reader remembers the leader epoch of the last
record before its position, and requests from each new leader where that epoch ends in its log (OffsetForLeaderEpoch).
An end before the position means that the log was truncated.

No error of this request says anything about the position: the request is repeated until there is a response, or the
error is one that repeating cannot cure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import NamedTuple

from kwire.cluster import Backoff
from kwire.cluster.metadata import NO_NODE
from kwire.cluster.requests import ClusterView, PendingRequest, ToNode
from kwire.consumer.routing import LeaderAndEpoch, leader_of
from kwire.errors import AuthorizationError, ErrorCode, KwireError, UnsupportedVersionError, broker_error
from kwire.protocol import Response
from kwire.protocol.messages.offset_for_leader_epoch import (
    CONSUMER,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

NO_EPOCH = -1
NO_END = -1
# Before this version brokers require the right to manage the cluster.
_VERSION_MIN = 3


class EpochEnd(NamedTuple):
    """The largest leader epoch in the log up to the requested one, and where it ends; (-1, -1) if there is none."""

    leader_epoch: int
    end_offset: int

    @property
    def is_known(self) -> bool:
        return self.leader_epoch != NO_EPOCH and self.end_offset != NO_END


@dataclass(slots=True, eq=False)
class ValidationRequest:
    """A leader epoch whose end is to be found. `on_done` gets None from brokers that do not know it (before 2.3)."""

    topic: str
    partition: int
    leader_epoch: int
    on_done: Callable[[EpochEnd | KwireError | None, LeaderAndEpoch, float], None]
    attempts: int = field(default=0, init=False)
    not_before: float = field(default=0.0, init=False)
    is_in_flight: bool = field(default=False, init=False)


class OffsetValidator:
    """A `StateMachine` that completes each `ValidationRequest` once. Every method belongs to the loop thread."""

    def __init__(self, *, backoff: Backoff, random: Random) -> None:
        self._backoff = backoff
        self._random = random
        self._requests: dict[ValidationRequest, None] = {}  # a set that keeps its order
        self._refresh_reason: str | None = None
        self._now = 0.0  # of the last turn
        self._is_closed = False

    def add(self, request: ValidationRequest) -> None:
        self._requests[request] = None

    def cancel(self, request: ValidationRequest) -> None:
        """Forget a request; a response to it is ignored."""
        self._requests.pop(request, None)

    def topics(self) -> Collection[str]:
        return {request.topic for request in self._requests}

    def deadline(self) -> float | None:
        """Return the next end of a back-off."""
        times = [one.not_before for one in self._requests if not one.is_in_flight and one.not_before > self._now]
        return min(times, default=None)

    def closed(self, error: KwireError) -> None:
        self._is_closed = True
        self._requests.clear()

    def turn(self, now: float, view: ClusterView) -> list[PendingRequest]:
        self._now = now
        if self._refresh_reason is not None:
            view.request_metadata(self._refresh_reason)
            self._refresh_reason = None
        by_node: dict[int, list[tuple[ValidationRequest, LeaderAndEpoch]]] = {}
        for request in list(self._requests):
            if request.is_in_flight or now < request.not_before:
                continue
            leader = leader_of(view.snapshot, request.topic, request.partition)
            if leader.node == NO_NODE:
                if leader.is_permanent and leader.error is not None:
                    self._finish(request, leader.error, leader, now)
                else:
                    view.request_metadata(f"{request.topic}-{request.partition} has no known leader")
            elif view.is_ready(leader.node):
                by_node.setdefault(leader.node, []).append((request, leader))
        return [call for node, entries in by_node.items() for call in self._build(node, entries, now, view)]

    def _build(
        self, node: int, entries: list[tuple[ValidationRequest, LeaderAndEpoch]], now: float, view: ClusterView
    ) -> list[PendingRequest]:
        try:
            is_known = view.version(node, OffsetForLeaderEpochRequest) >= _VERSION_MIN
        except UnsupportedVersionError:
            is_known = False
        if not is_known:
            for request, leader in entries:
                self._finish(request, None, leader, now)
            return []
        sent: dict[tuple[str, int], tuple[ValidationRequest, LeaderAndEpoch]] = {}
        for request, leader in entries:
            sent.setdefault((request.topic, request.partition), (request, leader))
        for request, _ in sent.values():
            request.is_in_flight = True
        return [
            PendingRequest(
                ToNode(node),
                OffsetForLeaderEpochRequest,
                partial(_request, list(sent.values())),
                partial(self._handle_response, sent),
            )
        ]

    def _handle_response(
        self,
        sent: Mapping[tuple[str, int], tuple[ValidationRequest, LeaderAndEpoch]],
        result: Response | KwireError | None,
        now: float,
    ) -> None:
        if self._is_closed:
            return
        missing = dict(sent)
        if isinstance(result, OffsetForLeaderEpochResponse):
            for topic in result.topics:
                for found in topic.partitions:
                    entry = missing.pop((topic.topic, found.partition), None)
                    if entry is None:
                        continue
                    request, leader = entry
                    if found.error_code:
                        self._retry_or_fail(request, self._error(request, found.error_code), leader, now)
                    else:
                        self._finish(request, EpochEnd(found.leader_epoch, found.end_offset), leader, now)
        for request, leader in missing.values():
            error = result if isinstance(result, KwireError) else None
            error = error or self._error(request, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            self._retry_or_fail(request, error, leader, now)

    def _error(self, request: ValidationRequest, code: int) -> KwireError:
        return broker_error(code, api="OffsetForLeaderEpoch", topic=request.topic, partition=request.partition)

    def _retry_or_fail(self, request: ValidationRequest, error: KwireError, leader: LeaderAndEpoch, now: float) -> None:
        request.is_in_flight = False
        if isinstance(error, AuthorizationError):
            self._finish(request, error, leader, now)
            return
        request.attempts += 1
        request.not_before = now + self._backoff.seconds(request.attempts, self._random)
        self._refresh_reason = f"validation of {request.topic}-{request.partition}: {error.message}"

    def _finish(
        self, request: ValidationRequest, result: EpochEnd | KwireError | None, leader: LeaderAndEpoch, now: float
    ) -> None:
        if request in self._requests:  # else it was cancelled
            del self._requests[request]
            request.on_done(result, leader, now)


def _request(entries: list[tuple[ValidationRequest, LeaderAndEpoch]], version: int) -> OffsetForLeaderEpochRequest:
    topics: dict[str, list[OffsetForLeaderEpochRequest.Topic.Partition]] = {}
    for request, leader in entries:
        topics.setdefault(request.topic, []).append(
            OffsetForLeaderEpochRequest.Topic.Partition(
                partition=request.partition,
                current_leader_epoch=leader.leader_epoch,
                leader_epoch=request.leader_epoch,
            )
        )
    return OffsetForLeaderEpochRequest(
        replica_id=CONSUMER,
        topics=[OffsetForLeaderEpochRequest.Topic(topic=name, partitions=found) for name, found in topics.items()],
    )
