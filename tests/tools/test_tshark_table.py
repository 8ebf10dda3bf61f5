"""Test how tools/tshark-table counts frames."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from checks.tshark_table import Count, count_by_kwire, count_pdml

from kwire.protocol.headers import encode_request
from kwire.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.capture.captures import CLIENT
from tests.lint.traffic import Connection, Traffic

_FRAME = '<proto name="kafka"><field name="kafka.len"/>{}</proto>'
_SAYS = '<field name="_ws.expert"><field name="_ws.expert.message" show="{}"/></field>'


def packets(*each: str) -> str:
    return f"<pdml>{''.join(f'<packet>{one}</packet>' for one in each)}</pdml>"


def test_a_frame_counts_as_read_unless_tshark_complains() -> None:
    good = _FRAME.format("")
    malformed = good + '<proto name="_ws.malformed"/>'
    old = _FRAME.format(_SAYS.format("Unsupported Fetch version. Supports v0-16."))
    missing = _FRAME.format(_SAYS.format("Request missing"))
    found = count_pdml(packets(good, good + malformed, old, missing + good, "<proto name='tcp'/>"))
    assert found == Count(6, Counter({"Malformed": 1, "Unsupported version": 1, "Request missing": 1}))
    assert found.read == 3


def test_kwire_counts_requests_and_responses_that_it_reads_to_their_end(tmp_path: Path) -> None:
    path, traffic = tmp_path / "one.pcap", Traffic()
    connection = Connection(traffic, ("10.0.0.1", 50_000), ("10.0.0.2", 9_092), "app").opened(0.0)
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    connection.exchange(0.1, request, 2, HeartbeatResponse(error_code=0))
    whole = b"".join(map(bytes, encode_request(request, 2, 9, "app")))
    connection.data(0.2, CLIENT, (len(whole) - 1).to_bytes(4, "big") + whole[:-1])
    path.write_bytes(traffic.capture())
    count, ports = count_by_kwire(path)
    assert (count.frames, count.read, ports) == (3, 2, {9_092})
