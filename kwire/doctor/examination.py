"""Examine a cluster as a client sees it: visit every address at the same time, then ask about topic, group and so on.

Each visit and each question runs on a thread of its own and within its own limit, so that one that waits holds up none
of the others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace

from kwire.admin import Admin
from kwire.cluster import parse_bootstrap
from kwire.doctor.facts import ClockOffset, Endpoint, Facts, Target
from kwire.doctor.round_trip import round_trip
from kwire.doctor.visit import Visitor
from kwire.errors import ConfigurationError, KwireError, RequestTimeoutError
from kwire.net import Clock, Resolver, SystemClock, ThreadResolver
from kwire.net.probe import tunnel_interfaces
from kwire.protocol import ApiKey
from kwire.protocol.messages.describe_groups import DescribeGroupsRequest
from kwire.protocol.messages.describe_quorum import DescribeQuorumRequest
from kwire.protocol.messages.find_coordinator import FindCoordinatorRequest

# A visit has about this many steps, each with the target's timeout.
_STEPS_OF_A_VISIT = 6
_QUORUM_TIMES_SINCE = 1
_METADATA_LOG = "__cluster_metadata"
_GROUP_OPERATIONS_SINCE = 3  # DescribeGroups


def examine(target: Target, *, clock: Clock | None = None, resolver: Resolver | None = None) -> Facts:
    """Return the facts about a target. Never raises for what the network or a broker does."""
    own = resolver or ThreadResolver()
    try:
        return _Examination(target, clock or SystemClock(), own).run()
    finally:
        if resolver is None:
            own.close()


def split_entries(bootstrap: str) -> list[str]:
    """Return the entries of a bootstrap list as written."""
    return [entry.strip() for entry in bootstrap.split(",") if entry.strip()]


def _without_scheme(entry: str) -> str:
    return entry.partition("://")[2].rstrip("/") if "://" in entry else entry


class _Examination:
    def __init__(self, target: Target, clock: Clock, resolver: Resolver) -> None:
        self._target = target
        self._clock = clock
        self._resolver = resolver
        self._facts = Facts(target, now_ms=clock.time_ms())

    def run(self) -> Facts:
        facts, target = self._facts, self._target
        began = self._clock.now()
        facts.interfaces = tunnel_interfaces()
        facts.entries = split_entries(target.bootstrap)
        facts.bootstrap = [Endpoint(host, port) for host, port in self._addresses()]
        try:
            context = target.tls.client_context() if target.tls else None
        except ConfigurationError as error:
            facts.tls_config_error = error
            facts.seconds = self._clock.now() - began
            return facts
        visitor = Visitor(target, self._clock, self._resolver, context)
        self._visit(visitor, facts.bootstrap)
        facts.advertised = self._advertised()
        self._visit(visitor, [endpoint for endpoint in facts.advertised if not endpoint.stage])
        if facts.first is not None:
            self._ask(visitor)
        facts.seconds = self._clock.now() - began
        return facts

    def _addresses(self) -> Iterable[tuple[str, int]]:
        found: dict[tuple[str, int], None] = {}
        errors: dict[str, str] = {}
        for entry in self._facts.entries:
            try:
                found.update(dict.fromkeys(parse_bootstrap(_without_scheme(entry))))
            except ConfigurationError as error:
                errors[entry] = str(error)
        self._facts.entry_errors = errors
        return found

    def _advertised(self) -> list[Endpoint]:
        """Return the brokers that any of the bootstrap addresses named, by id, each with its address."""
        found: dict[tuple[int, str, int], Endpoint] = {}
        for endpoint in self._facts.bootstrap:
            if endpoint.metadata is not None:
                for broker in endpoint.metadata.brokers:
                    key = broker.node_id, broker.host, broker.port
                    found.setdefault(key, self._seen(*key))
        return [found[key] for key in sorted(found)]

    def _seen(self, node: int, host: str, port: int) -> Endpoint:
        """Return the endpoint of a broker; if its address was visited already, with what was found there."""
        for endpoint in self._facts.bootstrap:
            if (endpoint.host, endpoint.port) == (host, port) and endpoint.is_ok:
                return replace(endpoint, node=node)
        return Endpoint(host, port, node)

    def _visit(self, visitor: Visitor, endpoints: list[Endpoint]) -> None:
        self._together([lambda one=endpoint: visitor.visit(one) for endpoint in endpoints])  # type: ignore[misc]
        for endpoint in endpoints:
            if endpoint.error is None and endpoint.metadata is None:
                endpoint.error = KwireError("the visit did not end in time")

    def _together(self, tasks: list[Callable[[], object]]) -> None:
        """Run tasks on threads of their own, and wait for all, at most as long as the steps of one may take."""
        threads = [threading.Thread(target=task, name="kwire-doctor", daemon=True) for task in tasks]
        for thread in threads:
            thread.start()
        deadline = self._clock.now() + self._target.timeout * _STEPS_OF_A_VISIT
        for thread in threads:
            thread.join(max(0.0, deadline - self._clock.now()))

    # -- questions to the cluster

    def _ask(self, visitor: Visitor) -> None:
        facts, target = self._facts, self._target
        assert facts.first is not None
        assert facts.first.metadata is not None
        facts.topic = next((topic for topic in facts.first.metadata.topics if topic.name == target.topic), None)
        reachable = [one.address for one in facts.endpoints if one.is_ok]
        milliseconds = max(1, round(target.timeout * 800))
        with Admin(
            reachable, tls=target.tls, sasl=target.sasl, client_id=target.client_id,
            request_timeout_ms=milliseconds, connect_timeout_ms=milliseconds, allow_auto_create_topics=False,
        ) as admin:  # fmt: skip
            tasks: list[Callable[[], object]] = [lambda: self._ask_quorum(visitor)]
            if target.topic is not None:
                tasks.append(lambda: self._ask_topic(admin))
            if target.group is not None:
                tasks += [lambda: self._ask_group(admin), lambda: self._ask_rights(visitor)]
            if target.transactional_id is not None:
                tasks.append(lambda: self._ask_transaction(admin))
            self._together(tasks)
        if target.probe and facts.topic is not None and not facts.topic.error_code:
            facts.probe, offset = round_trip(visitor, facts, self._clock)
            facts.clocks += [offset] if offset is not None else []

    def _ask_topic(self, admin: Admin) -> None:
        assert self._target.topic is not None
        try:
            self._facts.topic_configs = admin.configs.get(topic=self._target.topic, timeout=self._target.timeout)
        except KwireError as error:
            self._facts.topic_configs_error = error

    def _ask_group(self, admin: Admin) -> None:
        facts, name, timeout = self._facts, self._target.group, self._target.timeout
        assert name is not None
        try:
            facts.group = admin.groups.describe(name, timeout=timeout)
        except KwireError as error:
            facts.group_error = error
            return
        try:
            facts.lag = admin.groups.lag(name, timeout=timeout)
            facts.lag_error = next(iter(facts.lag.errors.values()), None)
            partitions = [(one.topic, one.partition) for one in facts.lag.by_partition if one.error is None]
            if partitions:
                starts = admin.offsets.list(partitions, at="earliest", timeout=timeout)
                facts.log_starts = {key: found.offset for key, found in starts.ok.items()}
        except KwireError as error:
            facts.lag_error = error

    def _ask_rights(self, visitor: Visitor) -> None:
        """Ask the group's coordinator what this user may do to it."""
        facts, group = self._facts, self._target.group
        assert facts.first is not None
        assert group is not None
        with suppress(KwireError):
            probe, link = visitor.connect(facts.first, logs_in=True)
            with probe:
                version = link.version(FindCoordinatorRequest)
                by_list = version >= 4
                found = link.ask(
                    FindCoordinatorRequest(coordinator_keys=[group]) if by_list else FindCoordinatorRequest(key=group),
                    version=version,
                )
                node = found.coordinators[0].node_id if by_list else found.node_id
            facts.coordinator = node
            endpoint = next((one for one in facts.advertised if one.node == node and one.is_ok), None)
            if endpoint is None:
                return
            probe, link = visitor.connect(endpoint, logs_in=True)
            with probe:
                version = link.version(DescribeGroupsRequest)
                if version >= _GROUP_OPERATIONS_SINCE:
                    request = DescribeGroupsRequest(groups=[group], include_authorized_operations=True)
                    facts.group_operations = link.ask(request, version=version).groups[0].authorized_operations

    def _ask_transaction(self, admin: Admin) -> None:
        assert self._target.transactional_id is not None
        try:
            self._facts.transaction = admin.transactions.describe(
                self._target.transactional_id, timeout=self._target.timeout
            )
        except KwireError as error:
            self._facts.transaction_error = error

    def _ask_quorum(self, visitor: Visitor) -> None:
        """Ask for the leader of the metadata log, which says when it answered: whether there is one, and its clock.

        A broker passes this request on to the controller (KRaft). Without one there is no response.
        """
        first = self._facts.first
        assert first is not None
        if ApiKey.DESCRIBE_QUORUM not in (first.versions or {}):
            return
        with suppress(KwireError):
            probe, link = visitor.connect(first, logs_in=True)
            with probe:
                version = link.version(DescribeQuorumRequest)
                if version < _QUORUM_TIMES_SINCE:
                    return
                partition = DescribeQuorumRequest.Topic.Partition(partition_index=0)
                request = DescribeQuorumRequest(
                    topics=[DescribeQuorumRequest.Topic(topic_name=_METADATA_LOG, partitions=[partition])]
                )
                before = self._clock.time_ms()
                try:
                    response = link.ask(request, version=version)
                except RequestTimeoutError as error:
                    self._facts.controller_error = error
                    return
                after = self._clock.time_ms()
            if response.error_code or not response.topics:  # this user may not know it
                return
            found = response.topics[0].partitions[0]
            for voter in found.current_voters:
                if voter.replica_id == found.leader_id and voter.last_caught_up_timestamp > 0:
                    middle = (before + after) / 2
                    self._facts.clocks.append(
                        ClockOffset(
                            f"controller {voter.replica_id}", middle - voter.last_caught_up_timestamp,
                            (after - before) / 2,
                        )
                    )  # fmt: skip
