"""The transactional producer on virtual time: both protocols of KIP-890, the order of requests, what errors become."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from kwire.cluster import PendingRequest, ToCoordinator
from kwire.errors import (
    AbortableError,
    ClosedError,
    DeliveryError,
    DisconnectedError,
    ErrorCode,
    FatalError,
    FencedError,
    KwireError,
    TransactionError,
)
from kwire.producer import GroupMetadata
from kwire.producer.futures import ProduceResponse
from kwire.producer.transaction import FEATURE, TRANSITIONS, TransactionEvent, TransactionState, next_state
from kwire.protocol import Request, Response
from kwire.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kwire.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from kwire.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kwire.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kwire.protocol.messages.produce import ProduceRequest
from kwire.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from tests.producer.fakes import Bench, Sent

CUT = DisconnectedError("the connection broke")
COORDINATOR = ToCoordinator("me", "transaction")
VERSIONS: dict[type[Request[Any]], int] = {
    ProduceRequest: 12,
    InitProducerIdRequest: 5,
    AddPartitionsToTxnRequest: 5,
    AddOffsetsToTxnRequest: 4,
    TxnOffsetCommitRequest: 5,
    EndTxnRequest: 5,
}


class TransactionBench:
    """A transactional sender driven by hand. `step` makes turns and responds to requests as brokers do, except those
    for which a test has put a response into `responses`: an error code, an error, or a function of the request."""

    def __init__(self, *, v2: bool, **settings: Any) -> None:
        self.bench = Bench({"t": [(1, 0), (1, 0)]}, gives_ids=False, transactional_id="me", **settings)
        self.bench.view.versions = dict(VERSIONS)
        if v2:
            self.bench.view.features[FEATURE] = 2
        self.v2 = v2
        self.names: list[str] = []  # of the requests sent
        self.requests: list[tuple[Request[Any], int]] = []
        self.responses: dict[type[Request[Any]], list[int | KwireError]] = {}
        self.epoch = 4

    @property
    def transaction(self) -> Any:
        assert self.bench.sender.transaction is not None
        return self.bench.sender.transaction

    @property
    def state(self) -> TransactionState:
        return self.transaction.state  # type: ignore[no-any-return]

    def send(self, value: bytes = b"v", partition: int = 0) -> ProduceResponse:
        return self.bench.send(value, partition=partition)

    def future(self, start: Callable[[Future[None]], None]) -> Future[None]:
        future: Future[None] = Future()
        start(future)
        return future

    def open(self) -> None:
        init = self.future(self.transaction.init)
        self.settle()
        init.result(0)
        self.transaction.begin(self.bench.view)

    def end(self, *, commit: bool) -> Future[None]:
        return self.future(lambda future: self.bench.sender.end(self.transaction, future, is_commit=commit))

    def settle(self, seconds: float = 20.0) -> None:
        """Make turns and respond until no request is left."""
        quiet = 0
        for _ in range(200):
            calls = self.bench.sender.turn(self.bench.now, self.bench.view)
            quiet = 0 if calls else quiet + 1
            for call in calls:
                self.respond(call)
            if quiet == 3:
                return
            self.bench.now += 0.0 if calls else seconds / 3
        raise AssertionError("it does not come to rest")

    def respond(self, call: PendingRequest) -> None:
        version = self.bench.view.version(1, call.api, call.at_most)
        try:
            request = call.build(version)
            request.encode(version)
        except KwireError as error:  # as the event loop does
            call.on_done(error, self.bench.now)
            return
        self.names.append(type(request).__name__.removesuffix("Request"))
        self.requests.append((request, version))
        planned = self.responses.get(call.api, [])
        outcome = planned.pop(0) if planned else 0
        if isinstance(outcome, KwireError):
            call.was_written = True
            call.on_done(outcome, self.bench.now)
        elif isinstance(request, ProduceRequest):
            Sent(call, 1, version, request).respond(self.bench.now, outcome)
        else:
            call.on_done(self.response_to(request, version, outcome), self.bench.now)

    def response_to(self, request: Request[Any], version: int, code: int) -> Response:
        match request:
            case InitProducerIdRequest():
                self.epoch += 1
                return InitProducerIdResponse(error_code=code, producer_id=7, producer_epoch=self.epoch)
            case AddPartitionsToTxnRequest():
                results = [
                    AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=[
                            AddPartitionsToTxnTopicResult.Partition(partition_index=index, partition_error_code=code)
                            for index in topic.partitions
                        ],
                    )
                    for topic in request.v3_and_below_topics
                ]
                return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
            case AddOffsetsToTxnRequest():
                return AddOffsetsToTxnResponse(error_code=code)
            case TxnOffsetCommitRequest():
                return TxnOffsetCommitResponse(
                    topics=[
                        TxnOffsetCommitResponse.Topic(
                            name=topic.name,
                            partitions=[
                                TxnOffsetCommitResponse.Topic.Partition(
                                    partition_index=partition.partition_index, error_code=code
                                )
                                for partition in topic.partitions
                            ],
                        )
                        for topic in request.topics
                    ]
                )
            case EndTxnRequest():
                if version >= 5 and not code:
                    self.epoch += 1
                    return EndTxnResponse(error_code=0, producer_id=7, producer_epoch=self.epoch)
                return EndTxnResponse(error_code=code)
        raise AssertionError(request)


@pytest.fixture(params=[False, True], ids=["v1", "v2"])
def bench(request: pytest.FixtureRequest) -> TransactionBench:
    return TransactionBench(v2=request.param)


# -- the order of requests


def test_commit(bench: TransactionBench) -> None:
    bench.open()
    sent = [bench.send(b"a", 0), bench.send(b"b", 1)]
    committed = bench.end(commit=True)
    bench.settle()
    committed.result(0)
    assert all(response.done() for response in sent)
    expected = ["Produce", "EndTxn"] if bench.v2 else ["AddPartitionsToTxn", "Produce", "EndTxn"]
    assert bench.names == ["InitProducerId", *expected]
    end, version = bench.requests[-1]
    assert isinstance(end, EndTxnRequest)
    assert (end.transactional_id, end.producer_id, end.producer_epoch, end.committed) == ("me", 7, 5, True)
    assert version == (5 if bench.v2 else 4)
    assert bench.state is TransactionState.READY


def test_batches_are_marked_and_sequenced(bench: TransactionBench) -> None:
    bench.open()
    bench.send()
    bench.settle()
    request, version = next(one for one in bench.requests if isinstance(one[0], ProduceRequest))
    assert isinstance(request, ProduceRequest)
    batch = Sent(None, 1, version, request).batches()["t", 0]  # type: ignore[arg-type]
    assert (request.transactional_id, batch.is_transactional, batch.producer_epoch) == ("me", True, 5)
    assert version == (12 if bench.v2 else 11), "only the newer protocol lets a write join the transaction"


def test_each_partition_is_announced_once_a_transaction() -> None:
    bench = TransactionBench(v2=False)
    for _ in range(2):
        bench.open() if bench.state is TransactionState.UNINITIALIZED else bench.transaction.begin(bench.bench.view)
        for _ in range(3):
            bench.send()
            bench.settle()
        bench.end(commit=True)
        bench.settle()
    assert bench.names.count("AddPartitionsToTxn") == 2


def test_sequences_go_on_or_begin_again_as_the_protocol_says(bench: TransactionBench) -> None:
    bench.open()
    for _ in range(2):
        bench.send()
        bench.end(commit=True)
        bench.settle()
        bench.transaction.begin(bench.bench.view)
    produced = [(request, version) for request, version in bench.requests if isinstance(request, ProduceRequest)]
    batches = [Sent(None, 1, version, request).batches()["t", 0] for request, version in produced]  # type: ignore[arg-type]
    assert [(batch.producer_epoch, batch.base_sequence) for batch in batches] == (
        [(5, 0), (6, 0)] if bench.v2 else [(5, 0), (5, 1)]
    )


def test_offsets(bench: TransactionBench) -> None:
    bench.open()
    group = GroupMetadata("g", 3, "member", "instance")
    stored = bench.future(lambda future: bench.transaction.add_offsets({("in", 1): 42}, lambda: group, future))
    bench.settle()
    stored.result(0)
    names = ["TxnOffsetCommit"] if bench.v2 else ["AddOffsetsToTxn", "TxnOffsetCommit"]
    assert bench.names == ["InitProducerId", *names]
    request, version = bench.requests[-1]
    assert isinstance(request, TxnOffsetCommitRequest)
    assert (request.generation_id_or_member_epoch, request.member_id, request.group_instance_id) == (
        3,
        "member",
        "instance",
    )
    assert request.topics[0].partitions[0].committed_offset == 42
    assert version == (5 if bench.v2 else 4)


def test_nothing_sent_ends_without_a_request(bench: TransactionBench) -> None:
    for commit in (True, False):
        bench.open() if bench.state is TransactionState.UNINITIALIZED else bench.transaction.begin(bench.bench.view)
        ended = bench.end(commit=commit)
        bench.settle()
        ended.result(0)
    assert bench.names == ["InitProducerId"]


def test_abort_discards_unsent_batches_and_waits_for_those_in_flight(bench: TransactionBench) -> None:
    bench.open()
    bench.send(b"stored")
    bench.settle()
    bench.bench.view.down.add(1)
    queued = bench.send(b"queued")
    aborted = bench.end(commit=False)
    bench.settle()
    aborted.result(0)
    assert isinstance(queued.exception(0), AbortableError)
    end = bench.requests[-1][0]
    assert isinstance(end, EndTxnRequest)
    assert not end.committed


def test_an_abort_does_not_wait_for_a_request_that_waits_for_its_broker(bench: TransactionBench) -> None:
    bench.open()
    bench.send()
    bench.settle()
    view = bench.bench.view
    bench.future(lambda future: bench.transaction.add_offsets({("in", 1): 42}, lambda: GroupMetadata("g"), future))
    view.waiting += bench.bench.sender.turn(bench.bench.now, view)
    aborted = bench.end(commit=False)
    bench.settle()
    aborted.result(0)
    assert (bench.names[-1], bench.state) == ("EndTxn", TransactionState.READY)
    assert not view.waiting


def test_an_abort_waits_for_a_request_that_was_written(bench: TransactionBench) -> None:
    bench.open()
    bench.future(lambda future: bench.transaction.add_offsets({("in", 1): 42}, lambda: GroupMetadata("g"), future))
    [written] = bench.bench.sender.turn(bench.bench.now, bench.bench.view)
    aborted = bench.end(commit=False)
    bench.settle()
    assert not aborted.done()
    bench.respond(written)
    bench.settle()
    aborted.result(0)
    assert bench.names[-1] == "EndTxn"


def test_asking_twice_is_one_end(bench: TransactionBench) -> None:
    bench.open()
    bench.send()
    first, second = bench.end(commit=True), bench.end(commit=True)
    bench.settle()
    first.result(0)
    second.result(0)
    assert bench.names.count("EndTxn") == 1


# -- errors


@pytest.mark.parametrize(
    "code", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR]
)
@pytest.mark.parametrize(
    "api", [InitProducerIdRequest, AddPartitionsToTxnRequest, AddOffsetsToTxnRequest, EndTxnRequest]
)
def test_passing_errors_are_retried(api: type[Request[Any]], code: ErrorCode) -> None:
    bench = TransactionBench(v2=False)
    bench.responses[api] = [code, code]
    bench.open()
    bench.send()
    stored = bench.future(
        lambda future: bench.transaction.add_offsets({("in", 1): 1}, lambda: GroupMetadata("g"), future)
    )
    committed = bench.end(commit=True)
    bench.settle()
    stored.result(0)
    committed.result(0)
    assert bench.names.count(api.__name__.removesuffix("Request")) == 3
    if code is ErrorCode.NOT_COORDINATOR:
        assert bench.bench.view.forgotten[:2] == [COORDINATOR, COORDINATOR]


@pytest.mark.parametrize(
    ("api", "code"),
    [
        (AddPartitionsToTxnRequest, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (AddPartitionsToTxnRequest, ErrorCode.TRANSACTION_ABORTABLE),
        (AddOffsetsToTxnRequest, ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (TxnOffsetCommitRequest, ErrorCode.ILLEGAL_GENERATION),
        (TxnOffsetCommitRequest, ErrorCode.FENCED_INSTANCE_ID),
        (ProduceRequest, ErrorCode.MESSAGE_TOO_LARGE),
        (ProduceRequest, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ProduceRequest, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (EndTxnRequest, ErrorCode.TRANSACTION_ABORTABLE),
    ],
)
def test_abortable_errors_let_the_producer_go_on_after_an_abort(api: type[Request[Any]], code: ErrorCode) -> None:
    bench = TransactionBench(v2=False)
    bench.responses[api] = [code]
    bench.open()
    bench.send()
    bench.future(lambda future: bench.transaction.add_offsets({("in", 1): 1}, lambda: GroupMetadata("g"), future))
    committed = bench.end(commit=True)
    bench.settle()
    error = committed.exception(0)
    assert isinstance(error, AbortableError)
    assert code.name in str(error)
    late = bench.send(b"late")
    bench.settle()
    assert isinstance(late.exception(0), TransactionError)
    aborted = bench.end(commit=False)
    bench.settle()
    aborted.result(0)
    bench.transaction.begin(bench.bench.view)
    again = bench.send(b"again")
    committed = bench.end(commit=True)
    bench.settle()
    committed.result(0)
    assert again.result(0).offset == 100


REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("responses", "ends"),
    [
        # the responses to AddPartitionsToTxn, and to EndTxn if it is sent
        ([REFUSED], None),  # no transaction began: an EndTxn would be INVALID_TXN_STATE, the end of the producer
        ([CUT, REFUSED], [0]),  # the request without a response may have started it
        ([CUT, REFUSED], [ErrorCode.INVALID_TXN_STATE]),  # it did not begin
    ],
    ids=["refused", "started without a response", "lost"],
)
def test_an_abort_of_a_transaction_that_never_began(
    responses: list[int | KwireError], ends: list[int | KwireError] | None
) -> None:
    bench = TransactionBench(v2=False)
    bench.responses[AddPartitionsToTxnRequest] = list(responses)
    bench.responses[EndTxnRequest] = list(ends or ())
    bench.open()
    bench.send()
    bench.settle()
    aborted = bench.end(commit=False)
    bench.settle()
    aborted.result(0)
    assert bench.state is TransactionState.READY
    assert bench.names.count("EndTxn") == len(ends or ())


def test_an_end_that_finds_no_transaction_where_there_was_one_is_fatal() -> None:
    bench = TransactionBench(v2=False)
    bench.responses[EndTxnRequest] = [ErrorCode.INVALID_TXN_STATE]
    bench.open()
    bench.send()
    bench.settle()
    aborted = bench.end(commit=False)
    bench.settle()
    assert isinstance(aborted.exception(0), FatalError)


@pytest.mark.parametrize(
    "code",
    [ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.TRANSACTION_ABORTABLE],
)
def test_an_abort_that_needs_a_new_epoch_ends_with_one(bench: TransactionBench, code: ErrorCode) -> None:
    bench.responses[EndTxnRequest] = [code] * 1000
    bench.open()
    bench.send()
    bench.settle()
    aborted = bench.end(commit=False)
    bench.settle()
    aborted.result(0)
    assert bench.names[-2:] == ["EndTxn", "InitProducerId"], "InitProducerId aborts what is open"
    assert bench.state is TransactionState.READY
    bench.responses.clear()
    bench.transaction.begin(bench.bench.view)
    again, committed = bench.send(b"again"), bench.end(commit=True)
    bench.settle()
    committed.result(0)
    again.result(0)


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_REQUEST, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
)
def test_an_abort_that_is_refused_for_another_reason_is_fatal(bench: TransactionBench, code: ErrorCode) -> None:
    bench.responses[EndTxnRequest] = [code] * 1000
    bench.open()
    bench.send()
    bench.settle()
    aborted = bench.end(commit=False)
    bench.settle()
    error = aborted.exception(0)
    assert isinstance(error, FatalError)
    assert code.name in str(error)
    assert bench.names.count("EndTxn") == 1
    last_error = bench.transaction.last_error
    assert last_error is not None
    assert code.name in str(last_error)


def test_another_request_that_fails_during_an_abort_is_not_its_end(bench: TransactionBench) -> None:
    bench.open()
    bench.send()
    bench.settle()
    bench.transaction.add_offsets({("in", 1): 1}, lambda: GroupMetadata("g"), Future())
    (call,) = bench.bench.sender.turn(bench.bench.now, bench.bench.view)
    aborted = bench.end(commit=False)
    bench.responses[call.api] = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
    bench.respond(call)
    bench.settle()
    aborted.result(0)
    assert bench.state is TransactionState.READY


def test_a_response_that_lacks_a_partition_is_retried_after_a_back_off() -> None:
    bench = TransactionBench(v2=False)
    bench.open()
    sent = bench.send()
    (call,) = bench.bench.sender.turn(bench.bench.now, bench.bench.view)
    assert call.api is AddPartitionsToTxnRequest
    call.on_done(AddPartitionsToTxnResponse(), bench.bench.now)
    assert "lacks a partition" in str(bench.transaction.last_error)
    assert bench.bench.sender.turn(bench.bench.now, bench.bench.view) == []
    bench.settle()
    sent.result(0)


@pytest.mark.parametrize(
    ("api", "code", "kind"),
    [
        (InitProducerIdRequest, ErrorCode.PRODUCER_FENCED, FencedError),
        (InitProducerIdRequest, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, FatalError),
        (InitProducerIdRequest, ErrorCode.INVALID_TRANSACTION_TIMEOUT, FatalError),
        (AddPartitionsToTxnRequest, ErrorCode.PRODUCER_FENCED, FencedError),
        (AddPartitionsToTxnRequest, ErrorCode.INVALID_PRODUCER_EPOCH, FencedError),
        (ProduceRequest, ErrorCode.PRODUCER_FENCED, FencedError),
        (ProduceRequest, ErrorCode.INVALID_TXN_STATE, FatalError),
        (EndTxnRequest, ErrorCode.INVALID_PRODUCER_EPOCH, FencedError),
        (EndTxnRequest, ErrorCode.INVALID_TXN_STATE, FatalError),
    ],
)
def test_fatal_errors_are_the_end(api: type[Request[Any]], code: ErrorCode, kind: type[FatalError]) -> None:
    bench = TransactionBench(v2=False)
    bench.responses[api] = [code]
    init = bench.future(bench.transaction.init)
    bench.settle()
    if api is not InitProducerIdRequest:
        bench.transaction.begin(bench.bench.view)
        bench.send()
        init = bench.end(commit=True)
        bench.settle()
    assert type(init.exception(0)) is kind
    assert bench.state is TransactionState.FATAL
    later = bench.send()
    bench.settle()
    assert type(later.exception(0)) is kind
    for again in (bench.end(commit=False), bench.future(bench.transaction.init)):
        assert type(again.exception(0)) is kind


def test_a_batch_that_expires_makes_the_transaction_abortable(bench: TransactionBench) -> None:
    bench.open()
    bench.bench.view.down.add(1)
    expired = bench.send()
    committed = bench.end(commit=True)
    bench.settle(seconds=400.0)
    assert isinstance(expired.exception(0), DeliveryError)
    assert isinstance(committed.exception(0), AbortableError)
    bench.end(commit=False)
    bench.settle()
    assert bench.state is TransactionState.READY


def test_a_broken_sequence_means_a_new_epoch_before_the_next_transaction(bench: TransactionBench) -> None:
    bench.responses[ProduceRequest] = [ErrorCode.INVALID_RECORD]
    bench.open()
    bench.send()
    bench.settle()
    bench.end(commit=False)
    bench.settle()
    bench.transaction.begin(bench.bench.view)
    bench.send()
    bench.settle()
    request, version = bench.requests[-1]
    assert isinstance(request, ProduceRequest)
    batch = Sent(None, 1, version, request).batches()["t", 0]  # type: ignore[arg-type]
    assert (batch.producer_epoch, batch.base_sequence) == (6, 0)
    assert bench.names.count("InitProducerId") == (1 if bench.v2 else 2)
    if not bench.v2:
        renewal = [one for one, _ in bench.requests if isinstance(one, InitProducerIdRequest)][-1]
        assert (renewal.producer_id, renewal.producer_epoch) == (7, 5), "so that a fenced producer learns it (KIP-360)"


@pytest.mark.parametrize(
    "api", [EndTxnRequest, AddPartitionsToTxnRequest, AddOffsetsToTxnRequest, TxnOffsetCommitRequest]
)
def test_a_request_in_doubt_means_a_new_epoch_in_the_older_protocol(
    bench: TransactionBench, api: type[Request[Any]]
) -> None:
    """A late request must not end the next transaction (KAFKA-17754), nor begin one or add to it."""
    if bench.v2 and api in (AddPartitionsToTxnRequest, AddOffsetsToTxnRequest):
        return  # there the first write does that
    bench.responses[api] = [CUT]
    bench.open()
    bench.send()
    offsets = bench.future(
        lambda future: bench.transaction.add_offsets({("in", 0): 1}, lambda: GroupMetadata("group"), future)
    )
    committed = bench.end(commit=True)
    bench.settle()
    offsets.result(0)
    committed.result(0)
    assert bench.names.count(api.__name__.removesuffix("Request")) == 2
    assert bench.names.count("InitProducerId") == (1 if bench.v2 else 2)
    assert bench.state is TransactionState.READY


@pytest.mark.parametrize("calls", range(2))
@pytest.mark.parametrize("commit", [False, True])
def test_a_group_that_raises_makes_the_transaction_abortable(bench: TransactionBench, calls: int, commit: bool) -> None:
    """Its object is the user's. It is asked before the request and when it is written."""
    left = [GroupMetadata("g")] * calls

    def member() -> GroupMetadata:
        if not left:
            raise LookupError("no such consumer")
        return left.pop()

    bench.open()
    stored = bench.future(lambda future: bench.transaction.add_offsets({("in", 1): 1}, member, future))
    committed = bench.end(commit=True) if commit else stored
    bench.settle()
    for future in (stored, committed):
        error = future.exception(0)
        assert isinstance(error, AbortableError)
        assert "raised LookupError: no such consumer" in str(error)
    aborted = bench.end(commit=False)
    bench.settle()
    aborted.result(0)
    assert bench.state is TransactionState.READY


def test_closing_resolves_waiting_calls(bench: TransactionBench) -> None:
    bench.open()
    bench.bench.view.down.add(1)
    sent = bench.send()
    committed = bench.end(commit=True)
    bench.settle(seconds=1.0)
    bench.bench.sender.closed(ClosedError("closed"))
    assert isinstance(committed.exception(0), TransactionError)
    assert sent.exception(0) is not None


# -- the table


def test_calls_at_the_wrong_time_are_refused(bench: TransactionBench) -> None:
    with pytest.raises(TransactionError, match="UNINITIALIZED"):
        bench.transaction.begin(bench.bench.view)
    assert isinstance(bench.end(commit=True).exception(0), TransactionError)
    outside = bench.send()
    bench.settle()
    assert isinstance(outside.exception(0), TransactionError)
    bench.open()
    with pytest.raises(TransactionError, match="OPEN"):
        bench.transaction.begin(bench.bench.view)


def test_every_state_can_be_reached_and_left_only_by_the_table() -> None:
    reached, frontier = {TransactionState.UNINITIALIZED}, [TransactionState.UNINITIALIZED]
    while frontier:
        state = frontier.pop()
        for event in TransactionEvent:
            if (state, event) in TRANSITIONS:
                if next_state(state, event) not in reached:
                    reached.add(next_state(state, event))
                    frontier.append(next_state(state, event))
            else:
                with pytest.raises(RuntimeError):
                    next_state(state, event)
    assert reached == set(TransactionState)
    assert {
        next_state(TransactionState.FATAL, event)
        for event in TransactionEvent
        if (TransactionState.FATAL, event) in TRANSITIONS
    } == {TransactionState.FATAL}
