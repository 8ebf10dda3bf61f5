"""Writes exactly once on the embedded cluster: whoever dies at whatever step, each row is visible once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from kwire.broker import Cluster, Disconnect
from kwire.errors import (
    AbortableError,
    ConfigurationError,
    DeliveryError,
    FencedError,
    InDoubtError,
    MissingMarkerError,
    TransactionError,
)
from kwire.producer.options import ProducerSettings
from kwire.protocol import ApiKey
from kwire.spark import fault_points
from kwire.spark.lead import Prepared
from kwire.spark.options import OnInDoubt
from kwire.spark.task_write import TaskId, TaskWrite
from kwire.spark.transactions import TransactionRequests
from tests.spark.exactly_once_driver import (
    INLINE,
    MIXED,
    SIDES,
    TASKS,
    Death,
    Died,
    Query,
    committed,
    ongoing,
    sink_batch,
)

pytestmark = pytest.mark.timeout(60)


VERSIONS = {
    "2.7": {"version": "2.7", "transaction_version": 0},
    "v1": {"transaction_version": 1},
    "v2": {"transaction_version": 2},
}


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    options: Any = VERSIONS[getattr(request, "param", "v2")]
    with Cluster(brokers=1, topics={"t": 2}, **options) as cluster:
        yield cluster


@pytest.fixture
def requests(cluster: Cluster) -> Iterator[TransactionRequests]:
    found = TransactionRequests(seconds=10.0, bootstrap=cluster.bootstrap, retry_backoff_ms=5)
    yield found
    found.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cluster", "mode"),
    [("2.7", MIXED), ("v1", MIXED), ("v2", INLINE), ("v2", SIDES), ("v2", MIXED)],
    indirect=["cluster"],
)
@pytest.mark.parametrize("step", fault_points.IN_TASK + fault_points.IN_COMMIT)
def test_each_row_is_visible_once_whoever_is_killed(
    cluster: Cluster, requests: TransactionRequests, mode: str, step: str
) -> None:
    query = Query(requests, mode, death=Death())
    query.write(0)
    query.death.step = step
    query.write(1)
    query.death.step = None
    query.write(2)
    assert committed(cluster.bootstrap) == query.expected(range(3))


@pytest.fixture
def one(requests: TransactionRequests) -> Query:
    return Query(requests)


@pytest.mark.parametrize("mode", [INLINE, SIDES])
def test_a_batch_that_is_repeated_is_not_written_again(
    cluster: Cluster, requests: TransactionRequests, mode: str
) -> None:
    query = Query(requests, mode)
    query.write(0)
    again = replace(query, run="b")
    again.write(0)
    assert all(part.rows == 0 for part in again.tasks(0)), "its tasks encode nothing"
    again.write(1)
    assert committed(cluster.bootstrap) == query.expected(range(2))


def test_an_unlike_repetition_of_a_decided_batch_is_not_written(cluster: Cluster, one: Query) -> None:
    one.write(0)
    again = replace(one, run="b")
    parts = [again.task(1, 0, values=[b"other"])]
    parts = [replace(part, batch=again.batch(0)) for part in parts]
    assert not again.lead.commit(one.batch(0), parts)
    assert committed(cluster.bootstrap) == one.expected([0])


@pytest.mark.parametrize("mode", [INLINE, SIDES])
def test_a_fenced_driver_writes_nothing(cluster: Cluster, requests: TransactionRequests, mode: str) -> None:
    """Two drivers run on one checkpoint: the second takes over in the midst of the first one's commit."""
    first, second = Query(requests, mode, run="a"), Query(requests, mode, run="b")
    first.write(0)
    parts = first.tasks(1)

    def take_over(step: str) -> None:
        if step == fault_points.BEFORE_DECISION:
            second.write(1)

    lead = first.lead
    lead._reach = take_over
    with pytest.raises(FencedError, match="batch 1 of query q was not committed here: another driver has taken over"):
        lead.commit(first.batch(1), parts)
    first.lead.abort(first.batch(1), parts)
    second.write(2)
    assert committed(cluster.bootstrap) == first.expected(range(3))
    assert ongoing(cluster.bootstrap) == []


def test_a_lost_response_of_the_decision_changes_nothing(cluster: Cluster, one: Query) -> None:
    cluster.add_fault(Disconnect(applied=True), api=ApiKey.END_TXN)
    one.write(0)
    one.write(1)
    assert committed(cluster.bootstrap) == one.expected(range(2))


def test_abort_reads_the_marker_first(cluster: Cluster, requests: TransactionRequests) -> None:
    """Spark calls abort after a commit that raised, also where the batch was decided."""
    query = Query(requests, SIDES)
    query.write(0)
    parts = query.tasks(1)
    query.death.step = fault_points.AFTER_DECISION
    with pytest.raises(Died):
        query.lead.commit(query.batch(1), parts)
    query.lead.abort(query.batch(1), parts)
    assert committed(cluster.bootstrap) == query.expected(range(2))


def test_abort_aborts_what_was_not_decided(cluster: Cluster, requests: TransactionRequests) -> None:
    query = Query(requests, SIDES)
    parts = query.tasks(0)
    assert len(ongoing(cluster.bootstrap)) == TASKS
    query.lead.abort(query.batch(0), parts)
    assert ongoing(cluster.bootstrap) == []
    assert not committed(cluster.bootstrap)


def test_abort_of_inline_batches_waits_for_no_lead_that_was_killed(
    cluster: Cluster, requests: TransactionRequests
) -> None:
    """The marker cannot be read before that lead's transaction has timed out, and nothing is to be aborted."""
    query = Query(requests, INLINE)
    query.death.step = fault_points.BEFORE_DECISION
    parts = query.tasks(0)
    with pytest.raises(Died):
        query.lead.commit(query.batch(0), parts)
    lookups = cluster.add_fault(Disconnect(), api=ApiKey.OFFSET_FETCH, after=1_000_000)
    query.lead.abort(query.batch(0), parts)
    assert lookups.seen == 0
    replace(query, run="b", death=Death()).write(0)
    assert committed(cluster.bootstrap) == query.expected([0])


def test_a_dead_run_s_transactions_are_cleared(cluster: Cluster, requests: TransactionRequests) -> None:
    dead = Query(requests, SIDES, run="dead")
    dead.tasks(0)
    other = Query(requests, SIDES, query="another")
    other.tasks(0)
    Query(requests, INLINE).write(0)
    assert sorted(ongoing(cluster.bootstrap)) == [f"kwire-another-side-a-{task}-0" for task in range(TASKS)]


def test_a_task_that_fails_aborts_its_transaction(cluster: Cluster, requests: TransactionRequests) -> None:
    query = Query(requests, SIDES, settings=ProducerSettings(max_request_bytes=30_000, batch_bytes=1_000))
    with pytest.raises(DeliveryError, match=r"row 500 of DataFrame partition 0 .* more than kafka.max.request.size"):
        query.task(0, 0, values=[b"x" * 10_000] * 500 + [b"x" * 40_000] + [b"x"] * 600)
    assert ongoing(cluster.bootstrap) == []


@pytest.mark.parametrize("mode", [INLINE, SIDES])
def test_the_loser_of_two_attempts_is_invisible(cluster: Cluster, requests: TransactionRequests, mode: str) -> None:
    """Speculation: both run to their end, and Spark takes the message of one."""
    query = Query(requests, mode)
    parts = query.tasks(0)
    parts[1] = query.task(0, 1, attempt=1)
    query.lead.commit(query.batch(0), parts)
    query.write(1)
    assert committed(cluster.bootstrap) == query.expected(range(2))
    assert ongoing(cluster.bootstrap) == []


def test_a_retried_stage_takes_over_the_transactions_of_its_tasks(
    cluster: Cluster, requests: TransactionRequests
) -> None:
    """Its attempts are numbered from 0 again, so that they have the ids of the first ones."""
    query = Query(requests, SIDES)
    query.tasks(0)
    query.write(0)
    assert committed(cluster.bootstrap) == query.expected([0])
    assert ongoing(cluster.bootstrap) == []


def test_a_killed_attempt_is_cleared_with_its_batch(cluster: Cluster, requests: TransactionRequests) -> None:
    query = Query(requests, SIDES)
    query.death.step = fault_points.SIDE_PRODUCING
    query.write(0)
    assert "side-producing" in query.death.reached
    assert ongoing(cluster.bootstrap) == []
    assert committed(cluster.bootstrap) == query.expected([0])


def test_a_side_that_has_ended_before_the_decision_fails_the_batch(
    cluster: Cluster, requests: TransactionRequests
) -> None:
    query = Query(requests, SIDES)
    parts = query.tasks(0)
    end(requests, query, parts[1])
    with pytest.raises(AbortableError, match="the transaction of task 1 with 20 rows has ended before the batch did"):
        query.lead.commit(query.batch(0), parts)
    query.lead.abort(query.batch(0), parts)
    assert not committed(cluster.bootstrap)
    replace(query, run="b").write(0)
    assert committed(cluster.bootstrap) == query.expected([0])


# -- in doubt


def end(requests: TransactionRequests, query: Query, part: Prepared) -> None:
    """End the transaction of a task, as the coordinator does after its time-out: it takes a new epoch."""
    assert part.side is not None
    side_id = part.side.transactional_id(part.batch.prefix(query.options))
    requests.begin(side_id, 60_000)


def in_doubt(requests: TransactionRequests, on_in_doubt: OnInDoubt) -> Query:
    """Leave batch 0 decided and not completed, with task 1's rows lost. Return the next run of the query."""
    dead = Query(requests, SIDES, run="dead")
    parts = dead.tasks(0)
    dead.death.step = fault_points.AFTER_DECISION
    with pytest.raises(Died):
        dead.lead.commit(dead.batch(0), parts)
    end(requests, dead, parts[1])
    return replace(dead, run="b", options=replace(dead.options, on_in_doubt=on_in_doubt))


LOST = "batch 0 of query q is decided, but 20 of its rows are lost: the transactions of tasks 1 \\(20 rows\\) ended"


def test_a_batch_in_doubt_is_never_silent(cluster: Cluster, requests: TransactionRequests) -> None:
    query = in_doubt(requests, "fail")
    with pytest.raises(InDoubtError, match=LOST) as caught:
        query.write(0)
    assert caught.value.lost_rows == 20
    query.lead.abort(query.batch(0), [])
    with pytest.raises(InDoubtError, match=LOST):
        query.write(0)
    assert sum(committed(cluster.bootstrap).values()) == 40


def test_a_batch_in_doubt_is_repaired(cluster: Cluster, requests: TransactionRequests) -> None:
    query = in_doubt(requests, "repair")
    query.write(0)
    query.write(1)
    assert committed(cluster.bootstrap) == query.expected(range(2))
    assert ongoing(cluster.bootstrap) == []


def test_a_repair_needs_the_same_rows(cluster: Cluster, requests: TransactionRequests) -> None:
    query = in_doubt(requests, "repair")
    parts = [query.task(0, 0), query.task(0, 1, values=[b"%d" % number for number in range(20)]), query.task(0, 2)]
    with pytest.raises(InDoubtError, match=LOST + ".*; task 1 made other rows now"):
        query.lead.commit(query.batch(0), parts)
    query.lead.abort(query.batch(0), parts)
    assert sum(committed(cluster.bootstrap).values()) == 40
    assert ongoing(cluster.bootstrap) == []


def test_a_batch_in_doubt_is_written_twice_if_told_so(
    cluster: Cluster, requests: TransactionRequests, caplog: pytest.LogCaptureFixture
) -> None:
    query = in_doubt(requests, "duplicate")
    query.write(0)
    found = committed(cluster.bootstrap)
    assert found.keys() == query.expected([0]).keys()
    assert sorted(found.values()) == [1] * 20 + [2] * 40
    assert "is written again as a whole: 20 of its rows were lost" in caplog.text


def test_a_batch_in_doubt_is_skipped_if_told_so(
    cluster: Cluster, requests: TransactionRequests, caplog: pytest.LogCaptureFixture
) -> None:
    query = in_doubt(requests, "skip")
    query.write(0)
    query.write(1)
    assert sum(committed(cluster.bootstrap).values()) == 40 + TASKS * 20
    assert "20 of its rows are lost" in caplog.text


def test_a_restart_completes_a_decided_batch_before_its_tasks_run(
    cluster: Cluster, requests: TransactionRequests
) -> None:
    query = Query(requests, SIDES)
    query.death.step = fault_points.AFTER_DECISION
    with pytest.raises(Died):
        query.lead.commit(query.batch(0), query.tasks(0))
    assert len(ongoing(cluster.bootstrap)) == TASKS
    query.lead.recover()
    assert committed(cluster.bootstrap) == query.expected([0])


# -- markers


def test_a_missing_marker_is_refused_unless_told_otherwise(cluster: Cluster, one: Query) -> None:
    with pytest.raises(MissingMarkerError, match=r"whether batch 3 of query q was written: the marker .* is missing"):
        one.write(3)
    told = replace(one, options=replace(one.options, accepts_missing_marker=True))
    told.write(3)
    with pytest.raises(MissingMarkerError, match="is missing, the newest is of batch 3"):
        one.write(5)
    one.write(4)
    assert committed(cluster.bootstrap) == one.expected([3, 4])


def test_an_old_checkpoint_is_refused(cluster: Cluster, one: Query) -> None:
    for number in range(3):
        one.write(number)
    with pytest.raises(TransactionError, match=r"batch 1 of query q cannot be written: batch 2 .* was written already"):
        one.write(1)
    assert committed(cluster.bootstrap) == one.expected(range(3))


def test_two_queries_cannot_have_one_prefix(cluster: Cluster, one: Query) -> None:
    options = replace(one.options, prefix="mine")
    replace(one, options=options).write(0)
    with pytest.raises(ConfigurationError, match="mine is the transactional id of another query, q"):
        replace(one, options=options, query="deleted-checkpoint").write(0)
    assert committed(cluster.bootstrap) == one.expected([0])


def test_a_new_checkpoint_is_a_new_query(cluster: Cluster, one: Query) -> None:
    one.write(0)
    replace(one, query="new").write(0)
    assert set(committed(cluster.bootstrap).values()) == {2}


def test_an_empty_batch_leaves_its_marker(cluster: Cluster, one: Query) -> None:
    one.lead.commit(one.batch(0), [one.task(0, 0, values=[])])
    one.write(1)
    assert committed(cluster.bootstrap) == one.expected([1])


def test_a_topic_that_does_not_exist_is_named(cluster: Cluster, one: Query) -> None:
    write = TaskWrite(one.requests, one.options, one.settings, TaskId(one.batch(0), "a", 0, 0))
    with pytest.raises(DeliveryError, match=r"row 0 of .* was not written: UNKNOWN_TOPIC_OR_PARTITION .*topic nowhere"):
        write.write([sink_batch([b"v"], "nowhere")])
    partition = TaskWrite(one.requests, one.options, one.settings, TaskId(one.batch(0), "a", 0, 0))
    with pytest.raises(DeliveryError, match=r"row 1 of .*topic t, partition 7\]: the topic has 2 partitions"):
        partition.write([sink_batch([b"v", b"w"], partition=[1, 7])])
