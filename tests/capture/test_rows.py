"""An exchange as a row has what `kwire decode` says of it."""

from __future__ import annotations

import base64
import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kwire.capture import read_exchanges
from kwire.capture.rows import COLUMNS, row_maker
from kwire.capture.secrets import Redaction
from kwire.errors import ConfigurationError
from kwire.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from tests.capture.captures import Talk, pcap, timed
from tests.capture.generated import generated
from tests.capture.test_pairing import talked
from tests.cli.running import run
from tests.cli.test_capture_view import CAPTURE

ALSO_IN_DECODE = (
    "connection", "client", "broker", "api", "api_key", "version", "correlation_id", "latency_ms", "summary", "errors",
)  # fmt: skip
PLAIN = SaslAuthenticateRequest(auth_bytes=b"\0user\0open sesame")
ACCEPTED = SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b"")
SECRET = pcap(timed(talked(Talk().opened(), [(PLAIN, 2, ACCEPTED)]).closed().packets))
TOKEN = base64.b64encode(PLAIN.auth_bytes).decode()


def rows(capture: bytes, **options: Any) -> list[dict[str, Any]]:
    make = row_maker(COLUMNS)
    return [dict(zip(COLUMNS, make(one), strict=True)) for one in read_exchanges(io.BytesIO(capture), **options)]


@pytest.mark.parametrize("capture", [CAPTURE, b"".join(generated(1_000_000))], ids=["handmade", "generated"])
def test_rows_are_those_of_decode(capture: bytes, tmp_path: Path) -> None:
    file = tmp_path / "capture"
    file.write_bytes(capture)
    decoded = run("decode", "-f", "json", str(file)).lines()
    found = rows(capture)
    assert len(found) == len(decoded) > 3
    for row, line in zip(found, decoded, strict=True):
        for name in ALSO_IN_DECODE:
            assert row[name] == line[name], name
        for side in ("request", "response"):
            assert (None if row[side] is None else json.loads(row[side])) == line[side]
            sized = (row[f"{side}_bytes"], row[f"{side}_packet"])
            assert sized == ((line[side]["size"], line[side]["packet"]) if line[side] else (0, None))
        text = (line["request"] or line["response"])["time"]
        assert datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=row["time"] // 1000) == datetime.fromisoformat(
            text
        )
        assert row["error"] == (line["errors"][0]["name"] if line["errors"] else None)


def test_secrets_are_masked_unless_asked_for() -> None:
    assert TOKEN not in json.dumps(rows(SECRET))
    assert TOKEN in rows(SECRET, redaction=Redaction(secrets=False))[0]["request"]


def test_what_cannot_be_decoded_is_told() -> None:
    broken = bytearray(CAPTURE)
    at = broken.index(b"orders") - 1
    broken[at] = 0xFE  # the name's length is beyond the frame
    told = [row for row in rows(bytes(broken)) if row["problems"]]
    assert told
    assert told[0]["api"] == "Metadata"


def test_only_the_columns_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    make = row_maker(["latency_ms", "api"])
    monkeypatch.setattr("kwire.capture.rows.captured_frame_to_json", None)
    assert [make(one) for one in read_exchanges(io.BytesIO(CAPTURE))][1] == (1.0, "Metadata")
    with pytest.raises(ConfigurationError, match=r"no column latency: its columns are time, "):
        row_maker(["latency"])
