"""Transactions on virtual time: the coordinator's states, epochs, markers, timeouts, pending offsets, coordinators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kwire.broker.ids import EPOCH_MAX, LAST_EPOCH, ProducerIdAndEpoch
from kwire.broker.offsets import offsets_partition
from kwire.broker.transactions import Transaction, TransactionState
from kwire.errors import ConfigurationError, ErrorCode
from kwire.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from kwire.protocol.messages.describe_transactions import DescribeTransactionsRequest
from kwire.protocol.messages.end_txn import EndTxnRequest
from kwire.protocol.messages.init_producer_id import InitProducerIdRequest
from kwire.protocol.messages.list_transactions import ListTransactionsRequest
from kwire.protocol.messages.offset_fetch import OffsetFetchRequest
from kwire.protocol.messages.produce import ProduceRequest
from kwire.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from kwire.protocol.schema import Request
from kwire.records import ControlRecord, decode_batches
from tests.broker.bench import Bench
from tests.broker.transactions import Topic, Tx
from tests.broker.virtual_cluster import WALL_MS

COMMIT, ABORT = True, False
OLD, NEW = 3, 5  # versions of EndTxn: without and with a new epoch at each end
E = ErrorCode


class TransactionBench(Bench):
    """A cluster with the topic t and transactional producers, whose requests are routed to the right broker."""

    def __init__(self, partitions: int = 1, **options: Any) -> None:
        super().__init__(partitions, **options)
        self.t = Topic("t", self.topic.id)

    def tx(self, id: str = "tx", *, timeout_ms: int = 60_000, begin: bool = True) -> Tx:
        made = Tx(self.route, id, now_ms=WALL_MS, timeout_ms=timeout_ms)
        if begin:
            assert made.init()[0] == 0
        return made

    def route(self, request: Request[Any], version: int) -> Any:
        return self.request(self.broker_for(request), request, version)

    def broker_for(self, request: Request[Any]) -> int:
        if isinstance(request, ProduceRequest):
            return self.leader("t", request.topic_data[0].partition_data[0].index)
        if isinstance(request, TxnOffsetCommitRequest):
            return self.coordinator(request.group_id)
        if isinstance(request, OffsetFetchRequest):
            return self.coordinator(request.groups[0].group_id)
        if isinstance(request, AddPartitionsToTxnRequest):
            return self.coordinator(request.v3_and_below_transactional_id)
        key: str = getattr(request, "transactional_id")  # noqa: B009 - the other APIs of transactions have it
        return self.coordinator(key)

    def transaction(self, id: str = "tx") -> Transaction:
        found = self.state.transactions.get(id)
        assert found is not None
        return found

    def markers(self, partition: int = 0) -> list[tuple[int, int, ControlRecord]]:
        """Return (offset, producer epoch, marker) of each marker in the log."""
        return [
            (stored.base_offset, stored.producer_epoch, stored.batch().control())
            for stored in self.topic.partitions[partition].log
            if stored.is_control
        ]

    def seen(self) -> list[bytes | None]:
        """Return the values that a read_committed consumer sees in t-0."""
        found = self.fetch(committed=True)
        to_come = sorted((aborted.first_offset, aborted.producer_id) for aborted in found.aborted_transactions)
        hidden: set[int] = set()
        values: list[bytes | None] = []
        for part in decode_batches(found.records):
            while to_come and to_come[0][0] <= part.base_offset:
                hidden.add(to_come.pop(0)[1])
            if part.is_control:
                hidden.discard(part.producer_id)
            elif part.producer_id not in hidden:
                values += [record.value for record in part.records()]
        return values


# Each step: its name, the action, the expected result, and the expected state after it.

Step = tuple[str, Callable[[Tx, TransactionBench], Any], Any, TransactionState]
S = TransactionState


def end(commit: bool, version: int, ago: int = 0) -> Callable[[Tx, TransactionBench], Any]:
    return lambda tx, bench: tx.end(commit, version, epoch=tx.epoch - ago if ago else None)


def add(tx: Tx, bench: TransactionBench) -> Any:
    return tx.add(("t", 0))


def write(tx: Tx, bench: TransactionBench) -> Any:
    return tx.produce(bench.t)


OLD_STEPS: list[Step] = [
    ("commit of nothing", end(COMMIT, OLD), (E.INVALID_TXN_STATE, 0), S.EMPTY),
    ("abort of nothing", end(ABORT, OLD), (E.INVALID_TXN_STATE, 0), S.EMPTY),
    ("add", add, [0], S.ONGOING),
    ("add again", add, [0], S.ONGOING),
    ("commit", end(COMMIT, OLD), (0, 0), S.COMPLETE_COMMIT),
    ("commit again", end(COMMIT, OLD), (0, 0), S.COMPLETE_COMMIT),
    ("abort after commit", end(ABORT, OLD), (E.INVALID_TXN_STATE, 0), S.COMPLETE_COMMIT),
    ("next", add, [0], S.ONGOING),
    ("abort", end(ABORT, OLD), (0, 0), S.COMPLETE_ABORT),
    ("abort again", end(ABORT, OLD), (0, 0), S.COMPLETE_ABORT),
    ("commit after abort", end(COMMIT, OLD), (E.INVALID_TXN_STATE, 0), S.COMPLETE_ABORT),
    ("init", lambda tx, bench: tx.init(), (0, 1), S.EMPTY),
    ("zombie", end(COMMIT, OLD, ago=1), (E.PRODUCER_FENCED, 0), S.EMPTY),
    ("old zombie", end(COMMIT, 1, ago=1), (E.INVALID_PRODUCER_EPOCH, 0), S.EMPTY),
]
NEW_STEPS: list[Step] = [
    ("commit of nothing", end(COMMIT, NEW), (E.INVALID_TXN_STATE, 0), S.EMPTY),
    ("abort of nothing", end(ABORT, NEW), (0, 1), S.COMPLETE_ABORT),
    ("abort of nothing again", end(ABORT, NEW, ago=1), (0, 1), S.COMPLETE_ABORT),
    ("write", write, 0, S.ONGOING),
    ("retry of the end before", end(ABORT, NEW, ago=1), (E.PRODUCER_FENCED, 0), S.ONGOING),
    ("commit", end(COMMIT, NEW), (0, 1), S.COMPLETE_COMMIT),
    ("commit again", end(COMMIT, NEW, ago=1), (0, 1), S.COMPLETE_COMMIT),
    ("abort after commit", end(ABORT, NEW, ago=1), (E.INVALID_TXN_STATE, 0), S.COMPLETE_COMMIT),
    ("commit of nothing", end(COMMIT, NEW), (E.INVALID_TXN_STATE, 0), S.COMPLETE_COMMIT),
    ("write", write, 0, S.ONGOING),
    ("abort", end(ABORT, NEW), (0, 1), S.COMPLETE_ABORT),
    ("abort again", end(ABORT, NEW, ago=1), (0, 1), S.COMPLETE_ABORT),
    ("commit after abort", end(COMMIT, NEW, ago=1), (E.INVALID_TXN_STATE, 0), S.COMPLETE_ABORT),
    ("abort of nothing", end(ABORT, NEW), (0, 1), S.COMPLETE_ABORT),
    ("long ago", end(COMMIT, NEW, ago=3), (E.PRODUCER_FENCED, 0), S.COMPLETE_ABORT),
]


@pytest.mark.parametrize("steps", [OLD_STEPS, NEW_STEPS], ids=["old", "new"])
def test_end_txn_in_each_state(steps: Sequence[Step]) -> None:
    bench = TransactionBench()
    tx = bench.tx()
    for name, action, expected, state in steps:
        assert (action(tx, bench), bench.transaction().state) == (expected, state), name


@pytest.mark.parametrize(
    ("commit", "version", "expected"),
    [
        (COMMIT, OLD, E.CONCURRENT_TRANSACTIONS),
        (ABORT, OLD, E.INVALID_TXN_STATE),
        (COMMIT, NEW, E.PRODUCER_FENCED),
    ],
)
def test_end_txn_while_markers_are_being_written(commit: bool, version: int, expected: int) -> None:
    bench = TransactionBench(transaction_marker_ms=20)
    tx = bench.tx()
    tx.add(("t", 0))
    assert tx.produce(bench.t, version=11) == 0
    assert tx.end(COMMIT, OLD) == (0, 0)
    assert bench.transaction().state is S.PREPARE_COMMIT
    assert (bench.seen(), bench.markers()) == ([], [])
    assert tx.end(commit, version, patient=False)[0] == expected
    assert tx.add(("t", 0)) == [E.CONCURRENT_TRANSACTIONS]
    assert tx.add_group("g") == E.CONCURRENT_TRANSACTIONS
    assert tx.init(patient=False)[0] == E.CONCURRENT_TRANSACTIONS
    assert tx.commit_offsets("g", ("t", 0)) == [E.CONCURRENT_TRANSACTIONS]
    bench.advance(0.02)
    assert (bench.seen(), bench.transaction().state) == ([b"v"], S.COMPLETE_COMMIT)
    assert tx.add(("t", 0)) == [0]


@pytest.mark.parametrize("version", [11, 12, 13])
def test_a_write_while_the_last_transaction_completes_is_retriable(version: int) -> None:
    """Produce v11 gets an error that every client retries; v12 gets CONCURRENT_TRANSACTIONS."""
    bench = TransactionBench(partitions=2, transaction_marker_ms=20)
    tx = bench.tx()
    assert tx.produce(bench.t) == 0
    assert tx.end(COMMIT) == (0, 1)
    wanted = E.NOT_ENOUGH_REPLICAS if version < 12 else E.CONCURRENT_TRANSACTIONS
    for partition in (0, 1):
        # The coordinator has the new epoch already, the log has not.
        assert tx.produce(bench.t, version=version, partition=partition) == wanted
    bench.advance(0.02)
    assert tx.produce(bench.t, version=12) == 0


class TestEpochs:
    def test_each_end_of_the_new_protocol_bumps_the_epoch_and_markers_carry_it(self) -> None:
        bench = TransactionBench()
        tx = bench.tx()
        for commit in (COMMIT, ABORT):
            assert tx.produce(bench.t, b"committed" if commit else b"aborted") == 0
            tx.end(commit)
        assert [(offset, epoch, marker.kind) for offset, epoch, marker in bench.markers()] == [
            (1, 1, "commit"), (3, 2, "abort"),
        ]  # fmt: skip
        assert bench.seen() == [b"committed"]
        assert tx.produce(bench.t, epoch=1, sequence=1) == E.INVALID_PRODUCER_EPOCH  # a late write

    def test_the_last_epoch_leads_to_a_new_producer_id(self) -> None:
        bench = TransactionBench()
        tx = bench.tx()
        bench.transaction().epoch = tx.epoch = LAST_EPOCH
        old = tx.pid
        assert tx.produce(bench.t) == 0
        assert tx.end(COMMIT) == (0, -LAST_EPOCH)
        assert (tx.pid, tx.epoch) == (old + 1, 0)
        assert [epoch for _, epoch, _ in bench.markers()] == [EPOCH_MAX]
        assert tx.end(COMMIT, pid=old, epoch=LAST_EPOCH) == (0, -LAST_EPOCH)  # a retry
        assert tx.end(ABORT, pid=old, epoch=LAST_EPOCH) == (E.INVALID_TXN_STATE, 0)
        assert tx.init(expected=(old, LAST_EPOCH)) == (0, 0)  # a producer that missed the response
        assert tx.init(expected=(old, LAST_EPOCH - 1))[0] == E.PRODUCER_FENCED
        assert tx.produce(bench.t) == 0
        assert tx.end(ABORT) == (0, 1)

    def test_end_txn_returns_the_new_id_before_the_markers_are_written(self) -> None:
        bench = TransactionBench(transaction_marker_ms=20)
        tx = bench.tx()
        bench.transaction().epoch = tx.epoch = LAST_EPOCH
        tx.produce(bench.t)
        assert tx.end(COMMIT) == (0, -LAST_EPOCH)
        assert bench.transaction().identity == ProducerIdAndEpoch(0, EPOCH_MAX)
        bench.advance(0.02)
        assert bench.transaction().identity == ProducerIdAndEpoch(1, 0)

    @pytest.mark.parametrize("names_its_epoch", [False, True])
    def test_init_producer_id_returns_a_new_id_after_the_last_epoch(self, names_its_epoch: bool) -> None:
        bench = TransactionBench()
        tx = bench.tx()
        bench.transaction().epoch = tx.epoch = LAST_EPOCH
        had = (tx.pid, tx.epoch)
        assert tx.init(expected=had if names_its_epoch else (-1, -1)) == (0, 0)
        assert tx.pid == had[0] + 1
        assert tx.init(expected=had)[0] == (0 if names_its_epoch else E.PRODUCER_FENCED)  # a retry of it, or a zombie

    @pytest.mark.parametrize("names_its_epoch", [False, True])
    def test_a_timeout_at_the_last_epoch_leads_to_a_new_producer_id(self, names_its_epoch: bool) -> None:
        bench = TransactionBench()
        tx = bench.tx(timeout_ms=100)
        bench.transaction().epoch = tx.epoch = LAST_EPOCH
        tx.add(("t", 0))
        bench.advance(0.1)
        assert bench.transaction().identity == ProducerIdAndEpoch(0, EPOCH_MAX)
        assert tx.init(expected=(0, LAST_EPOCH) if names_its_epoch else (-1, -1)) == (0, 0)
        assert tx.pid == 1


@pytest.mark.parametrize(
    ("claimed", "expected"),
    [
        ((-1, -1), (0, 2)),
        ((0, 1), (0, 2)),
        ((0, 0), (0, 1)),  # a retry of the request that returned epoch 1
        ((0, 2), (E.PRODUCER_FENCED, -1)),
        ((7, 1), (E.PRODUCER_FENCED, -1)),
        ((-1, 1), (E.INVALID_REQUEST, -1)),
        ((0, -1), (E.INVALID_REQUEST, -1)),
    ],
)
def test_init_producer_id_with_a_claimed_epoch(claimed: tuple[int, int], expected: tuple[int, int]) -> None:
    bench = TransactionBench()
    tx = bench.tx()
    tx.init(expected=(0, 0))
    assert tx.init(expected=claimed) == expected


def test_two_phase_commit_is_rejected() -> None:
    bench = TransactionBench()
    codes = []
    for field in ("keep_prepared_txn", "enable2_pc", None):
        request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1000)
        if field is not None:
            setattr(request, field, True)
        codes.append(bench.route(request, 6).error_code)
    assert codes == [E.UNSUPPORTED_VERSION, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, 0]


class TestInitAborts:
    @pytest.mark.parametrize("marker_ms", [0, 50])
    def test_the_open_transaction_is_aborted(self, marker_ms: int) -> None:
        bench = TransactionBench(transaction_marker_ms=marker_ms)
        killed, successor = bench.tx(), bench.tx(begin=False)
        assert killed.produce(bench.t, b"never") == 0
        assert successor.init(patient=False)[0] == E.CONCURRENT_TRANSACTIONS
        if marker_ms:
            assert successor.init(patient=False)[0] == E.CONCURRENT_TRANSACTIONS
            bench.advance(marker_ms / 1000)
        assert successor.init() == (0, 2)
        assert [(epoch, marker.kind) for _, epoch, marker in bench.markers()] == [(1, "abort")]
        assert killed.produce(bench.t, sequence=1) == E.INVALID_PRODUCER_EPOCH
        assert killed.end(COMMIT) == (E.PRODUCER_FENCED, 0)
        assert successor.produce(bench.t, b"seen") == 0
        assert successor.end(COMMIT) == (0, 1)
        bench.advance(marker_ms / 1000)
        assert bench.seen() == [b"seen"]

    def test_a_producer_that_names_its_epoch_continues(self) -> None:
        bench = TransactionBench()
        tx = bench.tx()
        tx.produce(bench.t)
        assert tx.init(expected=(tx.pid, tx.epoch), patient=False)[0] == E.CONCURRENT_TRANSACTIONS
        assert tx.init(expected=(tx.pid, tx.epoch)) == (0, 1)
        assert bench.seen() == []


class TestTimeouts:
    @pytest.mark.parametrize(("version", "expected"), [(1, 47), (OLD, 90), (NEW, 48)])
    def test_a_commit_after_the_timeout_fails(self, version: int, expected: int) -> None:
        bench = TransactionBench()
        tx = bench.tx(timeout_ms=1_000)
        tx.add(("t", 0))
        bench.advance(0.9)
        assert tx.produce(bench.t, version=11) == 0
        assert bench.transaction().state is S.ONGOING
        bench.advance(0.1)
        assert bench.transaction().state is S.COMPLETE_ABORT
        assert tx.end(COMMIT, version) == (expected, 0)
        assert tx.produce(bench.t, sequence=1) == E.INVALID_PRODUCER_EPOCH
        assert bench.seen() == []

    def test_the_timeout_runs_from_the_first_addition_to_the_end(self) -> None:
        bench = TransactionBench()
        tx = bench.tx(timeout_ms=1_000)
        bench.advance(5)
        for _ in range(3):
            assert tx.produce(bench.t) == 0
            bench.advance(0.9)
            assert tx.end(COMMIT) == (0, 1)
        bench.advance(5)
        assert bench.transaction().state is S.COMPLETE_COMMIT
        assert len(bench.state.timers) == len(TransactionBench().state.timers)

    def test_the_client_can_abort_and_continue(self) -> None:
        bench = TransactionBench()
        tx = bench.tx(timeout_ms=1_000)
        tx.produce(bench.t)
        bench.advance(1)
        assert tx.end(ABORT) == (0, 1)
        assert tx.produce(bench.t) == 0

    def test_an_unused_transactional_id_expires(self) -> None:
        bench = TransactionBench(transactional_id_expiration_ms=1_000_000, retention_check_ms=100_000)
        open_one, idle = bench.tx("open", timeout_ms=900_000), bench.tx("idle")
        bench.advance(500)
        open_one.produce(bench.t)
        bench.advance(600)
        assert idle.add(("t", 0)) == [E.INVALID_PRODUCER_ID_MAPPING]
        assert open_one.end(COMMIT) == (0, 1)


class TestMarkers:
    def test_markers_wait_for_a_leader(self) -> None:
        bench = TransactionBench(partitions=3, default_replication_factor=1)
        tx = bench.tx()
        for partition in (0, 1, 2):
            assert tx.produce(bench.t, partition=partition) == 0
        gone = bench.leader("t", 1)
        bench.state.stop_node(gone, bench.now)
        assert tx.end(COMMIT) == (0, 1)
        assert bench.transaction().state is S.PREPARE_COMMIT
        assert [len(bench.markers(n)) for n in range(3)] == [1, 0, 1]
        assert tx.produce(bench.t) == E.CONCURRENT_TRANSACTIONS
        bench.state.start_node(gone, bench.now)
        assert [len(bench.markers(n)) for n in range(3)] == [1, 1, 1]
        assert bench.transaction().state is S.COMPLETE_COMMIT

    def test_markers_are_written_again_if_the_leader_stops_before_replication(self) -> None:
        bench = TransactionBench(replication_ms=100)
        tx = bench.tx()
        waiting = bench.send(bench.leader("t"), self.write(tx))
        bench.advance(0.1)
        assert not waiting.is_pending
        assert tx.end(COMMIT) == (0, 1)
        assert [offset for offset, _, _ in bench.markers()] == [1]
        assert (bench.transaction().state, bench.seen()) == (S.PREPARE_COMMIT, [])
        bench.state.stop_node(bench.leader("t"), bench.now)
        assert [offset for offset, _, _ in bench.markers()] == [1]
        bench.advance(0.1)
        assert (bench.transaction().state, bench.seen()) == (S.COMPLETE_COMMIT, [b"v"])

    def write(self, tx: Tx) -> ProduceRequest:
        caught: list[Any] = []

        def catch(request: Any, version: int) -> Any:
            caught.append(request)
            raise LookupError

        with pytest.raises(LookupError):
            Tx(catch, tx.id, now_ms=WALL_MS).produce(
                Topic("t", TransactionBench().topic.id), pid=tx.pid, epoch=tx.epoch
            )
        (request,) = caught
        assert isinstance(request, ProduceRequest)
        return request

    def test_deleted_topics_need_no_markers(self) -> None:
        bench = TransactionBench(transaction_marker_ms=10)
        tx = bench.tx()
        assert tx.produce(bench.t) == 0
        tx.end(COMMIT)
        bench.state.delete_topic(bench.topic, bench.now)
        bench.advance(0.01)
        assert bench.transaction().state is S.COMPLETE_COMMIT

    def test_a_topic_may_be_deleted_while_markers_wait_for_a_leader(self) -> None:
        bench = TransactionBench(default_replication_factor=1)
        tx = bench.tx()
        tx.produce(bench.t)
        bench.state.stop_node(bench.leader("t"), bench.now)
        tx.end(COMMIT)
        assert bench.transaction().state is S.PREPARE_COMMIT
        bench.state.delete_topic(bench.topic, bench.now)
        assert bench.transaction().state is S.COMPLETE_COMMIT

    def test_two_transactions_in_one_partition_end_independently(self) -> None:
        bench = TransactionBench()
        one, two = bench.tx("one"), bench.tx("two")
        for step in (one, two, one):
            assert step.produce(bench.t, step.id.encode()) == 0
        one.end(COMMIT)
        assert bench.fetch(committed=True).last_stable_offset == 1
        two.end(ABORT)
        assert bench.seen() == [b"one", b"one"]


class TestCoordinators:
    def test_another_broker_returns_not_coordinator(self) -> None:
        bench = TransactionBench()
        tx = bench.tx()
        other = next(id for id in bench.brokers if id != bench.coordinator("tx"))
        tx.send = lambda request, version: bench.request(other, request, version)
        wrong = E.NOT_COORDINATOR
        assert tx.init()[0] == wrong
        assert tx.add(("t", 0)) == [wrong]
        assert tx.add(("t", 0), version=5) == [wrong]
        assert tx.add(("t", 0), version=5, verify=True) == [wrong]
        assert tx.add_group("g") == wrong
        assert tx.end(COMMIT)[0] == wrong
        described = bench.request(other, DescribeTransactionsRequest(transactional_ids=["tx"])).transaction_states
        assert [one.error_code for one in described] == [wrong]
        listed = bench.request(other, ListTransactionsRequest(state_filters=[], producer_id_filters=[]))
        assert listed.transaction_states == []
        group = next(name for name in map(str, range(99)) if bench.coordinator(name) != other)
        assert tx.commit_offsets(group, ("t", 0)) == [wrong]

    @pytest.mark.parametrize("marker_ms", [0, 50])
    def test_the_next_coordinator_continues_the_transactions(self, marker_ms: int) -> None:
        bench = TransactionBench(partitions=3, transaction_marker_ms=marker_ms)
        tx = bench.tx()
        first = bench.coordinator("tx")
        for partition in range(3):
            assert tx.produce(bench.t, partition=partition) == 0
        bench.state.stop_node(first, bench.now)
        second = bench.coordinator("tx")
        assert second != first
        assert tx.end(COMMIT) == (0, 1)
        bench.state.start_node(first, bench.now)
        bench.advance(0.05)
        assert bench.transaction().state is S.COMPLETE_COMMIT
        epochs = {marker.coordinator_epoch for n in range(3) for _, _, marker in bench.markers(n)}
        assert epochs == {2 if marker_ms else 1}
        assert tx.end(COMMIT, epoch=0) == (0, 1)

    def test_a_transaction_times_out_under_the_next_coordinator(self) -> None:
        bench = TransactionBench()
        tx = bench.tx(timeout_ms=1_000)
        tx.produce(bench.t)
        bench.state.stop_node(bench.coordinator("tx"), bench.now)
        bench.advance(1)
        assert bench.transaction().state is S.COMPLETE_ABORT


class TestOffsets:
    PLACE = ("t", 0)

    @pytest.mark.parametrize("version", [4, 5])
    @pytest.mark.parametrize(("commit", "expected"), [(COMMIT, (0, 7)), (ABORT, (0, 3))])
    def test_offsets_become_visible_at_the_commit(self, commit: bool, expected: tuple[int, int], version: int) -> None:
        bench = TransactionBench()
        tx = bench.tx()
        for offset, ends_with in ((3, COMMIT), (7, commit)):
            if version < 5:
                assert tx.commit_offsets("g", self.PLACE, version=version) == [E.TRANSACTION_ABORTABLE]
                assert tx.add_group("g") == 0
            assert tx.commit_offsets("g", self.PLACE, version=version, offset=offset) == [0]
            assert tx.offsets_of("g", self.PLACE) == [(E.UNSTABLE_OFFSET_COMMIT, -1)]
            before = -1 if offset == 3 else 3
            assert tx.offsets_of("g", self.PLACE, stable=False) == [(0, before)]
            assert tx.end(ends_with) == (0, 1)
        assert tx.offsets_of("g", self.PLACE) == [expected]

    def test_two_producers_commit_offsets_in_one_group(self) -> None:
        bench = TransactionBench(partitions=2)
        one, two = bench.tx("one"), bench.tx("two")
        one.commit_offsets("g", ("t", 0), offset=1)
        two.commit_offsets("g", ("t", 1), offset=2)
        one.end(COMMIT)
        assert one.offsets_of("g", ("t", 0), ("t", 1)) == [(0, 1), (E.UNSTABLE_OFFSET_COMMIT, -1)]
        two.end(COMMIT)
        assert one.offsets_of("g", ("t", 0), ("t", 1)) == [(0, 1), (0, 2)]

    def test_offsets_are_committed_by_topic_id(self) -> None:
        bench = TransactionBench()
        tx = bench.tx()
        assert tx.commit_offsets("g", self.PLACE, version=6, id=bench.topic.id, offset=9) == [0]
        tx.end(COMMIT)
        assert tx.offsets_of("g", self.PLACE) == [(0, 9)]

    def test_offsets_of_a_timed_out_transaction_are_dropped(self) -> None:
        bench = TransactionBench()
        tx = bench.tx(timeout_ms=1_000)
        tx.commit_offsets("g", self.PLACE)
        bench.advance(1)
        assert tx.offsets_of("g", self.PLACE) == [(0, -1)]

    @pytest.mark.parametrize(
        ("group", "partition"),
        [("", 0), ("g", 3), ("test", 48), ("x" * 99, 18), ("gr\u00fcppe", 12), ("\U0001f600", 49)],
    )
    def test_javas_hash_selects_the_partition_of_a_group(self, group: str, partition: int) -> None:
        assert offsets_partition(group) == partition


def test_writes_of_the_older_protocol_are_verified_by_default() -> None:
    for verify, expected in ((True, E.TRANSACTION_ABORTABLE), (False, 0)):
        bench = TransactionBench(verify_transactional_writes=verify)
        assert bench.tx().produce(bench.t, version=11) == expected


def test_a_duplicate_in_a_transaction_succeeds_like_the_first() -> None:
    bench = TransactionBench()
    tx = bench.tx()
    assert [tx.produce(bench.t, sequence=0) for _ in range(2)] == [0, 0]
    assert bench.topic.partitions[0].log.end_offset == 1


def test_a_non_transactional_write_during_the_transaction_is_rejected() -> None:
    bench = TransactionBench()
    tx = bench.tx()
    tx.produce(bench.t)
    assert tx.produce(bench.t, sequence=1, transactional=False) == E.INVALID_TXN_STATE


def test_transactional_ids_and_timeouts_are_limited() -> None:
    bench = TransactionBench(max_transactional_ids=1)
    bench.tx("one")
    assert bench.tx("two", begin=False).init()[0] == E.COORDINATOR_NOT_AVAILABLE
    with pytest.raises(ConfigurationError):
        TransactionBench(transaction_version=3)


def test_a_delayed_end_of_the_older_protocol_ends_the_next_transaction() -> None:
    """KAFKA-17754, as in Kafka: only the new protocol can distinguish the two, by the epoch."""
    for version in (OLD, NEW):
        bench = TransactionBench()
        tx = bench.tx()
        tx.add(("t", 0))
        tx.produce(bench.t, b"first", version=11)
        late = EndTxnRequest(transactional_id="tx", producer_id=tx.pid, producer_epoch=tx.epoch, committed=True)
        assert tx.end(COMMIT, version)[0] == 0
        tx.add(("t", 0))
        tx.produce(bench.t, b"second", version=11)
        expected = bench.route(late, version).error_code
        wanted = (0, [b"first", b"second"]) if version == OLD else (E.PRODUCER_FENCED, [b"first"])
        assert (expected, bench.seen()) == wanted
