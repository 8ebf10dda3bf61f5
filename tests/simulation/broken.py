"""Senders with one bug each, which some client has had. The simulation must find them.

Each function breaks the producer with pytest's `MonkeyPatch`, which restores it.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from kwire.cluster import ClusterView, PendingRequest
from kwire.consumer.buffer import BatchFilter
from kwire.errors import ErrorCode
from kwire.producer import partition, responses
from kwire.producer.batch import NO_SEQUENCE, ProducerBatch
from kwire.producer.partition import PartitionQueue
from kwire.producer.producer_id import ProducerIdState
from kwire.producer.responses import ErrorAction, PartitionResult, ResponseHandler
from kwire.producer.transaction import Transaction


def no_first_ack_gate(patch: pytest.MonkeyPatch) -> None:
    """KAFKA-15591: five batches go to a leader that has acknowledged none."""
    intact = PartitionQueue.blocked_reason

    def blocked_reason(queue: PartitionQueue, leader: tuple[int, int], now: float) -> str | None:
        if not queue._in_flight:
            queue.leader = leader
        queue._proven_until = float("inf")
        return intact(queue, leader, now)

    patch.setattr(PartitionQueue, "blocked_reason", blocked_reason)


def a_first_ack_gate_that_stays_open(patch: pytest.MonkeyPatch) -> None:
    """An acknowledgement counts as proof for ever, although the leader may drop its producer state."""
    patch.setattr(partition, "_PROOF_LASTS", 1e9)


def back_of_the_queue(patch: pytest.MonkeyPatch) -> None:
    """Several bugs of Sarama: failed batches go behind newer ones."""

    def settle(queue: PartitionQueue) -> None:
        if not queue._in_flight and queue._retrying:
            queue.queued.extend(queue._retrying)
            queue._retrying.clear()

    patch.setattr(PartitionQueue, "_requeue_retrying", settle)


def sequence_used_again(patch: pytest.MonkeyPatch) -> None:
    """franz-go#1217: a batch gets the sequence of one that expired, and is taken for a duplicate of it."""
    patch.setattr(ProducerIdState, "require_epoch_bump", lambda identity: None)
    intact = PartitionQueue.expired

    def expired(queue: PartitionQueue, now: float) -> list[ProducerBatch]:
        overdue = intact(queue, now)
        used = [batch.sequence for batch in overdue if batch.is_sequenced]
        if used:
            queue.next_sequence = used[0]
        return overdue

    patch.setattr(PartitionQueue, "expired", expired)


def new_identity_for_what_may_be_stored(patch: pytest.MonkeyPatch) -> None:
    """KAFKA-14034: after an epoch bump a batch that may be stored is sent again as a new one."""

    def unstamp(batch: ProducerBatch) -> None:
        batch.sequence, batch.encoded = NO_SEQUENCE, None

    patch.setattr(PartitionQueue, "sequenced_possibly_persisted", lambda queue: False)
    patch.setattr(ProducerBatch, "clear_producer_state", unstamp)


def new_leader_at_once(patch: pytest.MonkeyPatch) -> None:
    """The new leader gets a batch before the old one has responded."""
    intact, take = PartitionQueue.blocked_reason, PartitionQueue.take

    def blocked_reason(queue: PartitionQueue, leader: tuple[int, int], now: float) -> str | None:
        if queue.leader is None or queue.leader[0] == leader[0]:
            return intact(queue, leader, now)
        out, queue._in_flight = queue._in_flight, deque()
        try:
            return intact(queue, leader, now)
        finally:
            queue._in_flight = out

    def take_at_once(queue: PartitionQueue, leader: tuple[int, int]) -> ProducerBatch:
        if queue._in_flight:
            queue.leader = leader
        return take(queue, leader)

    patch.setattr(PartitionQueue, "blocked_reason", blocked_reason)
    patch.setattr(PartitionQueue, "take", take_at_once)


def not_the_leader_is_taken_for_no(patch: pytest.MonkeyPatch) -> None:
    """NOT_LEADER_OR_FOLLOWER is taken as proof that the leader has not appended the batch."""
    table = {**responses._ACTIONS, ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorAction.RETRY}
    patch.setattr(responses, "_ACTIONS", table)


def the_offset_of_a_refusal_is_ignored(patch: pytest.MonkeyPatch) -> None:
    intact = responses.partition_results

    def results(*args: Any) -> dict[tuple[str, int], PartitionResult]:
        found = intact(*args)
        for result in found.values():
            if result.error_code:
                result.base_offset = -1
        return found

    patch.setattr(responses, "partition_results", results)


def resolutions_out_of_order(patch: pytest.MonkeyPatch) -> None:
    def resolve(self: ResponseHandler, batch: ProducerBatch, error: Any) -> None:
        batch.close()
        batch.is_decided, batch.error = True, error
        if batch.unresolved is not None:
            batch.unresolved.remove(batch)
        self._decided.append(batch)

    patch.setattr(responses.ResponseHandler, "_resolve", resolve)


def failed_batch_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Its responses never resolve."""
    patch.setattr(PartitionQueue, "retry", lambda queue, batch, retry_at: queue.failed(batch))


def idle_partitions_keep_their_sequence(patch: pytest.MonkeyPatch) -> None:
    """KAFKA-12152: only partitions with queued batches restart their sequences in a new epoch."""
    intact = PartitionQueue.restart_sequences

    def restart(queue: PartitionQueue) -> None:
        if not queue.is_idle:
            intact(queue)

    patch.setattr(PartitionQueue, "restart_sequences", restart)


def only_the_first_expires(patch: pytest.MonkeyPatch) -> None:
    """kafka-python 3.0.11: an exception ends the loop over expired batches."""
    intact = ResponseHandler.fail_delivery
    failed: list[ProducerBatch] = []

    def fail_delivery(self: ResponseHandler, batch: ProducerBatch, what: str, cause: Any) -> None:
        if not failed:
            failed.append(batch)
            intact(self, batch, what, cause)

    patch.setattr(ResponseHandler, "fail_delivery", fail_delivery)


# Transactions.


def no_new_epoch_after_doubt(patch: pytest.MonkeyPatch) -> None:
    """KAFKA-17754: a late EndTxn of the older protocol ends the next transaction."""

    def ended(transaction: Transaction) -> None:
        transaction._in_doubt = False
        intact(transaction)

    intact = Transaction._ended
    patch.setattr(Transaction, "_ended", ended)


def commit_before_all_is_written(patch: pytest.MonkeyPatch) -> None:
    """EndTxn does not wait for the batches."""
    intact = Transaction.requests

    def calls(transaction: Transaction, now: float, view: ClusterView, *, is_drained: bool) -> list[PendingRequest]:
        return intact(transaction, now, view, is_drained=True)

    patch.setattr(Transaction, "requests", calls)


def commit_whatever_failed(patch: pytest.MonkeyPatch) -> None:
    """A record that could not be delivered does not keep the rest from being committed."""
    patch.setattr(Transaction, "fail", lambda transaction, error, in_produce=False: None)


def aborted_records_are_read(patch: pytest.MonkeyPatch) -> None:
    """The reader does not look at the list of aborted transactions."""
    patch.setattr(BatchFilter, "hides", lambda _, batch: batch.is_control)
