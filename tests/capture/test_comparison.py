"""Two captures compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kwire.capture.comparison import Difference, Limits
from kwire.errors import ConfigurationError
from kwire.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kwire.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kwire.protocol.messages.produce import ProduceRequest, ProduceResponse
from kwire.records import encode_batch
from tests.capture.captures import Talk, pcap, timed
from tests.capture.samples import RECORDS
from tests.capture.test_pairing import talked
from tests.cli.running import run


def produce(acks: int, version: int, error: int = 0) -> tuple[Any, int, Any]:
    partition = ProduceRequest.Topic.Partition(index=0, records=encode_batch(RECORDS))
    stored = ProduceResponse.Topic.Partition(index=0, error_code=error, base_offset=0)
    return (
        ProduceRequest(
            acks=acks, timeout_ms=1, topic_data=[ProduceRequest.Topic(name="t", partition_data=[partition])]
        ),
        version,
        ProduceResponse(responses=[ProduceResponse.Topic(name="t", partition_responses=[stored])]),
    )


METADATA = (MetadataRequest(topics=None), 12, MetadataResponse(brokers=[], topics=[]))
HEARTBEAT = (HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 3, HeartbeatResponse(error_code=0))


def capture(path: Path, exchanges: list[Any], first_id: int = 1) -> str:
    path.write_bytes(pcap(timed(talked(Talk().opened(), exchanges, first_id=first_id).closed().packets)))
    return str(path)


@pytest.fixture
def pair(tmp_path: Path) -> list[str]:
    return [
        capture(tmp_path / "a.pcap", [METADATA, produce(-1, 8), produce(-1, 8), HEARTBEAT]),
        capture(tmp_path / "b.pcap", [METADATA, HEARTBEAT, *[produce(1, 7, 6)] * 3], first_id=50),
    ]


def test_what_differs(pair: list[str]) -> None:
    found = {(one["api"], one["what"]): (one["a"], one["b"]) for one in run("diff", *pair, "-q").lines()}
    assert found.pop(("Produce", "response bytes")) is not None
    assert found == {
        ("Produce", "requests"): (2, 3),
        ("Produce", "versions"): ("8", "7"),
        ("Produce", "errors: NOT_LEADER_OR_FOLLOWER"): (0, 3),
        ("Produce", "acks"): ("-1", "1"),
        ("", "order, after Metadata"): ("Produce", "Heartbeat"),
    }


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        ("", 0), ("errors", 1), ("versions", 1), ("order", 1), ("any", 1), ("requests+49%", 1), ("requests+50%", 0),
        ("p95+10%,p50+10%", 0),
    ],
)  # fmt: skip
def test_limits(pair: list[str], limits: str, code: int) -> None:
    assert run("diff", *pair, "--fail-on", limits).code == code
    assert run("diff", pair[0], pair[0], "--fail-on", "any").code == 0


def test_fewer_errors_are_no_failure(pair: list[str]) -> None:
    assert run("diff", *reversed(pair), "--fail-on", "errors").code == 0


def test_a_filter_and_a_table(pair: list[str]) -> None:
    ran = run("diff", *pair, "-w", "api == Heartbeat", "-f", "table")
    assert (ran.code, ran.stdout, ran.stderr) == (0, "", "0 differences\n")
    assert "+50%" in run("diff", *pair, "-f", "table").stdout


@pytest.mark.parametrize("side", [0, 1])
def test_a_file_that_is_no_capture(pair: list[str], tmp_path: Path, side: int) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(b"no capture")
    pair[side] = str(broken)
    ran = run("diff", *pair, "--fail-on", "any")
    assert ran.code == 4
    assert f"{broken}: " in ran.stderr


def test_wrong_limits() -> None:
    with pytest.raises(ConfigurationError, match="no limit p95"):
        Limits("p95")
    assert Limits("p95+5%").is_exceeded(Difference("c", "Fetch", "p95", 1.0, 1.2, 0.2))
