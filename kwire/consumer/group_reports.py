"""What both faces of the consumer tell about themselves: `lag`, `explain`, `metrics`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from math import inf

from kwire.cluster import ClusterMetrics, Distribution
from kwire.cluster.metrics import Histogram
from kwire.cluster.telemetry import Reading
from kwire.consumer.arguments import TopicPartition
from kwire.consumer.commits import CommitManager
from kwire.consumer.explain import ConsumerExplanation, WaitReason, explain_group, explain_partitions
from kwire.consumer.group_member import Member, MemberState
from kwire.consumer.group_steps import RebalancingClient
from kwire.consumer.lag import Lag, lag_of
from kwire.consumer.metrics import ConsumerMetrics, readings
from kwire.consumer.subscription import Subscription


class ReportingClient(RebalancingClient):
    """`RebalancingClient` with reports."""

    def _set_up_group(self) -> CommitManager | None:
        self._subscription: Subscription | None = None
        return super()._set_up_group()

    def subscription(self) -> Subscription | None:
        """Return what the consumer is subscribed to, or None."""
        return self._subscription

    @property
    def member(self) -> Member:
        """Return the member of the group that this consumer is now: id, epoch or generation, state, protocol."""
        if self._membership is None:
            return Member("", -1, MemberState.UNSUBSCRIBED, None, self._options.group_instance_id)
        return self._membership.member()

    async def _lag(self, fresh: bool = False, timeout: float | None = None) -> dict[TopicPartition, Lag]:
        """Return how far each assigned partition is behind its end, by the last responses of brokers.

        With `fresh` the ends are requested now. Partitions whose position or end is not known yet are left out.
        """
        ends: Mapping[TopicPartition, int] = await self._end_offsets(self.assignment(), timeout) if fresh else {}
        with self._lock:
            self._check_usable()
            self._receive()
            return self._known_lag(ends)

    def _known_lag(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, Lag]:
        now_ms = self._runtime.clock.time_ms()
        found: dict[TopicPartition, Lag] = {}
        for key, buffer in self._buffers.items():
            watermarks = self._fetch_buffer.watermarks.get(buffer.assignment_epoch)
            lag = lag_of(buffer, watermarks, ends.get(key), self._options.is_committed_only, now_ms)
            if lag is not None:
                found[key] = lag
        return found

    async def _explain(self) -> ConsumerExplanation:
        """Return why `poll` returns nothing now: what is missing, by name, and the last failures.

        >>> print(consumer.explain())                                   # doctest: +SKIP
        the consumer joins; partitions assigned: 0
          unreachable: no broker can be reached; the last failure was: ...
        """
        runtime, membership = self._runtime, self._membership
        with self._lock:
            self._receive()
            buffered = {key: buffer.has_next() for key, buffer in self._buffers.items() if not buffer.is_revoking}
        count = len(buffered)

        def on_loop() -> list[WaitReason]:
            view = runtime.view_for("fetch")
            step = None if membership is None else membership.pending_step
            subscription = self._subscription if view.snapshot.brokers else None
            missing = {} if subscription is None else subscription.missing(view.snapshot)
            reasons = explain_group(
                None if membership is None else membership.member(),
                None if membership is None else membership.fatal_error,
                None if step is None else step.kind,
                self._is_assigned,
                count,
                missing,
                view,
                None if self._commits is None else runtime.coordinator_error(self._commits.route),
            )
            return reasons + explain_partitions(
                self._fetcher.states(), buffered, self._fetch_buffer, self._options.is_committed_only,
                runtime.clock.now(), view,
            )  # fmt: skip

        reasons = await self._waiter.on_loop_or_after(self._runtime, on_loop)
        return ConsumerExplanation(self.member, count, tuple(reasons))

    async def _metrics(self) -> ConsumerMetrics:
        """Return counts of polls, records, rebalances, commits and brokers, and the lag: one moment's copy."""
        return self._all_metrics(*await self._waiter.on_loop_or_after(self._runtime, self._loop_metrics))

    def collect_metrics(self) -> ConsumerMetrics:
        """Return what `metrics` returns, to an exporter's thread: wait for the loop thread instead of awaiting it."""
        return self._all_metrics(*self._runtime.on_loop_or_after(self._loop_metrics))

    @property
    def client_id(self) -> str:
        return self._config.client_id

    def telemetry_readings(self) -> list[Reading]:
        return readings(self.collect_metrics())

    def telemetry_resource(self) -> dict[str, str]:
        options, member = self._options, self.member
        known = {
            "client_rack": options.rack, "group_id": options.group, "group_instance_id": options.group_instance_id,
            "group_member_id": member.id,
        }  # fmt: skip
        return {name: value for name, value in known.items() if value}

    def _loop_metrics(self) -> tuple[ClusterMetrics, Distribution, Distribution]:
        commits = Histogram() if self._commits is None else self._commits.latency
        rebalances = Histogram() if self._membership is None else self._membership.latency
        return self._runtime.metrics(), commits.distribution(), rebalances.distribution()

    def _all_metrics(
        self, cluster: ClusterMetrics, commit_time: Distribution, rebalance_time: Distribution
    ) -> ConsumerMetrics:
        now, since = self._runtime.clock.now(), self._gate.timer.since
        with self._lock:
            return ConsumerMetrics(
                **asdict(self._counters),
                assigned_partitions=len(self._buffers),
                buffered_bytes=self._fetch_buffer.buffered_bytes,
                gate_closed_seconds=self._gate.closed_seconds(now),
                commit_time=commit_time,
                rebalance_time=rebalance_time,
                last_poll_seconds=0.0 if since == inf else max(0.0, now - since),
                lag=self._known_lag({}),
                cluster=cluster,
            )
