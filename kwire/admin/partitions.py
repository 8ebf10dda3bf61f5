"""Partitions: move them to other replicas, elect their leaders.

AlterPartitionReassignments and ListPartitionReassignments (Kafka 2.4), ElectLeaders (2.2), all by the controller.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kwire.admin.noun import Noun, TopicPartition, by_topic, check_code, checked_mapping, error_or_none, one_of
from kwire.admin.results import Results
from kwire.cluster.waiting import blocking
from kwire.consumer.arguments import checked_partitions
from kwire.errors import ConfigurationError, ErrorCode, KwireError, UnsupportedVersionError
from kwire.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from kwire.protocol.messages.elect_leaders import PREFERRED, UNCLEAN, ElectLeadersRequest, ElectLeadersResponse
from kwire.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

_ELECTIONS: Mapping[str, int] = {"preferred": PREFERRED, "unclean": UNCLEAN}
_UNCLEAN_SINCE = 1  # ElectLeaders
_FIXED_FACTOR_SINCE = 1  # AlterPartitionReassignments


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A partition on its way to other replicas. `replicas` are those it has now, old and new."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class PartitionAdmin(Noun):
    """What both faces share. A partition is named (topic, partition)."""

    async def _reassign(
        self,
        replicas: Mapping[TopicPartition, Sequence[int]],
        *,
        allow_rf_change: bool = True,
        timeout: float | None = None,
    ) -> Results[TopicPartition, None]:
        """Begin to move partitions to these brokers, the preferred leader first; `reassignments` shows the rest.

        With allow_rf_change=False a move that changes the number of replicas is refused (KIP-860, Kafka 4.1).
        """
        checked_mapping("replicas", replicas, '{("orders", 0): [1, 2]}')
        wanted: dict[TopicPartition, list[int] | None] = {}
        for key, brokers in zip(checked_partitions(replicas), replicas.values(), strict=True):
            if (
                not isinstance(brokers, Sequence)
                or isinstance(brokers, (str, bytes))
                or not brokers
                or not all(type(one) is int for one in brokers)
                or len(set(brokers)) != len(brokers)
            ):
                raise ConfigurationError(
                    f"the replicas of {key[0]}-{key[1]} are {brokers!r}", remedy="give different ids of brokers"
                )
            wanted[key] = list(brokers)
        return await self._alter(wanted, allow_rf_change, self._deadline(timeout))

    async def _cancel(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> Results[TopicPartition, None]:
        """End the moves of these partitions, which stay where they were. NO_REASSIGNMENT_IN_PROGRESS: there is none."""
        wanted = dict.fromkeys(checked_partitions(partitions))
        return await self._alter(wanted, True, self._deadline(timeout))

    async def _reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout: float | None = None
    ) -> list[Reassignment]:
        """Return the moves that are under way: all, or those of `partitions`."""
        deadline = self._deadline(timeout)
        topics = None
        if partitions is not None:
            topics = [
                ListPartitionReassignmentsRequest.Topic(name=topic, partition_indexes=indexes)
                for topic, indexes in by_topic(checked_partitions(partitions)).items()
            ]

        def build(version: int) -> ListPartitionReassignmentsRequest:
            return ListPartitionReassignmentsRequest(timeout_ms=self._broker_timeout_ms(deadline), topics=topics)

        return await self._controlled(ListPartitionReassignmentsRequest, build, _listed, deadline)

    async def _elect(
        self,
        election: str = "preferred",
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout: float | None = None,
    ) -> Results[TopicPartition, bool]:
        """Elect leaders: of all partitions, or of `partitions`. The result is whether the leader changed.

        election  "preferred": the first replica, if it is in sync. "unclean": any replica, where none in sync is left;
                  this loses records (Kafka 2.4)
        """
        kind = one_of("election", election, _ELECTIONS)
        if kind == UNCLEAN and partitions is None:
            raise ConfigurationError("an unclean election of all partitions", remedy="name the partitions")
        deadline = self._deadline(timeout)
        topics = None
        if partitions is not None:
            topics = [
                ElectLeadersRequest.Topic(topic=topic, partitions=indexes)
                for topic, indexes in by_topic(checked_partitions(partitions)).items()
            ]

        def build(version: int) -> ElectLeadersRequest:
            if kind == UNCLEAN and version < _UNCLEAN_SINCE:
                raise UnsupportedVersionError("the brokers have no unclean election", remedy="this needs Kafka 2.4")
            request = ElectLeadersRequest(topic_partitions=topics, timeout_ms=self._broker_timeout_ms(deadline))
            if version >= _UNCLEAN_SINCE:
                request.election_type = kind
            return request

        return Results(await self._controlled(ElectLeadersRequest, build, _elected, deadline))

    async def _alter(
        self, wanted: Mapping[TopicPartition, list[int] | None], allow_rf_change: bool, deadline: float
    ) -> Results[TopicPartition, None]:
        if not wanted:
            return Results({})
        partition = AlterPartitionReassignmentsRequest.Topic.Partition
        topics = [
            AlterPartitionReassignmentsRequest.Topic(
                name=topic,
                partitions=[partition(partition_index=index, replicas=wanted[topic, index]) for index in indexes],
            )
            for topic, indexes in by_topic(wanted).items()
        ]

        def build(version: int) -> AlterPartitionReassignmentsRequest:
            request = AlterPartitionReassignmentsRequest(timeout_ms=self._broker_timeout_ms(deadline), topics=topics)
            if version >= _FIXED_FACTOR_SINCE:
                request.allow_replication_factor_change = allow_rf_change
            elif not allow_rf_change:
                raise UnsupportedVersionError(
                    "the brokers cannot forbid a change of the number of replicas", remedy="this needs Kafka 4.1"
                )
            return request

        return Results(await self._controlled(AlterPartitionReassignmentsRequest, build, _altered, deadline))


class Partitions(PartitionAdmin):
    """`Admin.partitions`, for threads."""

    reassign = blocking(PartitionAdmin._reassign)
    cancel = blocking(PartitionAdmin._cancel)
    reassignments = blocking(PartitionAdmin._reassignments)
    elect = blocking(PartitionAdmin._elect)


def _altered(response: AlterPartitionReassignmentsResponse) -> dict[TopicPartition, KwireError | None]:
    api = "AlterPartitionReassignments"
    check_code(response.error_code, api, response.error_message)
    return {
        (topic.name, one.partition_index): error_or_none(
            one.error_code, api, one.error_message, topic=topic.name, partition=one.partition_index
        )
        for topic in response.responses
        for one in topic.partitions
    }


def _listed(response: ListPartitionReassignmentsResponse) -> list[Reassignment]:
    check_code(response.error_code, "ListPartitionReassignments", response.error_message)
    found = [
        Reassignment(
            topic.name, one.partition_index, tuple(one.replicas), tuple(one.adding_replicas),
            tuple(one.removing_replicas),
        )
        for topic in response.topics
        for one in topic.partitions
    ]  # fmt: skip
    return sorted(found, key=lambda one: (one.topic, one.partition))


def _elected(response: ElectLeadersResponse) -> dict[TopicPartition, bool | KwireError]:
    check_code(response.error_code, "ElectLeaders")
    found: dict[TopicPartition, bool | KwireError] = {}
    for topic in response.replica_election_results:
        for one in topic.partition_result:
            key = topic.topic, one.partition_id
            if one.error_code == ErrorCode.ELECTION_NOT_NEEDED:
                found[key] = False
                continue
            error = error_or_none(
                one.error_code, "ElectLeaders", one.error_message, topic=topic.topic, partition=one.partition_id
            )
            found[key] = True if error is None else error
    return found
