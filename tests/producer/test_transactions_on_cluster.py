"""kwire's transactional producer on the embedded cluster, over real sockets: what failures leave to be read.

Whatever goes wrong, a consumer with read_committed sees the transactions that were committed, whole, in order and once,
and nothing of the others.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import kwire
from kwire.broker import ApplyLate, Cluster, Cut, Delay, Disconnect, Fault, Mute, Refuse
from kwire.broker.faults import Effect
from kwire.broker.ids import LAST_EPOCH
from kwire.broker.transactions import ENDING, TransactionState
from kwire.errors import AbortableError, ErrorCode, FencedError, TransactionError
from kwire.producer.transaction import Transaction
from kwire.protocol import ApiKey
from kwire.records import decode_batches

PARTITIONS = 3
PATIENCE = 10
E = ErrorCode

# The kinds of cluster, and the transaction APIs that clients use with each.
OLD: dict[str, Any] = {"transaction_version": 1}
NEW: dict[str, Any] = {"transaction_version": 2}
BEFORE_KIP_890: dict[str, Any] = {
    "transaction_version": 0,
    "api_versions": {
        ApiKey.PRODUCE: range(10),
        ApiKey.INIT_PRODUCER_ID: range(5),
        ApiKey.ADD_PARTITIONS_TO_TXN: range(4),
        ApiKey.ADD_OFFSETS_TO_TXN: range(4),
        ApiKey.END_TXN: range(4),
        ApiKey.TXN_OFFSET_COMMIT: range(4),
    },
}
PROTOCOLS = {"old": OLD, "new": NEW, "before KIP-890": BEFORE_KIP_890}

INIT, ADD, OFFSETS, END, GROUP_OFFSETS = (
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
)


def cluster_of(protocol: str, **options: Any) -> Cluster:
    cluster = Cluster(brokers=2, **{**PROTOCOLS[protocol], **options})
    cluster.create_topic("t", partitions=PARTITIONS)
    cluster.create_topic("in", partitions=1)
    return cluster


def producer_on(cluster: Cluster, **options: Any) -> kwire.Producer:
    quick = {"linger_ms": 0, "retry_backoff_ms": 5, "reconnect_backoff_ms": 5, "request_timeout_ms": 200}
    return kwire.Producer(cluster.bootstrap, **{**quick, "transactional_id": "tx", **options})


def visible(cluster: Cluster) -> dict[int, list[int]]:
    """Return what read_committed sees of each partition, by the log's aborted transactions."""

    def read(state: Any, now: float) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for index in range(PARTITIONS):
            log = state.partition("t", index).log
            stored = log.read(log.start_offset, max_bytes=1 << 30, upper_bound=log.last_stable_offset)
            aborted = log.aborted_between(0, log.end_offset)
            found[index] = [
                int(record.value or b"")
                for batch in decode_batches(b"".join(one.data for one in stored))
                if not batch.is_control
                and not any(
                    one.producer_id == batch.producer_id and one.first_offset <= batch.base_offset <= one.last_offset
                    for one in aborted
                )
                for record in batch.records()
            ]
        return found

    return cluster.call(read)


def wait(cluster: Cluster, ms: int) -> None:
    """Wait until the cluster's timers have advanced."""
    passed = threading.Event()
    cluster.call(lambda state, now: state.timers.at(now + ms / 1000, lambda now: passed.set()))
    assert passed.wait(PATIENCE)


def check_visible(cluster: Cluster, numbers: list[int]) -> None:
    while cluster.call(lambda state, now: any(one.state in ENDING for one in state.transactions)):
        wait(cluster, 5)
    logs = visible(cluster)
    for index, values in logs.items():
        assert values == sorted(values), f"partition {index} is out of order"
    assert sorted(value for values in logs.values() for value in values) == numbers
    assert cluster.failures == ()


@dataclass
class Job:
    """Copies numbers in transactions of ten, with offsets, as a read-process-write job does. Where the producer has to
    be given up it makes another, as such a job does."""

    cluster: Cluster
    options: dict[str, Any]
    committed: int = 0  # transactions that are known to be
    aborted: int = 0
    fatal: int = 0

    def __post_init__(self) -> None:
        self.producer = producer_on(self.cluster, **self.options)

    def run(
        self,
        transactions: int,
        between: Callable[[int], object] = lambda n: None,
        after_each: Callable[[Job], object] = lambda job: None,
    ) -> None:
        """Retry each until it is committed; check one with an unknown result by its offset."""
        for n in range(transactions):
            while not self._attempt(n, between) and not self._is_committed(n):
                pass
            self.committed += 1
            after_each(self)

    def _attempt(self, n: int, between: Callable[[int], object]) -> bool:
        """Return whether the transaction is certainly committed."""
        try:
            self.producer.begin(PATIENCE)
            for number in range(10 * n, 10 * n + 10):
                self.producer.send("t", b"%d" % number, partition=number % PARTITIONS)
            between(n)
            self.producer.send_offsets({("in", 0): n + 1}, "group", PATIENCE)
            self.producer.commit(PATIENCE)
        except AbortableError:
            self.aborted += 1
            try:
                self.producer.abort(PATIENCE)
            except TransactionError:
                self._renew()
            return False
        except TransactionError:
            self._renew()
            return False
        return True

    def _renew(self) -> None:
        self.fatal += 1
        self.replace()
        self.producer.init_transactions(PATIENCE)  # ends what the former has left open

    def replace(self) -> None:
        self.producer.close(0)
        self.producer = producer_on(self.cluster, **self.options)

    def _is_committed(self, n: int) -> bool:
        return self.cluster.committed("group").get(("in", 0), 0) > n


def run_job(cluster: Cluster, transactions: int = 5, **more: Any) -> Job:
    options = more.pop("options", {})
    job = Job(cluster, options)
    try:
        job.run(transactions, **more)
    finally:
        job.producer.close()
    check_visible(cluster, list(range(10 * transactions)))
    return job


EFFECTS: list[Effect] = [
    Disconnect(),
    Disconnect(applied=True),
    Cut(keep_bytes=3),
    Cut(keep_bytes=20),
    Delay(ms=30),
    Delay(ms=30, applied=True),
    Mute(),
    Mute(applied=True),
    ApplyLate(ms=20),
    Refuse(E.COORDINATOR_NOT_AVAILABLE),
    Refuse(E.COORDINATOR_LOAD_IN_PROGRESS),
    Refuse(E.NOT_COORDINATOR),
    Refuse(E.CONCURRENT_TRANSACTIONS),
    Refuse(E.REQUEST_TIMED_OUT, applied=True),
]


def strike(cluster: Cluster, api: ApiKey) -> list[Fault]:
    """Every effect befalls one request of the API, with one that is spared after each: the n-th rule sees what the ones
    before it have left, so it lets n pass."""
    return [cluster.add_fault(effect, api=api, after=n) for n, effect in enumerate(EFFECTS)]


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("api", [ADD, OFFSETS, END, GROUP_OFFSETS], ids=lambda api: api.name)
def test_failures_of_one_api(api: ApiKey, protocol: str) -> None:
    """Every transaction is committed by the same producer, since none of them is a reason to give it up."""
    with cluster_of(protocol) as cluster:
        faults = strike(cluster, api)
        job = run_job(cluster, len(EFFECTS) + 3)
        is_used = protocol != "new" or api not in (ADD, OFFSETS)
        assert [fault.hits for fault in faults] == [int(is_used)] * len(EFFECTS)
        assert (job.aborted, job.fatal) == (0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_failures_of_the_first_request(protocol: str) -> None:
    """A new producer for each transaction, with the same id. A late InitProducerId of its own may fence it, as in
    Kafka, since it had no epoch to name yet: that costs the producer, and no record."""
    with cluster_of(protocol) as cluster:
        faults = strike(cluster, INIT)
        job = run_job(cluster, len(EFFECTS) + 3, after_each=Job.replace)
        assert [fault.hits for fault in faults] == [1] * len(EFFECTS)
        assert job.fatal + job.aborted <= 2


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_failures_of_writes(protocol: str) -> None:
    effects = [effect for effect in EFFECTS if not isinstance(effect, Refuse)]
    codes = (E.NOT_LEADER_OR_FOLLOWER, E.NOT_ENOUGH_REPLICAS, E.KAFKA_STORAGE_ERROR, E.CONCURRENT_TRANSACTIONS)
    with cluster_of(protocol) as cluster:
        wanted = [*effects, *(Refuse(code) for code in codes), Refuse(E.REQUEST_TIMED_OUT, applied=True)]
        faults = [cluster.add_fault(effect, api=ApiKey.PRODUCE, after=2 * n) for n, effect in enumerate(wanted)]
        job = run_job(cluster, 3 * len(wanted))
        assert [fault.hits for fault in faults] == [1] * len(wanted)
        assert job.fatal == 0


REFUSALS = [
    # API, code, whether it can be said after the request was request out, (aborted, fatal)
    (ADD, E.TOPIC_AUTHORIZATION_FAILED, False, (1, 0)),
    (ADD, E.PRODUCER_FENCED, False, (0, 1)),
    (ADD, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, False, (0, 1)),
    (OFFSETS, E.GROUP_AUTHORIZATION_FAILED, False, (1, 0)),
    (GROUP_OFFSETS, E.ILLEGAL_GENERATION, False, (1, 0)),
    (GROUP_OFFSETS, E.FENCED_INSTANCE_ID, False, (1, 0)),
    (GROUP_OFFSETS, E.TRANSACTION_ABORTABLE, True, (1, 0)),
    (GROUP_OFFSETS, E.INVALID_PRODUCER_EPOCH, False, (0, 1)),
    (END, E.INVALID_TXN_STATE, False, (0, 1)),
    (END, E.INVALID_TXN_STATE, True, (0, 1)),
    (END, E.PRODUCER_FENCED, True, (0, 1)),
    (ApiKey.PRODUCE, E.INVALID_PRODUCER_EPOCH, False, (1, 0)),
    (ApiKey.PRODUCE, E.TRANSACTION_ABORTABLE, True, (1, 0)),
    (ApiKey.PRODUCE, E.INVALID_RECORD, False, (1, 0)),
]


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["old", "new"])
@pytest.mark.parametrize(("api", "code", "applied", "cost"), REFUSALS)
def test_refusals_cost_a_transaction_or_the_producer_and_no_record(
    api: ApiKey, code: ErrorCode, applied: bool, cost: tuple[int, int], protocol: str
) -> None:
    with cluster_of(protocol) as cluster:
        fault = cluster.add_fault(Refuse(code, applied=applied), api=api, after=1)
        job = run_job(cluster, 3, options={"request_timeout_ms": 30_000})  # a late refusal is one, too
        assert (job.aborted, job.fatal) == (cost if fault.hits else (0, 0))
        assert fault.hits == int(protocol == "old" or api not in (ADD, OFFSETS))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("marker_ms", [0, 15])
def test_brokers_stop_and_come_back_in_the_middle(marker_ms: int, protocol: str) -> None:
    """Each broker in turn stops between the records and the offsets of a transaction, and restarts in the next."""
    with cluster_of(protocol, transaction_marker_ms=marker_ms) as cluster:

        def bounce(n: int) -> None:
            node = 1 + n // 2 % 2
            if n % 2:
                cluster.restart(node)
            else:
                cluster.stop(node)

        job = run_job(cluster, 8, between=bounce)
        assert job.fatal == 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_markers_that_take_their_time(protocol: str) -> None:
    with cluster_of(protocol, transaction_marker_ms=20) as cluster:
        job = run_job(cluster, 8)
        assert (job.aborted, job.fatal) == (0, 0)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_aborted_transactions_are_never_seen(protocol: str) -> None:
    with cluster_of(protocol) as cluster, producer_on(cluster) as producer:
        for n in range(9):
            producer.begin()
            producer.send("t", b"%d" % n, partition=n % PARTITIONS)
            producer.send_offsets({("in", 0): n + 1}, "group")
            if n % 3 == 1:
                producer.flush(PATIENCE)
            if n % 3 == 2:
                producer.commit()
            else:
                producer.abort()
            assert cluster.committed("group").get(("in", 0), 0) == (n + 1) // 3 * 3
        check_visible(cluster, [2, 5, 8])


def test_an_abort_that_fails_does_not_hide_the_error_of_the_block(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(producer: kwire.Producer) -> None:
        with producer.transaction():
            producer.send("t", b"0", partition=0)
            producer.flush(PATIENCE)
            raise LookupError("mine")

    monkeypatch.setattr("kwire.producer.methods._ABORT_SECONDS", 0.1)
    with cluster_of("new") as cluster, producer_on(cluster) as producer:
        cluster.add_fault(Mute(), api=END, times=None)
        with pytest.raises(LookupError, match="mine") as raised:
            fail(producer)
        cluster.clear_faults()
    assert raised.value.__context__ is None
    assert "the transaction that raised LookupError is not aborted: abort() is not done after 0.1 s" in caplog.text


class TestDelayedEnd:
    """KAFKA-17754: an EndTxn that timed out at the client arrives when its next transaction is open."""

    @pytest.mark.parametrize("protocol", PROTOCOLS)
    def test_does_not_end_the_next_transaction(self, protocol: str) -> None:
        with cluster_of(protocol) as cluster:
            self.provoke(cluster)
            check_visible(cluster, [1, 4])

    @pytest.mark.parametrize(("protocol", "torn"), [("old", True), ("new", False)])
    def test_would_without_the_defence(self, protocol: str, torn: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        """Prove that the test provokes the defect."""
        monkeypatch.setattr(Transaction, "_in_doubt", property(lambda self: False, lambda self, value: None), False)
        with cluster_of(protocol) as cluster:
            self.provoke(cluster)
            check_visible(cluster, [1, 2, 4] if torn else [1, 4])

    def provoke(self, cluster: Cluster) -> None:
        cluster.add_fault(ApplyLate(ms=150), api=END)
        with producer_on(cluster) as producer:
            producer.begin()
            producer.send("t", b"1", partition=0)
            producer.commit(PATIENCE)
            producer.begin(PATIENCE)
            producer.send("t", b"2", partition=0)
            producer.flush(PATIENCE)
            wait(cluster, 200)
            with contextlib.suppress(TransactionError):
                producer.send("t", b"3", partition=1)
                producer.flush(PATIENCE)
                producer.abort(PATIENCE)
        with producer_on(cluster) as producer:
            producer.begin(PATIENCE)
            producer.send("t", b"4", partition=0)
            producer.commit(PATIENCE)


class TestDelayedBegin:
    """An AddPartitionsToTxn that timed out at the client arrives after its transaction ended, and begins another."""

    @pytest.mark.parametrize("protocol", ["old", "before KIP-890"])
    @pytest.mark.parametrize("is_defended", [True, False])
    def test_begins_no_transaction_that_nobody_ends(
        self, protocol: str, is_defended: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if not is_defended:  # proves that the test provokes the defect
            never = property(lambda self: False, lambda self, value: None)
            monkeypatch.setattr(Transaction, "_in_doubt", never, False)
        with cluster_of(protocol) as cluster, producer_on(cluster) as producer:
            cluster.add_fault(ApplyLate(ms=400), api=ADD)
            with producer.transaction(PATIENCE):
                producer.send("t", b"1", partition=0)
            producer.init_transactions(PATIENCE)
            wait(cluster, 500)
            state = cluster.call(lambda state, now: next(iter(state.transactions)).state)
            assert (state is TransactionState.ONGOING) is not is_defended
            check_visible(cluster, [1])


@pytest.mark.parametrize("protocol", PROTOCOLS)
class TestEndsOfProducers:
    def test_a_newer_one_fences_the_older(self, protocol: str) -> None:
        with cluster_of(protocol) as cluster, producer_on(cluster) as older, producer_on(cluster) as newer:
            older.begin()
            older.send("t", b"1", partition=0)
            older.flush(PATIENCE)
            newer.begin(PATIENCE)
            newer.send("t", b"2", partition=0)
            late = older.send("t", b"3", partition=1)
            with pytest.raises(TransactionError):
                older.commit(PATIENCE)
            assert late.exception(PATIENCE) is not None
            with pytest.raises(FencedError):
                older.abort(PATIENCE)
            newer.commit(PATIENCE)
            check_visible(cluster, [2])

    def test_a_transaction_of_a_killed_process_is_aborted_by_its_successor(self, protocol: str) -> None:
        with cluster_of(protocol) as cluster:
            killed = subprocess.Popen(
                [sys.executable, "-c", KILLED, cluster.bootstrap], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            with killed:
                assert killed.stdout is not None
                assert killed.stdout.readline() == b"written\n"
                killed.kill()
            assert cluster.log("t", 0).last_stable_offset == 0
            with producer_on(cluster) as heir:
                heir.init_transactions(PATIENCE)
                log = cluster.log("t", 0)
                assert (log.last_stable_offset, log.end_offset) == (2, 2)
                heir.begin()
                heir.send("t", b"2", partition=0)
                heir.commit(PATIENCE)
            check_visible(cluster, [2])
            assert cluster.committed("group") == {}

    def test_one_that_takes_too_long(self, protocol: str) -> None:
        with cluster_of(protocol) as cluster, producer_on(cluster, transaction_timeout_ms=100) as producer:
            producer.begin()
            producer.send("t", b"1", partition=0)
            producer.flush(PATIENCE)
            wait(cluster, 150)
            with pytest.raises(TransactionError):
                producer.commit(PATIENCE)
            check_visible(cluster, [])

    def test_one_that_takes_too_long_and_writes_again_goes_on(self, protocol: str) -> None:
        """The write fails, and the abort decides whether the producer is fenced."""
        with cluster_of(protocol) as cluster, producer_on(cluster, transaction_timeout_ms=100) as producer:
            producer.begin()
            producer.send("t", b"1", partition=0)
            producer.flush(PATIENCE)
            wait(cluster, 150)
            producer.send("t", b"2", partition=0)
            with pytest.raises(AbortableError):
                producer.commit(PATIENCE)
            outcome: type[Exception] | None = None
            try:
                producer.abort(PATIENCE)
                producer.begin(PATIENCE)
                producer.send("t", b"3", partition=0)
                producer.commit(PATIENCE)
            except FencedError as error:
                outcome = type(error)
            # Only the new protocol can distinguish its own past from another producer, by EndTxn's epoch.
            assert outcome is (None if protocol == "new" else FencedError)
            check_visible(cluster, [3] if outcome is None else [])


KILLED = """
import sys, kwire
producer = kwire.Producer(sys.argv[1], linger_ms=0, transactional_id="tx")
producer.begin()
producer.send("t", b"1", partition=0)
producer.send_offsets({("in", 0): 1}, "group")
producer.flush()
print("written", flush=True)
sys.stdin.read()
"""


def test_epochs_run_out() -> None:
    """After the last epoch the producer gets a new producer id and continues with it."""
    with cluster_of("new") as cluster:
        with producer_on(cluster) as first:
            first.init_transactions()
        cluster.call(lambda state, now: setattr(state.transactions.get("tx"), "epoch", LAST_EPOCH - 3))
        with producer_on(cluster) as heir:
            for n in range(6):
                heir.begin(PATIENCE)
                heir.send("t", b"%d" % n, partition=0)
                heir.send_offsets({("in", 0): n}, "group")
                heir.commit(PATIENCE)
        check_visible(cluster, list(range(6)))
        batches = [batch for batch in cluster.log("t").batches() if not batch.is_control]
        assert [(batch.producer_id, batch.producer_epoch) for batch in batches] == [
            (0, LAST_EPOCH - 2), (0, LAST_EPOCH - 1), (0, LAST_EPOCH), (1, 0), (1, 1), (1, 2),
        ]  # fmt: skip
