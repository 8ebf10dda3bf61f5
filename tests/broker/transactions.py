"""A transactional producer for tests that sends one request at a time and returns the relevant fields.

`send(request, version)` returns the response. It may choose the broker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

from kwire.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kwire.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kwire.protocol.messages.end_txn import EndTxnRequest
from kwire.protocol.messages.init_producer_id import InitProducerIdRequest
from kwire.protocol.messages.offset_fetch import OffsetFetchRequest
from kwire.protocol.messages.produce import ProduceRequest
from kwire.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from kwire.records import encode_batch
from tests.waiting import wait_for

CONCURRENT = 51
Send = Callable[..., Any]
NOBODY = (-1, -1)


class Topic(NamedTuple):
    name: str
    id: UUID


class Tx:
    """A producer. `pid` and `epoch` are the last ones it got; a call may name others, as a zombie does."""

    def __init__(self, send: Send, id: str, *, now_ms: int, timeout_ms: int = 60_000) -> None:
        self.send = send
        self.id = id
        self.now_ms = now_ms
        self.timeout_ms = timeout_ms
        self.pid = self.epoch = -1
        self.sequences: dict[tuple[str, int, int], int] = {}

    def init(self, version: int = 5, *, expected: tuple[int, int] = NOBODY, patient: bool = True) -> tuple[int, int]:
        """Return (error, epoch). `patient`: retry CONCURRENT_TRANSACTIONS."""
        request = InitProducerIdRequest(transactional_id=self.id, transaction_timeout_ms=self.timeout_ms)
        if version >= 3:
            request.producer_id, request.producer_epoch = expected
        response = self._send(request, version, patient)
        if not response.error_code:
            self.pid, self.epoch = response.producer_id, response.producer_epoch
        return response.error_code, response.producer_epoch

    def add(
        self, *partitions: tuple[str, int], version: int = 3, pid: int | None = None, epoch: int | None = None,
        verify: bool = False,
    ) -> list[int]:  # fmt: skip
        topics = [AddPartitionsToTxnTopic(name=name, partitions=[index]) for name, index in partitions]
        identity = self._identity(pid, epoch)
        if version < 4:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.id, v3_and_below_producer_id=identity[0],
                v3_and_below_producer_epoch=identity[1], v3_and_below_topics=topics,
            )  # fmt: skip
        else:
            transaction = AddPartitionsToTxnRequest.Transaction(
                transactional_id=self.id,
                producer_id=identity[0],
                producer_epoch=identity[1],
                verify_only=verify,
                topics=topics,
            )
            request = AddPartitionsToTxnRequest(transactions=[transaction])
        response = self.send(request, version)
        results = [topic for result in response.results_by_transaction for topic in result.topic_results]
        codes = {
            (topic.name, p.partition_index): p.partition_error_code
            for topic in response.results_by_topic_v3_and_below or results
            for p in topic.results_by_partition
        }
        return [codes[partition] for partition in partitions]

    def produce(
        self, topic: Topic, value: bytes = b"v", version: int = 12, *, partition: int = 0, pid: int | None = None,
        epoch: int | None = None, sequence: int | None = None, transactional: bool = True, id: str | None = None,
    ) -> int:  # fmt: skip
        """Return the error. The sequence is the next one of this epoch by default."""
        identity = self._identity(pid, epoch)
        at = (topic.name, partition, identity[1])
        records = encode_batch(
            [(self.now_ms, b"k", value, ())], producer_id=identity[0], producer_epoch=identity[1],
            base_sequence=self.sequences.get(at, 0) if sequence is None else sequence, is_transactional=transactional,
        )  # fmt: skip
        data = ProduceRequest.Topic.Partition(index=partition, records=records)
        topic_data = ProduceRequest.Topic(name=topic.name, topic_id=topic.id, partition_data=[data])
        request = ProduceRequest(
            transactional_id=self.id if id is None else id, acks=-1, timeout_ms=1000, topic_data=[topic_data]
        )
        code: int = self.send(request, version).responses[0].partition_responses[0].error_code
        if not code and sequence is None:
            self.sequences[at] = self.sequences.get(at, 0) + 1
        return code

    def end(
        self, commit: bool, version: int = 5, *, pid: int | None = None, epoch: int | None = None, patient: bool = True
    ) -> tuple[int, int]:
        """Return (error, increase of the epoch), and adopt the new epoch."""
        identity = self._identity(pid, epoch)
        request = EndTxnRequest(
            transactional_id=self.id, producer_id=identity[0], producer_epoch=identity[1], committed=commit
        )
        response = self._send(request, version, patient)
        if response.error_code or version < 5:
            return response.error_code, 0
        if epoch is None:
            self.pid, self.epoch = response.producer_id, response.producer_epoch
        return 0, response.producer_epoch - identity[1]

    def add_group(self, group: str, version: int = 3, *, pid: int | None = None, epoch: int | None = None) -> int:
        identity = self._identity(pid, epoch)
        request = AddOffsetsToTxnRequest(
            transactional_id=self.id, producer_id=identity[0], producer_epoch=identity[1], group_id=group
        )
        code: int = self.send(request, version).error_code
        return code

    def commit_offsets(
        self, group: str, *partitions: tuple[str, int], version: int = 5, offset: int = 5, pid: int | None = None,
        epoch: int | None = None, generation: int = -1, member_id: str = "", metadata: str = "",
        instance_id: str | None = None, id: UUID | None = None,
    ) -> list[int]:  # fmt: skip
        identity = self._identity(pid, epoch)
        request = TxnOffsetCommitRequest(
            transactional_id=self.id, group_id=group, producer_id=identity[0], producer_epoch=identity[1],
            topics=[
                TxnOffsetCommitRequest.Topic(
                    name=name, topic_id=id or UUID(int=0),
                    partitions=[
                        TxnOffsetCommitRequest.Topic.Partition(
                            partition_index=index, committed_offset=offset, committed_metadata=metadata
                        )
                    ],
                )
                for name, index in partitions
            ],
        )  # fmt: skip
        if version >= 3:
            request.generation_id_or_member_epoch, request.member_id = generation, member_id
            request.group_instance_id = instance_id
        response = self.send(request, version)
        codes = {(t.name, p.partition_index): p.error_code for t in response.topics for p in t.partitions}
        return [codes["" if version >= 6 else name, index] for name, index in partitions]

    def offsets_of(self, group: str, *partitions: tuple[str, int], stable: bool = True) -> list[tuple[int, int]]:
        """Return (error, offset) of each partition."""
        topics = [OffsetFetchRequest.Group.Topic(name=name, partition_indexes=[index]) for name, index in partitions]
        request = OffsetFetchRequest(
            require_stable=stable, groups=[OffsetFetchRequest.Group(group_id=group, topics=topics)]
        )
        (response,) = self.send(request, 9).groups
        codes = {
            (t.name, p.partition_index): (p.error_code, p.committed_offset)
            for t in response.topics
            for p in t.partitions
        }
        return [codes[partition] for partition in partitions]

    def _send(self, request: Any, version: int, patient: bool) -> Any:
        return wait_for(
            lambda: self.send(request, version), lambda found: found.error_code != CONCURRENT or not patient
        )

    def _identity(self, pid: int | None, epoch: int | None) -> tuple[int, int]:
        return self.pid if pid is None else pid, self.epoch if epoch is None else epoch
