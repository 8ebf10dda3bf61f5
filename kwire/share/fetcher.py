"""The share consumer's state machine: when to fetch from which broker, and which acknowledgements go along.

Nothing is fetched unless a poll wants records and has none: each acquired record has a lock that ends, and a delivery
that counts. One request per broker is in flight, ShareFetch or ShareAcknowledge. A ShareFetch that is due carries
acknowledgements, otherwise a ShareAcknowledge does; renewals always need a ShareAcknowledge, since a ShareFetch waits
at the broker. Acknowledgements go to the broker that the records came from, and fail if it no longer leads the
partition or has dropped the session: the locks were its own (KIP-932).

    batch_optimized   all brokers get a request at once, and send whole batches
    record_limit      one broker after the other gets a request, so that no more than max_poll_records are acquired

Kafka's class is ShareConsumeRequestManager. Everything here belongs to the loop thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from random import Random

from kwire.cluster import Backoff
from kwire.cluster.metadata import Broker, CurrentLeader
from kwire.cluster.outage import Outage
from kwire.cluster.requests import ClusterView, PendingRequest, ToNode
from kwire.errors import (
    BrokerError,
    ClosedError,
    ErrorCode,
    KwireError,
    UnsupportedVersionError,
    broker_error,
)
from kwire.protocol import Response
from kwire.protocol.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from kwire.protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
from kwire.share.acknowledgements import Acknowledgements, AcknowledgeType, PendingAcknowledgements, SharePartition
from kwire.share.acquired import AcquiredRange, AcquiredRecords
from kwire.share.buffer import ShareBuffer
from kwire.share.membership import STABLE_SINCE, no_share_groups
from kwire.share.options import ACQUIRE_MODES, ShareConsumerOptions
from kwire.share.share_session import CLOSE_EPOCH, REOPEN_CODES, ShareSession, acknowledge_topics

MODES_SINCE = 2  # acquire modes (KIP-1206) and renewals (KIP-1222)
# Acknowledgements that the caller has chosen are sent, and locks renewed, when this part of a lock has passed.
_RENEW_AT = 0.6
_CHECK_EVERY = 0.1
# In record_limit a broker without records may hold up the others for this part of max_wait_ms at most.
_WAIT_MIN_MS = 10
# Errors after which the leader of a partition is looked up; acknowledgements are not sent again, since the next leader
# has no locks of this one.
_LEADER_CODES = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
_MOVED_CODES = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


@dataclass(slots=True, eq=False)
class _Node:
    """What is known of one broker."""

    session: ShareSession = field(default_factory=ShareSession)
    in_flight: list[PendingAcknowledgements] | None = None  # of the request in flight; None: there is none
    waiting: list[PendingAcknowledgements] = field(default_factory=list)
    attempts: int = 0  # failures in a row
    not_before: float = 0.0
    last_fetch: int = 0  # for taking turns
    demand: int = 0  # the demand of its last request
    is_closed: bool = False  # the last request of the session was sent


@dataclass(frozen=True, slots=True)
class _Demand:
    """What a poll wants: up to `records`, and until when a broker may wait for them."""

    number: int
    records: int
    until: float


class ShareFetcher:
    """A `StateMachine`. `on_result` gets the results of acknowledgements that the fetcher sends by itself."""

    def __init__(
        self, options: ShareConsumerOptions, buffer: ShareBuffer, *, backoff: Backoff, random: Random,
        clock_now: Callable[[], float], request_timeout_ms: int,
        on_result: Callable[[PendingAcknowledgements, KwireError | None, float], None],
    ) -> None:  # fmt: skip
        self._options = options
        self._buffer = buffer
        self._backoff = backoff
        self._random = random
        self._clock_now = clock_now
        self._request_timeout_ms = request_timeout_ms
        self._on_result = on_result
        self.member_id = ""
        self.lock_ms: int | None = None  # as the newest response has it; any thread may read it
        self.counts = dict.fromkeys(("fetches", "acknowledge_requests", "acquired_records", "sessions_opened"), 0)
        self._wanted: dict[SharePartition, None] = {}  # the assignment, in the order of the next request
        self._nodes: dict[int, _Node] = {}
        self._demand: _Demand | None = None
        self._demands = 0
        self._posted = 0  # acquired records
        self._fetches = 0
        self._held: dict[AcquiredRecords, float] = {}  # acquired -> when to look at its locks
        self._reported: set[int] = set()  # nodes whose fatal error the caller has got
        self._refused: set[SharePartition] = set()  # partitions whose error the caller has got
        self._refresh_reason: str | None = None
        self._outage = Outage(self._request_timeout_ms)
        self._deadline: float | None = None
        self._closing: tuple[float, Callable[[], None]] | None = None
        self._is_closed = False

    # -- commands

    def assign(self, partitions: Collection[SharePartition]) -> None:
        """Fetch these partitions from now on."""
        self._wanted = {
            **{key: None for key in self._wanted if key in partitions},
            **dict.fromkeys(partitions),
        }
        self._refused.intersection_update(self._wanted)

    def lose(self, error: KwireError) -> None:
        """Drop everything acquired: the membership has ended."""
        for acquired in self._held:
            acquired.lose()
        for node in self._nodes.values():
            node.session.reset()

    def fetch(self, records: int, until: float, taken: int) -> None:
        """Fetch up to this many records, once; a broker without any waits until `until`, at most max_wait_ms.

        `taken` is `ShareBuffer.taken` when the caller had nothing left: if more was posted since, nothing is fetched.
        """
        if taken == self._posted and self._closing is None:
            self._demands += 1
            self._demand = _Demand(self._demands, records, until)

    def acknowledge(self, pending: Iterable[PendingAcknowledgements]) -> None:
        """Send acknowledgements, with the next fetch if one is due, else at once."""
        for one in pending:
            self._node(one.node).waiting.append(one)

    def close(self, pending: Iterable[PendingAcknowledgements], deadline: float, on_done: Callable[[], None]) -> None:
        """Send the last acknowledgements, and end all sessions. `on_done` is called once, at the latest at `deadline`.

        With its last request each broker releases what else was acquired from it.
        """
        self.acknowledge(pending)
        self._demand = None
        self._closing = deadline, on_done

    @property
    def assigned_count(self) -> int:
        return len(self._wanted)

    def obstacles(self, now: float, view: ClusterView) -> list[tuple[str, KwireError | None]]:
        """Return what keeps each broker from being fetched from, and the last failure."""
        found: list[tuple[str, KwireError | None]] = []
        for key in self._wanted:
            name = view.snapshot.topic_name(key.topic_id)
            if name is None:
                found.append((f"the metadata does not have the topic with id {key.topic_id} yet", None))
            elif view.snapshot.leader(name, key.partition) not in view.snapshot.brokers:
                found.append((f"{name}-{key.partition} has no leader", None))
        for node_id, node in self._nodes.items():
            failure = view.failure(node_id)
            if failure is not None:
                found.append((f"broker {view.describe(node_id)} cannot be reached", failure))
            elif now < node.not_before:
                found.append(
                    (f"broker {view.describe(node_id)} gets the next request in {node.not_before - now:.3g} s", None)
                )
        return found

    # -- StateMachine

    def topics(self) -> Collection[str]:
        return ()  # the membership needs the topics of the subscription

    def deadline(self) -> float | None:
        return self._deadline

    def closed(self, error: KwireError) -> None:
        self._is_closed = True
        for node in self._nodes.values():
            self._fail(node.waiting, error, self._clock_now())
            node.waiting = []
        for acquired in self._held:
            acquired.lose()
        self._held.clear()
        self._buffer.close(error)
        self._end_close()

    def turn(self, now: float, view: ClusterView) -> list[PendingRequest]:
        self._deadline = None
        if self._refresh_reason is not None:
            view.request_metadata(self._refresh_reason)
            self._refresh_reason = None
        self._check_locks(now)
        self._fail_moved(now, view)
        requests: list[PendingRequest] = []
        if self._closing is not None:
            for node_id, node in self._nodes.items():
                self._turn_closing(node_id, node, now, view, requests)
            self._check_closed(now)
            return requests
        if self._demand is not None or any(node.waiting for node in self._nodes.values()):
            unreachable = self._outage.to_report(now, view, self._wake_at)
            if unreachable is not None:
                self._buffer.post(unreachable)
        wanted = self._wanted_by_node(view)
        chosen = self._choose_nodes(wanted, now, view)
        for node_id, node in self._nodes.items():
            if node.in_flight is None:
                request = self._next_request(node_id, node, wanted.get(node_id), node_id in chosen, now, view)
                if request is not None:
                    requests.append(request)
        if self._demand is not None and self._demand.until <= now:
            self._demand = None  # no poll waits: what is not in flight by now is not fetched
        return requests

    def _wake_at(self, time: float) -> None:
        if self._deadline is None or time < self._deadline:
            self._deadline = time

    def _node(self, node_id: int) -> _Node:
        return self._nodes.setdefault(node_id, _Node())

    # -- choosing what to send

    def _wanted_by_node(self, view: ClusterView) -> dict[int, list[SharePartition]]:
        """Return the assigned partitions by their leaders; those without one need newer metadata."""
        wanted: dict[int, list[SharePartition]] = {}
        if self._demand is None:
            return wanted
        snapshot = view.snapshot
        for key in self._wanted:
            name = snapshot.topic_name(key.topic_id)
            leader = snapshot.leader(name, key.partition) if name is not None else -1
            if leader in snapshot.brokers:
                wanted.setdefault(leader, []).append(key)
                self._node(leader)
            else:  # the session that has it keeps it: an election or a new assignment follows
                for node_id, node in self._nodes.items():
                    if key in node.session.partitions:
                        wanted.setdefault(node_id, []).append(key)
                view.request_metadata(f"an assigned partition of {name or key.topic_id} has no known leader")
        return wanted

    def _choose_nodes(self, wanted: dict[int, list[SharePartition]], now: float, view: ClusterView) -> Collection[int]:
        """Return the nodes to fetch from for the present demand."""
        demand = self._demand
        if demand is None:
            return ()
        due = []
        for node_id, node in self._nodes.items():
            is_concerned = node_id in wanted or (node.session.is_open and len(node.session.partitions) > 0)
            if node.in_flight is not None or node.demand == demand.number or not is_concerned:
                continue
            if now < node.not_before:
                self._wake_at(node.not_before)
            else:
                due.append(node_id)
        if self._options.acquire_mode == "batch_optimized":
            return due
        if any(node.in_flight is not None and node.demand == demand.number for node in self._nodes.values()):
            return ()
        ready = [node_id for node_id in due if node_id in wanted and self._is_ready(node_id, view)]
        return sorted(ready, key=lambda node_id: self._nodes[node_id].last_fetch)[:1]

    def _next_request(
        self, node_id: int, node: _Node, wanted: list[SharePartition] | None, is_chosen: bool, now: float,
        view: ClusterView,
    ) -> PendingRequest | None:  # fmt: skip
        if not is_chosen and not node.waiting:
            return None
        if not self._is_ready(node_id, view):
            if node.session.is_open:
                self._lost_session(node_id, node)  # the connection has ended, and the session with it
            if not node.session.is_open and node.waiting:
                failure = view.failure(node_id)
                if failure is not None:
                    waiting, node.waiting = node.waiting, []
                    self._fail(waiting, failure, now)
            return None
        if node.waiting and not node.session.is_open:
            self._fail_reopening(node, now)
        due = self._due(node, now)
        has_renewals = any(one.acknowledgements.has_renewals for one in due)
        try:
            if due and (has_renewals or not is_chosen or not wanted):
                return self._acknowledge_request(node_id, node, due, now, view, CLOSE_EPOCH + 1)
            if is_chosen:
                return self._fetch_request(node_id, node, wanted or [], due, now, view)
        except UnsupportedVersionError as error:
            self._report_node(node_id, error)
            node.not_before = now + self._request_timeout_ms / 1000
            node.waiting = [one for one in node.waiting if one not in due]
            self._fail(due, error, now)
        return None

    def _due(self, node: _Node, now: float) -> list[PendingAcknowledgements]:
        """Return the acknowledgements that can be sent now; the others back off."""
        for one in node.waiting:
            if one.not_before > now:
                self._wake_at(one.not_before)
        return [one for one in node.waiting if one.not_before <= now]

    def _is_ready(self, node_id: int, view: ClusterView) -> bool:
        if view.is_ready(node_id):
            self._reported.discard(node_id)
            return True
        failure = view.failure(node_id)
        if failure is not None and not failure.is_retriable:
            self._report_node(node_id, failure)
        return False

    def _report_node(self, node_id: int, error: KwireError) -> None:
        if node_id not in self._reported:
            self._reported.add(node_id)
            self._buffer.post(error)

    # -- requests

    def _fetch_request(
        self, node_id: int, node: _Node, wanted: list[SharePartition], due: list[PendingAcknowledgements],
        now: float, view: ClusterView,
    ) -> PendingRequest | None:  # fmt: skip
        demand, options = self._demand, self._options
        assert demand is not None
        version = self._version(node_id, ShareFetchRequest, view)
        is_limited = options.acquire_mode == "record_limit"
        if is_limited and version < MODES_SINCE:
            raise UnsupportedVersionError(
                'the broker has no acquire_mode "record_limit"', remedy='use Kafka 4.2, or "batch_optimized"',
                broker=view.describe(node_id), api="ShareFetch", version=version,
            )  # fmt: skip
        node.demand = demand.number
        if not wanted and not node.session.has_stale(()):
            return None
        if not node.session.is_open:
            self.counts["sessions_opened"] += 1
        wait_ms = round(min(options.max_wait_ms, max(0.0, (demand.until - now) * 1000)))
        if is_limited and wait_ms:  # another broker may have records
            wait_ms = max(min(wait_ms, _WAIT_MIN_MS), wait_ms // max(1, len(self._nodes)))
        if not wanted:
            wait_ms = 0
        self._fetches += 1
        node.last_fetch = self._fetches
        self.counts["fetches"] += 1
        change = node.session.fetch(wanted, self._begin(node, due, now))
        max_records = demand.records if wanted else 0

        def build(version: int) -> ShareFetchRequest:
            return ShareFetchRequest(
                group_id=options.group_id,
                member_id=self.member_id,
                share_session_epoch=change.epoch,
                max_wait_ms=wait_ms,
                min_bytes=options.min_bytes,
                max_bytes=options.max_bytes,
                max_records=max_records,
                batch_size=max_records,
                share_acquire_mode=ACQUIRE_MODES[options.acquire_mode],
                topics=change.request_topics(),
                forgotten_topics_data=change.request_forgotten(),
            )

        return PendingRequest(
            ToNode(node_id),
            ShareFetchRequest,
            build,
            partial(self._handle_fetch_response, node_id, version, view),
            timeout_ms=self._request_timeout_ms + wait_ms,
        )

    def _acknowledge_request(
        self, node_id: int, node: _Node, due: list[PendingAcknowledgements], now: float, view: ClusterView,
        epoch: int, timeout_ms: int | None = None,
    ) -> PendingRequest:  # fmt: skip
        """Return a ShareAcknowledge; epoch -1 closes the session, any other means the session's."""
        version = self._version(node_id, ShareAcknowledgeRequest, view)
        self.counts["acknowledge_requests"] += 1
        acknowledgements = self._begin(node, due, now)
        is_renew = any(each.has_renewals for each in acknowledgements.values())
        topics = acknowledge_topics(acknowledgements)
        session_epoch = CLOSE_EPOCH if epoch == CLOSE_EPOCH else node.session.epoch

        def build(version: int) -> ShareAcknowledgeRequest:
            return ShareAcknowledgeRequest(
                group_id=self._options.group_id,
                member_id=self.member_id,
                share_session_epoch=session_epoch,
                is_renew_ack=is_renew and version >= MODES_SINCE,
                topics=topics,
            )

        done = partial(self._handle_acknowledge_response, node_id, version, view)
        return PendingRequest(ToNode(node_id), ShareAcknowledgeRequest, build, done, timeout_ms=timeout_ms)

    def _version(
        self, node_id: int, api: type[ShareFetchRequest] | type[ShareAcknowledgeRequest], view: ClusterView
    ) -> int:
        try:
            version = view.version(node_id, api)
        except UnsupportedVersionError as error:
            raise no_share_groups(error.at(broker=view.describe(node_id))) from error
        if version < STABLE_SINCE:
            name = api.__name__.removesuffix("Request")
            raise no_share_groups(
                UnsupportedVersionError("v0 is early access", broker=view.describe(node_id), api=name)
            )
        return version

    def _begin(
        self, node: _Node, due: list[PendingAcknowledgements], now: float
    ) -> dict[SharePartition, Acknowledgements]:
        """Move acknowledgements from waiting to in flight; return them by partition, the later ones winning."""
        node.waiting = [one for one in node.waiting if one not in due]
        node.in_flight = due
        merged: dict[SharePartition, Acknowledgements] = {}
        for one in due:
            one.sent_at = now
            before = merged.get(one.key)
            if before is None:
                merged[one.key] = one.acknowledgements
            else:
                both = Acknowledgements()
                both.update(before)
                both.update(one.acknowledgements)
                merged[one.key] = both
        return merged

    # -- responses

    def _handle_fetch_response(
        self, node_id: int, version: int, view: ClusterView, result: Response | KwireError | None, now: float
    ) -> None:
        node, sent = self._finish(node_id)
        if not self._is_success(node_id, node, sent, "ShareFetch", view, result, now):
            return
        assert isinstance(result, ShareFetchResponse)
        results: dict[SharePartition, tuple[int, str | None]] = {}
        hints: list[CurrentLeader] = []
        posted, has_errors = self._posted, False
        for topic in result.responses:
            for response in topic.partitions:
                key = SharePartition(topic.topic_id, response.partition_index)
                results[key] = response.acknowledge_error_code, response.acknowledge_error_message
                name = view.snapshot.topic_name(key.topic_id)
                if response.error_code:
                    has_errors = True
                    self._handle_partition_error(key, name, response.error_code, response.error_message, view)
                if {response.error_code, response.acknowledge_error_code} & _MOVED_CODES:
                    hints += _hints(key, name, response.current_leader)
                if response.acquired_records and name is not None and not response.error_code:
                    self._post(node_id, key, name, response, version, view, now)
        _update_leaders(hints, result, view)
        if self._posted != posted:
            node.attempts = 0
            self._demand = None  # one response per broker: those in flight may add theirs
        elif has_errors:  # a broker responds to a fetch with errors at once
            node.attempts += 1
            self._back_off(node, now)
        else:
            node.attempts = 0
            if self._demand is not None and node.demand == self._demand.number:
                self._next_round(now)
        self._resolve(node, sent, results, "ShareFetch", now)

    def _post(
        self, node_id: int, key: SharePartition, name: str, response: ShareFetchResponse.Topic.Partition,
        version: int, view: ClusterView, now: float,
    ) -> None:  # fmt: skip
        lock_seconds = (self.lock_ms or 30_000) / 1000
        acquired = AcquiredRecords(
            name,
            key,
            node_id,
            view.describe(node_id),
            [AcquiredRange(each.first_offset, each.last_offset, each.delivery_count)
             for each in response.acquired_records],
            memoryview(response.records or b""),
            lock_deadline=now + lock_seconds,
            now=self._clock_now,
            is_explicit=self._options.is_explicit,
            can_renew=version >= MODES_SINCE,
            check_crc=self._options.check_crc,
        )  # fmt: skip
        if any(each.delivery_count > 1 for each in response.acquired_records):  # perhaps this consumer had them
            for earlier in self._held:
                if earlier.key == key:
                    earlier.lose_to(acquired)
        self.counts["acquired_records"] += acquired.acquired_count
        self._held[acquired] = now + _RENEW_AT * lock_seconds
        if key in self._wanted:  # the next request names it last, so that none starves
            del self._wanted[key]
            self._wanted[key] = None
        self._posted += 1
        self._buffer.post(acquired)

    def _next_round(self, now: float) -> None:
        """Send the same broker another request when all have had their turn, until the poll ends."""
        demand = self._demand
        assert demand is not None
        if demand.until <= now:
            self._demand = None
        elif self._options.acquire_mode == "batch_optimized" or all(
            node.demand == demand.number for node in self._nodes.values()
        ):
            self._demands += 1
            self._demand = _Demand(self._demands, demand.records, demand.until)

    def _handle_partition_error(
        self, key: SharePartition, name: str | None, code: int, message: str | None, view: ClusterView
    ) -> None:
        """Raise an error that waiting does not end, once; newer metadata ends the others."""
        error = broker_error(code, message, api="ShareFetch", topic=name, partition=key.partition)
        is_lasting = code == ErrorCode.CORRUPT_MESSAGE or not error.is_retriable
        if is_lasting and code not in _LEADER_CODES and key not in self._refused:
            self._refused.add(key)
            self._buffer.post(error)
        self._refresh_reason = f"share fetch of {name or key.topic_id}-{key.partition}: {error.message}"

    def _handle_acknowledge_response(
        self, node_id: int, version: int, view: ClusterView, result: Response | KwireError | None, now: float
    ) -> None:
        node, sent = self._finish(node_id)
        if not self._is_success(node_id, node, sent, "ShareAcknowledge", view, result, now):
            return
        assert isinstance(result, ShareAcknowledgeResponse)
        results: dict[SharePartition, tuple[int, str | None]] = {}
        hints: list[CurrentLeader] = []
        for topic in result.responses:
            for response in topic.partitions:
                key = SharePartition(topic.topic_id, response.partition_index)
                results[key] = response.error_code, response.error_message
                name = view.snapshot.topic_name(key.topic_id)
                if response.error_code in _MOVED_CODES:
                    hints += _hints(key, name, response.current_leader)
        _update_leaders(hints, result, view)
        node.attempts = 0
        self._resolve(node, sent, results, "ShareAcknowledge", now)

    def _finish(self, node_id: int) -> tuple[_Node, list[PendingAcknowledgements]]:
        node = self._nodes[node_id]
        sent, node.in_flight = node.in_flight or [], None
        return node, sent

    def _is_success(
        self, node_id: int, node: _Node, sent: list[PendingAcknowledgements], api: str, view: ClusterView,
        result: Response | KwireError | None, now: float,
    ) -> bool:  # fmt: skip
        """Handle what is common to both responses; return whether the request has succeeded."""
        if self._is_closed:
            self._fail(sent, result if isinstance(result, KwireError) else _closed(), now)
            return False
        if not isinstance(result, (ShareFetchResponse, ShareAcknowledgeResponse)):
            assert isinstance(result, KwireError)
            self._handle_request_error(node_id, node, sent, result, now, view)
            return False
        if result.error_code:
            error = broker_error(
                result.error_code, result.error_message, api=api, broker=view.describe(node_id),
                group=self._options.group,
            )  # fmt: skip
            self._handle_top_level_error(node_id, node, sent, error, now)
            return False
        node.session.sent()
        self._throttle(node, result.throttle_time_ms, now)
        if result.acquisition_lock_timeout_ms > 0:
            self.lock_ms = result.acquisition_lock_timeout_ms
        return True

    def _throttle(self, node: _Node, throttle_ms: int, now: float) -> None:
        if throttle_ms > 0:
            node.not_before = now + throttle_ms / 1000
            self._wake_at(node.not_before)

    def _resolve(
        self, node: _Node, sent: list[PendingAcknowledgements], results: dict[SharePartition, tuple[int, str | None]],
        api: str, now: float,
    ) -> None:  # fmt: skip
        """Give each acknowledgement its result, or send it again after a retriable error."""
        missing = (int(ErrorCode.INVALID_RECORD_STATE), "the response does not name the partition")
        for one in sent:
            code, message = results.get(one.key, missing)
            if not code:
                self._succeed(one, now)
                continue
            error = broker_error(code, message, api=api, topic=one.topic, partition=one.key.partition)
            if code in _LEADER_CODES:
                self._refresh_reason = f"acknowledgements of {one.topic}-{one.key.partition}: {error.message}"
                self._fail([one], error, now)
            elif error.is_retriable and now < one.deadline and self._closing is None:
                self._retry(node, one, now)
            else:
                self._fail([one], error, now)

    def _retry(self, node: _Node, one: PendingAcknowledgements, now: float) -> None:
        one.attempts += 1
        one.not_before = now + self._backoff.seconds(one.attempts, self._random)
        node.waiting.insert(0, one)

    def _handle_top_level_error(
        self, node_id: int, node: _Node, sent: list[PendingAcknowledgements], error: BrokerError, now: float
    ) -> None:
        if error.code in REOPEN_CODES:
            node.session.reset()
        else:
            node.session.sent()  # the broker has counted the request
        self._fail(sent, error, now)
        node.attempts += 1
        if error.code in (ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH):
            if node.attempts == 1:  # a new session may open at once
                self._again(node)
                return
        elif error.code == ErrorCode.UNSUPPORTED_VERSION:
            self._report_node(node_id, no_share_groups(error))
        elif not error.is_retriable:
            self._report_node(node_id, error)
        self._back_off(node, now)

    def _handle_request_error(
        self, node_id: int, node: _Node, sent: list[PendingAcknowledgements], error: KwireError, now: float,
        view: ClusterView,
    ) -> None:  # fmt: skip
        """Handle a lost connection or a request that timed out: the session is gone, and its locks."""
        self._lost_session(node_id, node)
        self._fail(sent, error, now)
        if isinstance(error, UnsupportedVersionError):
            self._report_node(node_id, no_share_groups(error))
        elif not error.is_retriable:
            self._report_node(node_id, error)
        node.attempts += 1
        self._back_off(node, now)
        self._refresh_reason = f"share fetch from broker {view.describe(node_id)}: {error.message}"

    def _again(self, node: _Node) -> None:
        node.demand = 0

    def _back_off(self, node: _Node, now: float) -> None:
        node.not_before = now + self._backoff.seconds(node.attempts, self._random)
        self._again(node)

    def _lost_session(self, node_id: int, node: _Node) -> None:
        node.session.reset()
        for acquired in self._held:
            if acquired.node == node_id:
                acquired.lose()

    # -- results of acknowledgements

    def _succeed(self, one: PendingAcknowledgements, now: float) -> None:
        renewed = one.acknowledgements.of_type(AcknowledgeType.RENEW) if one.acknowledgements.has_renewals else ()
        if renewed and self.lock_ms is not None:
            for acquired in self._held:
                if acquired.key == one.key:
                    acquired.renewed(renewed, one.sent_at + self.lock_ms / 1000)
        one.on_done(one, None, now)

    def _fail(self, failed: Iterable[PendingAcknowledgements], error: KwireError, now: float) -> None:
        for one in failed:
            renewed = one.acknowledgements.of_type(AcknowledgeType.RENEW) if one.acknowledgements.has_renewals else ()
            if renewed:
                for acquired in self._held:
                    if acquired.key == one.key:
                        acquired.lose(renewed)
            one.on_done(one, error, now)

    def _fail_moved(self, now: float, view: ClusterView) -> None:
        """Fail the acknowledgements of partitions that another broker leads by now."""
        snapshot = view.snapshot
        for node_id, node in self._nodes.items():
            for one in list(node.waiting):
                name = snapshot.topic_name(one.key.topic_id)
                leader = snapshot.leader(name, one.key.partition) if name is not None else node_id
                if leader not in (node_id, -1):
                    node.waiting.remove(one)
                    error = broker_error(
                        ErrorCode.NOT_LEADER_OR_FOLLOWER, topic=one.topic, partition=one.key.partition,
                        remedy="the new leader delivers the records again",
                    )  # fmt: skip
                    self._fail([one], error, now)

    def _fail_reopening(self, node: _Node, now: float) -> None:
        """Fail the acknowledgements that wait for a session that must be opened again."""
        waiting, node.waiting = node.waiting, []
        for one in waiting:
            error = broker_error(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH, "the session with the broker has ended",
                remedy="the records are delivered again", topic=one.topic, partition=one.key.partition,
            )  # fmt: skip
            self._fail([one], error, now)

    # -- locks

    def _check_locks(self, now: float) -> None:
        """Send acknowledgements that were chosen long ago, and renew the locks of records in hand."""
        if not self._held:
            return
        lock_seconds = (self.lock_ms or 30_000) / 1000
        for acquired, due in list(self._held.items()):
            if acquired.is_done:
                del self._held[acquired]
            elif now < due:
                self._wake_at(due)
            else:
                self._held[acquired] = now + _CHECK_EVERY * lock_seconds
                self._wake_at(self._held[acquired])
                if self._closing is None:
                    self._look_after(acquired, now, lock_seconds)

    def _look_after(self, acquired: AcquiredRecords, now: float, lock_seconds: float) -> None:
        collected = acquired.collect() or Acknowledgements()
        if self._options.renew and acquired.can_renew:
            until = now + (1 - _RENEW_AT) * lock_seconds
            for offset in acquired.to_renew(until, self._options.max_processing_ms / 1000):
                collected.set(offset, AcknowledgeType.RENEW)
        if collected:
            deadline = now + self._request_timeout_ms / 1000
            pending = PendingAcknowledgements(
                acquired.topic, acquired.key, acquired.node, collected, deadline, self._on_result
            )
            self._node(acquired.node).waiting.append(pending)

    # -- the end

    def _turn_closing(
        self, node_id: int, node: _Node, now: float, view: ClusterView, requests: list[PendingRequest]
    ) -> None:
        if node.in_flight is not None or node.is_closed:
            return
        assert self._closing is not None
        if not node.session.is_open or not self._is_ready(node_id, view):
            node.is_closed = True
            node.session.reset()
            self._fail_reopening(node, now)
            return
        timeout_ms = max(1, round((self._closing[0] - now) * 1000))
        try:
            requests.append(self._acknowledge_request(node_id, node, node.waiting, now, view, CLOSE_EPOCH, timeout_ms))
        except UnsupportedVersionError as error:
            self._fail(node.waiting, error, now)
        node.waiting = []
        node.is_closed = True

    def _check_closed(self, now: float) -> None:
        assert self._closing is not None
        deadline, _ = self._closing
        if now >= deadline or all(node.is_closed and node.in_flight is None for node in self._nodes.values()):
            self._end_close()
        else:
            self._wake_at(deadline)

    def _end_close(self) -> None:
        if self._closing is not None:
            _, on_done = self._closing
            self._closing = float("inf"), lambda: None
            on_done()


def _hints(
    key: SharePartition,
    name: str | None,
    leader: ShareFetchResponse.Topic.Partition.Leader | ShareAcknowledgeResponse.Topic.Partition.Leader,
) -> list[CurrentLeader]:
    """Return the leader that a response names for a partition that has moved, if it does."""
    if name is None or leader.leader_id < 0:
        return []
    return [CurrentLeader(name, key.topic_id, key.partition, leader.leader_id, leader.leader_epoch)]


def _update_leaders(
    hints: list[CurrentLeader], response: ShareFetchResponse | ShareAcknowledgeResponse, view: ClusterView
) -> None:
    if hints:
        endpoints = [Broker(each.node_id, each.host, each.port, each.rack) for each in response.node_endpoints]
        view.update_leaders(hints, endpoints)


def _closed() -> ClosedError:
    return ClosedError("the share consumer is closed")
