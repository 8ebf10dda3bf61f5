"""Commits: OffsetCommit and OffsetFetch of one group, on the loop thread.

One OffsetCommit is in flight at a time. Commits that are requested meanwhile merge: of each partition the newest offset
is sent, and the callers of older ones get its result. So no older offset follows a newer one, also not
when a request is repeated. An error while offsets are looked up is never "no offset": that would lead to a reset.

The coordinator may still carry out a commit without a response, after a newer one that came by another connection: then
the older offset would be the last. `overtaken` returns the offsets to commit once more, later.

The member of the group sets `generation`, `owned` and `member`; a consumer that assigns partitions itself has none of
them, and commits with generation -1.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Protocol
from uuid import UUID

from kwire.cluster import Backoff, ClusterView, GroupMetadata, PendingRequest, Snapshot, ToCoordinator
from kwire.cluster.metadata import NO_ID
from kwire.cluster.metrics import Histogram
from kwire.consumer.arguments import TopicPartition
from kwire.consumer.offsets import NO_OFFSET, CommittedRequest, Offset
from kwire.errors import (
    UNKNOWN_TOPIC_CODES,
    BrokerError,
    ClosedError,
    CommitFailedError,
    ErrorCode,
    FencedInstanceError,
    KwireError,
    RebalanceInProgressError,
    UnsupportedVersionError,
    broker_error,
    timeout_error,
)
from kwire.protocol import Response
from kwire.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kwire.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

_log = logging.getLogger("kwire.consumer")

# What the version of a request brings.
_COMMIT_MIN = 2
_COMMIT_INSTANCE_ID = 7
_COMMIT_MEMBER_EPOCH = 9
_COMMIT_TOPIC_IDS = 10
_FETCH_STABLE = 7
_FETCH_GROUPS = 8
_FETCH_TOPIC_IDS = 10
# A partition that waits this long for a transaction to end is logged.
_UNSTABLE_LOG_SECONDS = 30.0

# The coordinator must be looked up again.
COORDINATOR_MOVED_CODES: frozenset[int] = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT}
)
# The member may be gone: the errors that the member must know of.
MEMBER_CODES: frozenset[int] = frozenset(
    {
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    }
)
_LOST_REMEDY = (
    "its new owner processes from the last committed offset; if polls are further apart than max_poll_interval_ms, "
    "raise that or lower max_poll_records"
)


class CommittingMember(Protocol):
    """The member of a group, as its commits see it."""

    @property
    def is_rebalancing(self) -> bool:
        """Return whether a JoinGroup or SyncGroup is on its way, so that the generation is about to change."""
        ...

    def commit_refused(self, code: int, sent: GroupMetadata) -> None:
        """Take note of one of `MEMBER_CODES` in the response to a commit that was sent with `sent`."""
        ...


OnCommitted = Callable[[Mapping[TopicPartition, KwireError | None]], None]


@dataclass(slots=True, eq=False)
class _Commit:
    """One call of `commit`. `missing` partitions have no result yet."""

    missing: set[TopicPartition]
    on_done: OnCommitted
    deadline: float
    retries: bool
    before_revoke: bool
    results: dict[TopicPartition, KwireError | None] = field(default_factory=dict)

    def finish(self, key: TopicPartition, error: KwireError | None) -> None:
        if key in self.missing:
            self.missing.discard(key)
            self.results[key] = error
            if not self.missing:
                self.on_done(self.results)


@dataclass(slots=True, eq=False)
class _Entry:
    """The newest offset of a partition, and the commits that wait for it. `stale` counts the STALE_MEMBER_EPOCHs."""

    offset: Offset
    commits: list[_Commit]
    stale: int = 0
    unknown_since: float | None = None  # to the coordinator
    last_error: KwireError | None = None


@dataclass(slots=True, eq=False)
class _Lookup:
    request: CommittedRequest
    attempts: int = 0
    not_before: float = 0.0
    is_in_flight: bool = False
    unknown_since: float | None = None
    unstable_since: float | None = None
    last_error: KwireError | None = None


class CommitManager:
    """A `StateMachine`. `wake` is called when there is work for a turn; every method belongs to the loop thread.

    `generation` is replaced, never changed, so that any thread may read it.
    """

    def __init__(
        self,
        group: str,
        *,
        instance_id: str | None = None,
        unknown_topic_timeout_ms: int,
        backoff: Backoff,
        random: Random,
        wake: Callable[[], None],
    ) -> None:
        self.route = ToCoordinator(group)
        self.generation = GroupMetadata(group, group_instance_id=instance_id)
        self.is_epoch = False  # whether the generation is a member epoch (KIP-848)
        self.owned: Collection[TopicPartition] | None = None  # None: whatever the caller assigned
        self.member: CommittingMember | None = None
        self.on_stored: Callable[[Mapping[TopicPartition, Offset]], object] | None = None  # for interceptors
        self.latency = Histogram()  # of OffsetCommit requests
        self._unknown_topic_timeout = unknown_topic_timeout_ms / 1000
        self._backoff = backoff
        self._random = random
        self._wake = wake
        self._pending: dict[TopicPartition, _Entry] = {}
        self._in_flight: dict[TopicPartition, _Entry] = {}
        self._unanswered: set[TopicPartition] = set()  # an OffsetCommit with them got no response
        self._overtaken: dict[TopicPartition, tuple[Offset, float]] = {}  # what was stored after that, and since when
        self._is_active = False  # an OffsetCommit waits for the coordinator or for its response
        self._attempts = 0
        self._not_before = 0.0
        self._lookups: dict[CommittedRequest, _Lookup] = {}
        self._is_lookup_active = False
        self._snapshot = Snapshot()
        self._must_forget = False  # the coordinator
        self._refresh_reason: str | None = None
        self._now = 0.0  # of the last turn
        self._end: KwireError | None = None

    # -- commands

    def commit(
        self,
        offsets: Mapping[TopicPartition, Offset],
        on_done: OnCommitted,
        *,
        deadline: float,
        retries: bool,
        before_revoke: bool = False,
    ) -> None:
        """Commit offsets; `on_done` gets the error of each partition, or None for it, once.

        With `retries` errors that may pass are retried until `deadline`, a time of the loop. `before_revoke` is for the
        commit that a rebalance waits for: it fails what only a later commit could have stored.
        """
        commit = _Commit(set(offsets), on_done, deadline, retries, before_revoke)
        if not offsets:
            on_done({})
            return
        for key, offset in offsets.items():
            if self._end is not None:
                commit.finish(key, self._end)
            elif self.owned is not None and key not in self.owned:
                commit.finish(key, _not_owned(key))
            else:
                before = self._pending.pop(key, None)
                self._pending[key] = _Entry(offset, [*(before.commits if before else ()), commit])
                if before is not None:
                    self._pending[key].unknown_since = before.unknown_since
                    self._pending[key].last_error = before.last_error
        self._wake()

    def end_membership(self) -> None:
        """Commit from now on for no member: the one that there was has left, and the program assigns partitions."""
        self.owned, self.is_epoch = None, False
        self.generation = GroupMetadata(self.generation.group_id, group_instance_id=self.generation.group_instance_id)

    def lose(self, keys: Iterable[TopicPartition]) -> None:
        """Fail the commits of partitions that others own now. What was sent has its response."""
        for key in keys:
            entry = self._pending.pop(key, None)
            if entry is not None:
                self._finish(key, entry, _not_owned(key))
            self._unanswered.discard(key)
            self._overtaken.pop(key, None)

    def overtaken(self, before: float) -> dict[TopicPartition, Offset]:
        """Return, once, what was stored before a time, after a commit without a response; not if more is on its way."""
        found = {key: offset for key, (offset, since) in self._overtaken.items() if since <= before}
        for key in found:
            del self._overtaken[key]
        return {
            key: offset
            for key, offset in found.items()
            if (self.owned is None or key in self.owned) and key not in self._pending and key not in self._in_flight
        }

    def lookup(self, request: CommittedRequest) -> None:
        """Find the committed offset of a partition; errors that may pass are retried until its deadline."""
        if self._end is not None:
            request.on_done(self._end, self._now)
            return
        self._lookups[request] = _Lookup(request)
        self._wake()

    def cancel(self, request: CommittedRequest) -> None:
        """Forget a lookup; a response to it is ignored."""
        self._lookups.pop(request, None)

    def has_commits(self, keys: Iterable[TopicPartition]) -> bool:
        """Return whether a commit of one of these partitions waits for its result."""
        wanted = set(keys)
        return any(commit.missing & wanted for commit in self._commits())

    # -- StateMachine

    def topics(self) -> Collection[str]:
        return ()

    def deadline(self) -> float | None:
        times = [commit.deadline for commit in self._commits()]
        times += [request.deadline for request in self._lookups if request.deadline < inf]
        if self._pending and not self._is_active:
            times.append(self._not_before)
        for lookup in self._lookups.values():
            if not lookup.is_in_flight:
                times.append(lookup.not_before)
                if lookup.unknown_since is not None:
                    times.append(lookup.unknown_since + self._unknown_topic_timeout)
        return min((time for time in times if time > self._now), default=None)

    def closed(self, error: KwireError) -> None:
        self._end = error
        for entries in (self._pending, self._in_flight):
            for key, entry in list(entries.items()):
                self._finish(key, entry, error)
            entries.clear()
        lookups, self._lookups = list(self._lookups), {}
        for request in lookups:
            request.on_done(error, self._now)

    def turn(self, now: float, view: ClusterView) -> list[PendingRequest]:
        self._now, self._snapshot = now, view.snapshot
        if self._must_forget:
            self._must_forget = False
            view.forget_coordinator(self.route)
        if self._refresh_reason is not None:
            view.request_metadata(self._refresh_reason)
            self._refresh_reason = None
        self._expire(now, view.connection_error)
        requests: list[PendingRequest] = []
        if self._pending and not self._is_active and now >= self._not_before:
            self._is_active = True
            requests.append(self._commit_request())
        if not self._is_lookup_active and any(self._is_due(lookup) for lookup in self._lookups.values()):
            self._is_lookup_active = True
            requests.append(self._lookup_request())
        return requests

    # -- OffsetCommit

    def _commits(self) -> set[_Commit]:
        return {
            commit
            for entries in (self._pending, self._in_flight)
            for entry in entries.values()
            for commit in entry.commits
            if commit.missing
        }

    def _expire(self, now: float, connection_error: KwireError | None) -> None:
        for commit in self._commits():
            if now >= commit.deadline:
                for topic, partition in list(commit.missing):
                    entry = self._pending.get((topic, partition)) or self._in_flight.get((topic, partition))
                    error = timeout_error(
                        "the offset was not committed in time",
                        (entry.last_error if entry is not None else None) or connection_error,
                        api="OffsetCommit",
                        topic=topic,
                        partition=partition,
                        group=self.route.key,
                        remedy="check that the group's coordinator can be reached; commit again, or process again",
                    )
                    commit.finish((topic, partition), error)
        for lookup in [lookup for lookup in self._lookups.values() if now >= lookup.request.deadline]:
            error = timeout_error(
                "the committed offset was not found in time",
                lookup.last_error or connection_error,
                api="OffsetFetch",
                topic=lookup.request.topic,
                partition=lookup.request.partition,
                group=self.route.key,
                remedy="check that the group's coordinator can be reached, or give more time",
            )
            self._found(lookup, error, now)
        for key in [key for key, entry in self._pending.items() if not any(c.missing for c in entry.commits)]:
            del self._pending[key]  # nobody waits for it any more

    def _topic_id(self, topic: str) -> UUID:
        known = self._snapshot.topics.get(topic)
        return NO_ID if known is None else known.id

    def _commit_request(self) -> PendingRequest:
        has_ids = all(self._topic_id(topic) != NO_ID for topic, _ in self._pending)
        sent = self.generation
        ids: dict[UUID, str] = {}
        began = self._now

        def build(version: int) -> OffsetCommitRequest:
            nonlocal sent
            sent = self.generation
            self._check_version(version)
            entries, self._pending = self._pending, {}
            if version >= _COMMIT_TOPIC_IDS:  # a topic may be new since the version was limited
                self._pending = {key: entry for key, entry in entries.items() if self._topic_id(key[0]) == NO_ID}
                entries = {key: entry for key, entry in entries.items() if key not in self._pending}
                ids.update({self._topic_id(topic): topic for topic, _ in entries})
            self._in_flight = entries
            return self._offset_commit(entries, sent, version)

        def done(result: Response | KwireError | None, now: float) -> None:
            self._is_active = False
            self.latency.observe(max(0.0, now - began))
            if isinstance(result, OffsetCommitResponse):
                self._handle_commit_response(result, ids, sent, now)
            else:
                assert isinstance(result, KwireError)
                self._commit_failed(result, now)
            self._wake()

        at_most = None if has_ids else _COMMIT_TOPIC_IDS - 1
        return PendingRequest(self.route, OffsetCommitRequest, build, done, at_most=at_most)

    def _check_version(self, version: int) -> None:
        if version < _COMMIT_MIN:
            raise UnsupportedVersionError(
                "the broker keeps offsets of groups in ZooKeeper only", remedy="commit to brokers from 0.9 on"
            )
        if self.is_epoch and version < _COMMIT_MEMBER_EPOCH:
            raise UnsupportedVersionError(
                "the coordinator has no commits of the new group protocol (KIP-848)",
                remedy='upgrade the broker, or use group_protocol="classic"',
            )

    def _offset_commit(
        self, entries: Mapping[TopicPartition, _Entry], sent: GroupMetadata, version: int
    ) -> OffsetCommitRequest:
        topics: dict[str, list[OffsetCommitRequest.Topic.Partition]] = {}
        for (topic, partition), entry in entries.items():
            one = OffsetCommitRequest.Topic.Partition(
                partition_index=partition,
                committed_offset=entry.offset.offset,
                committed_leader_epoch=-1 if entry.offset.leader_epoch is None else entry.offset.leader_epoch,
                committed_metadata=entry.offset.metadata,
            )
            topics.setdefault(topic, []).append(one)
        has_ids = version >= _COMMIT_TOPIC_IDS
        return OffsetCommitRequest(
            group_id=sent.group_id,
            generation_id_or_member_epoch=sent.generation_id,
            member_id=sent.member_id,
            group_instance_id=sent.group_instance_id if version >= _COMMIT_INSTANCE_ID else None,
            topics=[
                OffsetCommitRequest.Topic(
                    name="" if has_ids else topic,
                    topic_id=self._topic_id(topic) if has_ids else NO_ID,
                    partitions=partitions,
                )
                for topic, partitions in topics.items()
            ],
        )

    def _handle_commit_response(
        self, response: OffsetCommitResponse, ids: Mapping[UUID, str], sent: GroupMetadata, now: float
    ) -> None:
        entries, self._in_flight = self._in_flight, {}
        codes = {
            (ids.get(topic.topic_id, topic.name), one.partition_index): one.error_code
            for topic in response.topics
            for one in topic.partitions
        }
        for code in {code for code in codes.values() if code in MEMBER_CODES}:
            if self.member is not None:
                self.member.commit_refused(code, sent)
        if any(code in COORDINATOR_MOVED_CODES for code in codes.values()):
            self._must_forget = True
        must_wait = False
        if self.on_stored is not None:
            stored = {key: entry.offset for key, entry in entries.items() if codes.get(key) == ErrorCode.NONE}
            if stored:
                self.on_stored(stored)
        for key, entry in entries.items():
            code = codes.get(key, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if not code:
                self._stored(key, entry.offset, now)
                self._finish(key, entry, None)
            else:
                must_wait |= self._partition_refused(key, entry, code, sent, now)
        if must_wait:
            self._wait(now)
        else:
            self._attempts, self._not_before = 0, 0.0

    def _stored(self, key: TopicPartition, offset: Offset, now: float) -> None:
        if key in self._unanswered:
            self._unanswered.discard(key)
            self._overtaken[key] = offset, now
        elif key in self._overtaken:
            self._overtaken[key] = offset, self._overtaken[key][1]

    def _partition_refused(
        self, key: TopicPartition, entry: _Entry, code: int, sent: GroupMetadata, now: float
    ) -> bool:
        """Fail or repeat the commit of one partition; return whether to wait before the next request."""
        error = self._error(key, code, sent)
        if code == ErrorCode.STALE_MEMBER_EPOCH and self.is_epoch:
            # The heartbeat may have brought the new epoch meanwhile, or is about to.
            has_new_epoch = self.generation.generation_id not in (sent.generation_id, 0, -1)
            entry.stale += has_new_epoch
            self._retry(key, entry, error, may_retry=lambda commit: commit.retries and entry.stale <= 1)
            return not has_new_epoch
        if code in UNKNOWN_TOPIC_CODES:
            self._refresh_reason = f"commit of {key[0]}-{key[1]}"
            if entry.unknown_since is None:
                entry.unknown_since = now
            waits = now < entry.unknown_since + self._unknown_topic_timeout
            self._retry(
                key, entry, error, may_retry=lambda commit: commit.retries and not commit.before_revoke and waits
            )
            return True
        may_pass = isinstance(error, BrokerError) and error.is_retriable
        self._retry(key, entry, error, may_retry=lambda commit: commit.retries and may_pass)
        return may_pass

    def _error(self, key: TopicPartition, code: int, sent: GroupMetadata) -> KwireError:
        """Return the error that the caller gets for a code."""
        topic, partition = key
        cause = broker_error(code, api="OffsetCommit", topic=topic, partition=partition, group=self.route.key)
        is_rebalancing = self.member is not None and self.member.is_rebalancing
        has_moved_on = self.generation.generation_id > sent.generation_id
        error: KwireError
        match code:
            case ErrorCode.FENCED_INSTANCE_ID:
                error = fenced_instance(self.generation)
            case ErrorCode.REBALANCE_IN_PROGRESS:
                error = _rebalancing(key, self.route.key)
            case ErrorCode.ILLEGAL_GENERATION if is_rebalancing or has_moved_on:
                error = _rebalancing(key, self.route.key)
            case ErrorCode.STALE_MEMBER_EPOCH if has_moved_on:
                error = _rebalancing(key, self.route.key)
            case (
                ErrorCode.ILLEGAL_GENERATION
                | ErrorCode.UNKNOWN_MEMBER_ID
                | ErrorCode.STALE_MEMBER_EPOCH
                | ErrorCode.FENCED_MEMBER_EPOCH
            ):
                error = CommitFailedError(
                    "the group goes on without this member: the offset was not committed",
                    topic=topic,
                    partition=partition,
                    group=self.route.key,
                    remedy=_LOST_REMEDY,
                )
            case _:
                return cause
        error.__cause__ = cause
        return error

    def _commit_failed(self, error: KwireError, now: float) -> None:
        """Handle the failure of a whole request: of the connection, of the lookup of the coordinator, of its build."""
        entries, self._in_flight = self._in_flight, {}
        self._unanswered.update(entries)
        if not entries:  # no request was made; it would have had what waits
            entries, self._pending = self._pending, {}
        may_pass = error.is_retriable and not isinstance(error, ClosedError)
        if may_pass:
            self._must_forget = True
            self._wait(now)
        elif isinstance(error, BrokerError) and error.code in MEMBER_CODES and self.member is not None:
            self.member.commit_refused(error.code, self.generation)
        for key, entry in entries.items():
            self._retry(key, entry, error, may_retry=lambda commit: commit.retries and may_pass)

    def _retry(
        self, key: TopicPartition, entry: _Entry, error: KwireError, *, may_retry: Callable[[_Commit], bool]
    ) -> None:
        """Put a partition back for the commits that may be repeated, unless a newer offset waits; fail the others."""
        again = [commit for commit in entry.commits if may_retry(commit)]
        for commit in entry.commits:
            if commit not in again:
                commit.finish(key, error)
        if not any(key in commit.missing for commit in again):
            return
        if self.owned is not None and key not in self.owned:
            for commit in again:
                commit.finish(key, _not_owned(key))
        elif (newer := self._pending.get(key)) is not None:
            newer.commits[:0] = again
            newer.unknown_since, newer.last_error = entry.unknown_since, error
        else:
            self._pending[key] = _Entry(entry.offset, again, entry.stale, entry.unknown_since, error)

    def _finish(self, key: TopicPartition, entry: _Entry, error: KwireError | None) -> None:
        for commit in entry.commits:
            commit.finish(key, error)

    def _wait(self, now: float) -> None:
        self._attempts += 1
        self._not_before = now + self._backoff.seconds(self._attempts, self._random)

    # -- OffsetFetch

    def _is_due(self, lookup: _Lookup) -> bool:
        return not lookup.is_in_flight and self._now >= lookup.not_before

    def _lookup_request(self) -> PendingRequest:
        due = [lookup for lookup in self._lookups.values() if self._is_due(lookup)]
        has_ids = all(self._topic_id(lookup.request.topic) != NO_ID for lookup in due)
        in_flight: list[_Lookup] = []
        ids: dict[UUID, str] = {}

        def build(version: int) -> OffsetFetchRequest:
            in_flight[:] = [lookup for lookup in self._lookups.values() if self._is_due(lookup)]
            if version >= _FETCH_TOPIC_IDS:
                in_flight[:] = [one for one in in_flight if self._topic_id(one.request.topic) != NO_ID]
                ids.update({self._topic_id(one.request.topic): one.request.topic for one in in_flight})
            for lookup in in_flight:
                lookup.is_in_flight = True
            return self._offset_fetch(in_flight, version)

        def done(result: Response | KwireError | None, now: float) -> None:
            self._is_lookup_active = False
            self._now = now
            for lookup in in_flight:
                lookup.is_in_flight = False
            if isinstance(result, OffsetFetchResponse):
                self._handle_lookup_response(in_flight, result, ids, now)
            else:
                assert isinstance(result, KwireError)
                failed = in_flight or [lookup for lookup in self._lookups.values() if self._is_due(lookup)]
                for lookup in failed:
                    self._lookup_failed(lookup, result, now)
            self._wake()

        at_most = None if has_ids else _FETCH_TOPIC_IDS - 1
        return PendingRequest(self.route, OffsetFetchRequest, build, done, at_most=at_most)

    def _offset_fetch(self, lookups: Iterable[_Lookup], version: int) -> OffsetFetchRequest:
        indexes: dict[str, set[int]] = {}
        for lookup in lookups:
            indexes.setdefault(lookup.request.topic, set()).add(lookup.request.partition)
        group = self.route.key
        if version < _FETCH_GROUPS:
            named = [
                OffsetFetchRequest.Topic(name=topic, partition_indexes=sorted(indexes[topic])) for topic in indexes
            ]
            return OffsetFetchRequest(group_id=group, topics=named, require_stable=version >= _FETCH_STABLE)
        has_ids = version >= _FETCH_TOPIC_IDS
        topics = [
            OffsetFetchRequest.Group.Topic(
                name="" if has_ids else topic,
                topic_id=self._topic_id(topic) if has_ids else NO_ID,
                partition_indexes=sorted(indexes[topic]),
            )
            for topic in indexes
        ]
        is_member = self.is_epoch and self.generation.generation_id > 0
        requested = OffsetFetchRequest.Group(
            group_id=group,
            member_id=self.generation.member_id if is_member else None,
            member_epoch=self.generation.generation_id if is_member else -1,
            topics=topics,
        )
        return OffsetFetchRequest(groups=[requested], require_stable=True)

    def _handle_lookup_response(
        self, lookups: Iterable[_Lookup], response: OffsetFetchResponse, ids: Mapping[UUID, str], now: float
    ) -> None:
        group = next((one for one in response.groups if one.group_id == self.route.key), None)
        group_code = group.error_code if group is not None else response.error_code
        found: dict[TopicPartition, tuple[int, Offset | None]] = {}
        for topic in group.topics if group is not None else response.topics:
            name = (
                ids.get(topic.topic_id, topic.name)
                if isinstance(topic, OffsetFetchResponse.Group.Topic)
                else topic.name
            )
            for one in topic.partitions:
                offset = None
                if not one.error_code and one.committed_offset > NO_OFFSET:
                    epoch = one.committed_leader_epoch
                    offset = Offset(one.committed_offset, epoch if epoch >= 0 else None, one.metadata or "")
                found[name, one.partition_index] = one.error_code, offset
        for lookup in lookups:
            key = lookup.request.topic, lookup.request.partition
            # A partition that the response lacks was not looked up: the response would say that it has no offset.
            code, offset = found.get(key, (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None))
            code = group_code or code
            if code:
                error = broker_error(code, api="OffsetFetch", topic=key[0], partition=key[1], group=self.route.key)
                self._lookup_failed(lookup, error, now)
            else:
                self._found(lookup, offset, now)

    def _found(self, lookup: _Lookup, result: Offset | KwireError | None, now: float) -> None:
        if self._lookups.pop(lookup.request, None) is not None:  # else it was cancelled
            lookup.request.on_done(result, now)

    def _lookup_failed(self, lookup: _Lookup, error: KwireError, now: float) -> None:
        lookup.last_error = error
        code = error.code if isinstance(error, BrokerError) else None
        if code in UNKNOWN_TOPIC_CODES:
            self._refresh_reason = f"committed offset of {lookup.request.topic}-{lookup.request.partition}"
            if lookup.unknown_since is None:
                lookup.unknown_since = now
            if now >= lookup.unknown_since + self._unknown_topic_timeout:
                self._found(lookup, error, now)
                return
        elif code in (ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            pass  # the next heartbeat brings the new epoch, or the end of the membership, which cancels this
        elif not error.is_retriable:
            self._found(lookup, error, now)
            return
        elif code is None or code in COORDINATOR_MOVED_CODES:
            self._must_forget = True
        elif code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
            self._log_unstable(lookup, now)
        lookup.attempts += 1
        lookup.not_before = now + self._backoff.seconds(lookup.attempts, self._random)

    def _log_unstable(self, lookup: _Lookup, now: float) -> None:
        if lookup.unstable_since is None:
            lookup.unstable_since = now
        elif now >= lookup.unstable_since + _UNSTABLE_LOG_SECONDS:
            lookup.unstable_since = now
            _log.warning(
                "%s-%d waits for a transaction that has committed offsets to group %s and has not ended",
                lookup.request.topic,
                lookup.request.partition,
                self.route.key,
            )


def _not_owned(key: TopicPartition) -> CommitFailedError:
    return CommitFailedError(
        "the partition is not assigned to this consumer: the offset was not committed",
        topic=key[0],
        partition=key[1],
        remedy=_LOST_REMEDY,
    )


def _rebalancing(key: TopicPartition, group: str) -> RebalanceInProgressError:
    return RebalanceInProgressError(
        "the group rebalances: the offset was not committed",
        topic=key[0],
        partition=key[1],
        group=group,
        remedy="poll, so that the rebalance goes on, then commit again",
    )


def fenced_instance(member: GroupMetadata) -> FencedInstanceError:
    """Return the error of a static member whose instance id another consumer has taken."""
    return FencedInstanceError(
        f"another consumer joined with group_instance_id {member.group_instance_id!r}",
        group=member.group_id,
        remedy="give each consumer of the group its own group_instance_id, and see that none runs twice",
    )
