"""The filter language: what an expression accepts, and where a wrong one is wrong."""

from __future__ import annotations

import io
from functools import cache
from typing import Any

import pytest

from kwire.capture import Exchange, read_exchanges
from kwire.capture.filters import Filter
from kwire.errors import FilterError
from kwire.protocol.messages.fetch import FetchRequest, FetchResponse
from kwire.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kwire.protocol.messages.produce import ProduceRequest, ProduceResponse
from kwire.records import encode_batch
from tests.capture.captures import Talk, pcap, timed
from tests.capture.samples import RECORDS
from tests.capture.test_pairing import talked


@cache
def exchanges() -> list[Exchange]:
    partition = ProduceRequest.Topic.Partition(index=3, records=encode_batch(RECORDS))
    topic = ProduceRequest.Topic(name="orders", partition_data=[partition])
    stored = ProduceResponse.Topic.Partition(index=3, error_code=6, base_offset=-1)
    talk: list[Any] = [
        (ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic], transactional_id="billing-1"), 8,
         ProduceResponse(responses=[ProduceResponse.Topic(name="orders", partition_responses=[stored])])),
        (HeartbeatRequest(group_id="g", generation_id=4, member_id="m"), 3, HeartbeatResponse(error_code=0)),
        (FetchRequest(max_wait_ms=500, min_bytes=1, topics=[]), 12, FetchResponse(responses=[])),
    ]  # fmt: skip
    data = pcap(timed(talked(Talk().opened(), talk, first_id=1).closed().packets))
    return list(read_exchanges(io.BytesIO(data)))


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        ("api == Produce", [1]),
        ("api == produce or api == HEARTBEAT", [1, 2]),
        ("api in (Produce, Fetch)", [1, 3]),
        ("api not in (Produce, Fetch)", [2]),
        ("not api == Produce", [2, 3]),
        ("topic ~ ord", [1]),
        ('topic ~ "o*s" and partition == 3', [1]),
        ("topic ~ 'o*x'", []),
        ("topic ~ /^or[dx]ers$/", [1]),
        ("topic != orders", [2, 3]),
        ("error != NONE", [1]),
        ("error == NONE", [2, 3]),
        ("error == 6", [1]),
        ("error", [1]),
        ("group == g", [2]),
        ("member == m and txn == billing-1", []),
        ("txn ~ billing", [1]),
        ("request.acks == -1", [1]),
        ("request.generation_id >= 4", [2]),
        ("request.generationId < 4", []),
        ("response.responses.partition_responses.errorCode == 6", [1]),
        ("records.value ~ hello", [1]),
        ("records.value == hello and records.offset == 0", [1]),
        ("records.headers.empty == null", [1]),
        ("records.key == k1", [1]),
        ("records > 2", [1]),
        ("ms < 1.5 and corr in (1, 2)", [1, 2]),
        ("api == Fetch or api == Produce and topic == x", [3]),  # `and` binds closer
        ("(api == Fetch or api == Produce) and topic == x", []),
        ("client == client and version > 7 and bytes > 10 and packet > 0 and conn == 1", [1, 3]),
        ('broker ~ ":9092"', [1, 2, 3]),
        ("throttle > 0 or problem", []),
    ],
)
def test_what_an_expression_accepts(text: str, accepted: list[int]) -> None:
    wanted = Filter(text)
    assert [one.correlation_id for one in exchanges() if wanted.accepts(one)] == accepted


@pytest.mark.parametrize(
    ("text", "offset", "says"),
    [
        ("", 0, "empty"),
        ("topc == x", 0, "did you mean topic"),
        ("api == Prodce", 7, "did you mean Produce"),
        ("ms > fast", 5, "not a number"),
        ("api = Produce", 4, "write == to compare"),
        ("(api == Produce", 0, "not closed"),
        ("api == Produce and", 18, "a name is expected"),
        ("api == Produce ms", 15, "join comparisons"),
        ("topic ==", 8, "a value is expected"),
        ("topic in x", 9, "in brackets"),
        ("topic in (x", 11, "closing bracket"),
        ("topic ~ /(/", 9, "not a regular expression"),
        ("request.asks == 1", 0, "did you mean acks"),
        ("records.vale == 1", 0, "did you mean value"),
        ("request == 1", 0, "a field is expected"),
        ('topic == "x', 9, "close the quotes"),
    ],
)
def test_an_error_names_its_place(text: str, offset: int, says: str) -> None:
    with pytest.raises(FilterError) as caught:
        Filter(text)
    error = caught.value
    assert error.where["offset"] == offset, error
    assert says in f"{error.message} {error.remedy}"
    assert error.message.splitlines()[-1] == "  " + " " * offset + "^"
