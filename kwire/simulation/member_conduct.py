"""Check each request of a member of a group when it is written, and when its response has come.

throttle      a request is written to a broker on a connection that the broker has throttled (KIP-219)
old epoch     a request has a generation or a member epoch older than one that the member was given (I7)
early epoch   a commit names a generation of which the member has no assignment yet
heartbeat     a member in its group asks for neither a heartbeat nor a join for longer than the interval (I8); to send
              one may take a new connection
fetched back  a partition is fetched from an offset below what the program has got, and nobody sought back (I3)

A member that breaks these rules may still lose nothing, so they are checked apart from what its program sees. This
module knows the wire format, and nothing of the consumer's state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from uuid import UUID

from kwire.cluster import PendingRequest, Snapshot
from kwire.errors import KwireError
from kwire.protocol import Request, Response
from kwire.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kwire.protocol.messages.fetch import FetchRequest
from kwire.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kwire.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kwire.protocol.messages.leave_group import LeaveGroupRequest
from kwire.protocol.messages.offset_commit import OffsetCommitRequest
from kwire.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from kwire.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kwire.simulation.checker import Anomaly
from kwire.simulation.group_history import TopicPartition

# What a turn of the loop may take after a heartbeat is due, in seconds.
_SLACK = 0.05
_NOT_NAMED = UUID(int=0)

_EpochHeartbeat = ConsumerGroupHeartbeatRequest | ShareGroupHeartbeatRequest
_SIGNS_OF_LIFE = (
    HeartbeatRequest, ConsumerGroupHeartbeatRequest, ShareGroupHeartbeatRequest, JoinGroupRequest, LeaveGroupRequest,
)  # fmt: skip


class MemberConduct:
    """The checks of one process. `anomalies` are the rules that it broke.

    handed           the next offset that the program gets, of each partition of which it got a record
    interval         seconds between heartbeats of a classic member; other coordinators say theirs
    checks_interval  whether nothing can hold up a heartbeat in this run
    """

    def __init__(
        self,
        name: str,
        now: Callable[[], float],
        snapshot: Callable[[], Snapshot],
        handed: Mapping[TopicPartition, int],
        *,
        interval: float,
        checks_interval: bool,
    ) -> None:
        self.anomalies: list[Anomaly] = []
        self._name = name
        self._now = now
        self._snapshot = snapshot
        self._handed = handed
        self._interval = interval
        self._checks_interval = checks_interval
        self._muted_until: dict[tuple[int, str], float] = {}
        self._epoch = -1  # the newest that the member was given, of its membership of now
        self._has_assignment = True  # of this epoch
        self._assigned_epoch = -1  # the newest with an assignment
        self._next_heartbeat: float | None = None  # when one is due at the latest; None while none has to be sent
        self._signs_of_life = 0  # heartbeats, joins and leaves that were asked for, without a response

    def watch(self, call: PendingRequest) -> PendingRequest:
        """Return the request with hooks that check what it writes and how it ends."""
        build, on_done = call.build, call.on_done
        is_sign_of_life = issubclass(call.api, _SIGNS_OF_LIFE)
        if is_sign_of_life:
            self._check_pace()
            self._signs_of_life += 1

        def watched_build(version: int) -> Request[Response]:
            request = build(version)
            self._writes(request, call)
            return request

        def watched_done(result: Response | KwireError | None, now: float) -> None:
            self._check_pace()
            self._signs_of_life -= is_sign_of_life
            throttle_ms: int = getattr(result, "throttle_time_ms", 0)
            if throttle_ms:
                self._muted_until[call.node, call.purpose] = now + throttle_ms / 1000
            self._gets(result, throttle_ms / 1000)
            on_done(result, now)

        call.build, call.on_done = watched_build, watched_done
        return call

    def _find(self, kind: str, what: str) -> None:
        self.anomalies.append(Anomaly(kind, f"{self._name} at {self._now():.3f} s: {what}"))

    # -- requests

    def _writes(self, request: Request[Response], call: PendingRequest) -> None:
        name = type(request).__name__
        if self._now() < self._muted_until.get((call.node, call.purpose), 0.0):
            self._find("throttle", f"{name} to broker {call.node}, which throttles this connection")
        self._check_pace()
        match request:
            case JoinGroupRequest() | LeaveGroupRequest():
                self._epoch, self._next_heartbeat = -1, None
            case ConsumerGroupHeartbeatRequest() | ShareGroupHeartbeatRequest() if request.member_epoch <= 0:
                self._epoch, self._next_heartbeat = -1, None
            case HeartbeatRequest() | SyncGroupRequest():
                self._check_epoch(name, request.generation_id)
            case ConsumerGroupHeartbeatRequest() | ShareGroupHeartbeatRequest():
                self._check_epoch(name, request.member_epoch)
            case OffsetCommitRequest() if request.generation_id_or_member_epoch >= 0:
                self._check_commit(request.generation_id_or_member_epoch)
            case FetchRequest():
                self._check_fetch(request)
            case _:
                pass
        if isinstance(request, HeartbeatRequest | _EpochHeartbeat):
            self._next_heartbeat = None  # until its response

    def _check_epoch(self, name: str, epoch: int) -> None:
        if epoch < self._epoch:
            self._find("old epoch", f"{name} with {epoch}, and the member was given {self._epoch}")

    def _check_commit(self, epoch: int) -> None:
        if self._has_assignment:
            self._check_epoch("OffsetCommit", epoch)
        elif epoch == self._epoch != self._assigned_epoch:
            self._find("early epoch", f"OffsetCommit with {epoch}, and the member has no assignment of it")

    def _check_pace(self) -> None:
        if not self._checks_interval or self._next_heartbeat is None or self._signs_of_life:
            return
        if self._now() > self._next_heartbeat + _SLACK:
            self._find("heartbeat", f"none since it was due at {self._next_heartbeat:.3f} s")
            self._next_heartbeat = None

    def _check_fetch(self, request: FetchRequest) -> None:
        for key, offset in _fetched(request, self._snapshot()):
            handed = self._handed.get(key, -1)
            if offset < handed:
                self._find("fetched back", f"{key[0]}-{key[1]} from {offset}, and the program got all before {handed}")

    # -- responses

    def _gets(self, result: Response | KwireError | None, throttled: float) -> None:
        match result:
            case JoinGroupResponse() if not result.error_code:
                self._epoch, self._has_assignment = result.generation_id, False
                self._next_heartbeat = self._now() + self._interval + throttled
            case SyncGroupResponse() if not result.error_code:
                self._has_assignment, self._assigned_epoch = True, self._epoch
            case HeartbeatResponse() if not result.error_code and self._epoch >= 0:  # else it joins by now
                self._next_heartbeat = self._now() + self._interval + throttled
            case ConsumerGroupHeartbeatResponse() | ShareGroupHeartbeatResponse() if (
                not result.error_code and result.member_epoch > 0
            ):
                self._epoch = max(self._epoch, result.member_epoch)
                self._next_heartbeat = self._now() + result.heartbeat_interval_ms / 1000 + throttled
            case _:
                pass


def _fetched(request: FetchRequest, snapshot: Snapshot) -> Iterator[tuple[TopicPartition, int]]:
    for topic in request.topics:
        name = topic.topic if topic.topic_id == _NOT_NAMED else snapshot.topic_name(topic.topic_id)
        for one in topic.partitions:
            yield (name or "", one.partition), one.fetch_offset
