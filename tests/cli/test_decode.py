"""`kwire decode`: its output for people and for programs, and the exit codes."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from kwire.capture.decoded_frame import decode_request_frame
from kwire.capture.frame_json import row_to_json
from kwire.cli.decode.render import FieldTable
from tests.capture.samples import BATCHES, METADATA_REQUEST, METADATA_RESPONSE, fetch, produce, sized
from tests.cli.running import run

RESPONSE_OPTIONS = ["--api", "metadata", "--version", "9"]


@pytest.mark.parametrize(
    ("stdin", "options"),
    [
        (METADATA_REQUEST, []),
        (sized(METADATA_REQUEST), []),
        (METADATA_REQUEST.hex(" "), []),
        (base64.b64encode(METADATA_REQUEST), []),
        (METADATA_REQUEST.hex(), ["--hex"]),
        (base64.b64encode(sized(METADATA_REQUEST)), ["--base64", "--sized"]),
        (METADATA_REQUEST, ["--raw", "--bare", "--request"]),
        (METADATA_REQUEST, ["--api", "Metadata"]),
        (METADATA_REQUEST, ["--api", "3", "--version", "9", "--request"]),
    ],
)
def test_a_request_in_any_input_format(stdin: bytes | str, options: list[str]) -> None:
    ran = run("decode", *options, stdin=stdin)
    assert (ran.code, ran.stderr) == (0, "")
    (frame,) = ran.lines()
    assert (frame["kind"], frame["api"], frame["api_key"], frame["version"]) == ("request", "Metadata", 3, 9)
    assert frame["header"] == {"requestApiKey": 3, "requestApiVersion": 9, "correlationId": 7, "clientId": "test"}
    assert frame["message"]["topics"] == [{"name": "orders"}]
    assert "".join(field["hex"] for field in frame["fields"] if field["path"] != "size") == METADATA_REQUEST.hex()


@pytest.mark.parametrize(
    "options", [RESPONSE_OPTIONS, ["--api", "MetadataResponse"], [*RESPONSE_OPTIONS, "--response"]]
)
def test_a_response(options: list[str]) -> None:
    (frame,) = run("decode", *options, stdin=METADATA_RESPONSE).lines()
    assert (frame["kind"], frame["version"], frame["header"]) == ("response", 9, {"correlationId": 7})
    assert frame["message"]["brokers"] == [{"nodeId": 1, "host": "db1.example.org", "port": 9092, "rack": None}]


def test_a_message_without_a_header() -> None:
    ran = run("decode", *RESPONSE_OPTIONS, "--response", "--body", stdin=METADATA_RESPONSE[5:])
    assert ran.code == 0
    assert ran.lines()[0]["message"]["topics"][0]["name"] == "orders"


def test_a_stream_of_frames_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "frames.bin"
    file.write_bytes(sized(METADATA_REQUEST) + sized(produce(BATCHES["v2 gzip"])))
    frames = run("decode", str(file), "--no-annotate").lines()
    assert [(frame["frame"], frame["offset"], frame["api"]) for frame in frames] == [
        (1, 0, "Metadata"),
        (2, len(METADATA_REQUEST) + 4, "Produce"),
    ]
    assert "fields" not in frames[0]


def test_json_has_the_record_batches() -> None:
    (frame,) = run("decode", "--api", "Fetch", "--version", "4", stdin=fetch(BATCHES["v2 lz4"])).lines()
    (batch,) = frame["batches"]
    assert (batch["path"], batch["compression"], batch["count"]) == ("responses[0].partitions[0].records", "lz4", 3)
    assert batch["records"][0] == {
        "offset": 0,
        "timestamp_ms": 1700000000000,
        "key": "k1",
        "value": "hello",
        "headers": [["trace", {"base64": "/wA="}], ["empty", None]],
    }
    assert {field.get("within") for field in frame["fields"]} == {None, "lz4"}


def test_try_versions() -> None:
    found = run("decode", "--try-versions", stdin=METADATA_RESPONSE).lines()
    assert [(one["kind"], one["api"], one["version"]) for one in found if one["same_bytes_again"]] == [
        ("response", "Metadata", 9)
    ]
    table = run("decode", "--try-versions", "-f", "table", stdin=METADATA_RESPONSE)
    assert "response  Metadata        9  yes" in table.stdout
    assert run("decode", "--try-versions", "--api", "Metadata", "--version", "8", stdin=METADATA_RESPONSE).code == 4


def test_undecodable_bytes_show_the_fields_before_them() -> None:
    ran = run("decode", "-f", "table", stdin=sized(METADATA_REQUEST)[:-6])
    assert ran.code == 4
    assert 'client_id            string   "test"' in ran.stdout
    assert "topics[0]" in ran.stdout
    assert "the frame's size is 28, but only 22 bytes follow, 6 too few" in ran.stdout
    assert (
        "6 bytes are needed and 5 are left\n  at:  MetadataRequest, v9, field topics[0].name, offset 21" in ran.stdout
    )


def test_a_request_decoded_as_a_response_is_an_error() -> None:
    ran = run("decode", "--response", stdin=METADATA_REQUEST)
    assert ran.code == 4
    (problem,) = ran.lines()[0]["problems"]
    assert problem["message"].startswith("these bytes are a request, Metadata v")
    assert "leave out --response" in problem["remedy"]


def test_a_response_decoded_as_a_request_is_an_error() -> None:
    ran = run("decode", stdin=METADATA_RESPONSE)
    assert ran.code == 4
    assert "decode as Metadata v9 (response): use --api and --version" in ran.stderr
    assert run("decode", "-q", stdin=METADATA_RESPONSE).stderr == ""


def test_a_wrong_checksum_is_a_problem() -> None:
    batch = bytearray(BATCHES["v2"])
    batch[-2] ^= 1
    ran = run("decode", stdin=produce(bytes(batch)))
    assert ran.code == 4
    (problem,) = ran.lines()[0]["problems"]
    assert problem["path"] == "topic_data[0].partition_data[0].records.batch[0].crc"
    (field,) = (one for one in ran.lines()[0]["fields"] if one["path"] == problem["path"])
    assert field["offset"] == problem["offset"]


@pytest.mark.parametrize(
    ("args", "stdin", "code", "says"),
    [
        ([], "zz", 4, "the input is not hex: 'z' in line 1"),
        ([], "", 4, "the input is empty"),
        ([], b"HTTP/1.1 400 Bad Request\0", 4, None),
        (["--version", "9"], "00", 2, "--version needs --api"),
        (["--api", "Metdata"], "00", 2, "there is no API Metdata; did you mean Metadata"),
        (["--api", "Metadata", "--version", "99"], "00", 2, "Metadata has versions 0-13, not 99"),
        (["--body", "--api", "Metadata"], "00", 2, "--body needs"),
        (["nosuchfile"], "", 2, "nosuchfile"),
    ],
)
def test_wrong_options_are_errors(args: list[str], stdin: bytes | str, code: int, says: str | None) -> None:
    ran = run("decode", *args, stdin=stdin)
    assert ran.code == code
    assert says is None or says in ran.stderr


@pytest.mark.parametrize(
    ("data", "remedy"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\0", "these bytes are HTTP"),
        (bytes.fromhex("15030300020246"), "these bytes are TLS"),
        (bytes.fromhex("7fff000000000000"), "if it is a response"),
    ],
)
def test_other_protocols_are_named(data: bytes, remedy: str) -> None:
    assert remedy in run("decode", "-f", "table", "--bare", stdin=data).stdout


NARROW = """\
offset  bytes              field                      type      value
                           header
     0  0003                request_api_key           int16     3  Metadata
     2  0009                request_api_version       int16     9
     4  00000007            correlation_id            int32     7
     8  00047465 7374       client_id                 string    "test"
    14  00                  tagged_fields             uvarint   0
    15  02                 topics                     []Topic   1
                           topics[0]
    16  076f7264 657273     name                      string    "orders"
    23  00                  tagged_fields             count     0
    24  01                 allow_auto_topic_creation  boolean   true
"""


def test_the_layout_of_a_narrow_terminal() -> None:
    rows = decode_request_frame(METADATA_REQUEST, 0).rows
    lines = list(FieldTable(rows, 80, 32, has_colour=False).lines(rows))
    assert all(len(line) <= 80 for line in lines)
    squeezed = [" ".join(line.split()) for line in lines]
    assert squeezed[: len(NARROW.splitlines())] == [" ".join(line.split()) for line in NARROW.splitlines()]


@pytest.mark.parametrize("width", [60, 80, 119, 120, 160])
@pytest.mark.parametrize("batch", BATCHES)
def test_lines_fit_the_terminal(width: int, batch: str) -> None:
    """Lines fit the width, except the line of a deep field: its name is not cut."""
    rows = decode_request_frame(produce(BATCHES[batch], {"2": 9, "1": 2, "0": 1}[batch[1]]), 0).rows
    lines = list(FieldTable(rows, width, 32, has_colour=False).lines(rows))
    assert sum(len(line) > width for line in lines) == 0 or width < 80


def test_long_fields_are_cut_by_default() -> None:
    frame = produce(BATCHES["v2 gzip"])
    assert "more" in run("decode", "-f", "table", stdin=frame).stdout
    assert " more" not in run("decode", "-f", "table", "--bytes", "0", stdin=frame).stdout


def test_json_of_a_field() -> None:
    row = next(row for row in decode_request_frame(METADATA_REQUEST, 0).rows if row.path == "topics[0].name")
    assert json.loads(json.dumps(row_to_json(row))) == {
        "offset": 16,
        "length": 7,
        "hex": "076f7264657273",
        "path": "topics[0].name",
        "type": "string",
        "value": "orders",
    }
