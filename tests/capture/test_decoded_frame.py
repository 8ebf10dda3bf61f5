"""What `kwire decode` finds in a frame: every byte belongs to a field, and bad bytes raise nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwire.capture.decoded_frame import (
    DecodedFrame,
    RawFrame,
    decode_body,
    decode_request_frame,
    decode_response_frame,
    possible_messages,
    split_frames,
)
from kwire.capture.secrets import Redaction
from kwire.cli.arguments import find_api
from kwire.cli.decode.command import FrameOptions
from kwire.errors import KwireError
from tests.capture.samples import BATCHES, METADATA_REQUEST, METADATA_RESPONSE, RECORDS, fetch, produce, sized

METADATA = find_api("Metadata")
PRODUCE_VERSIONS = {"v2": 9, "v1": 2, "v0": 1}


def produced(batch: str) -> bytes:
    return produce(BATCHES[batch], PRODUCE_VERSIONS[batch.split()[0]])


def covered(decoded: DecodedFrame, frame: bytes, base: int = 0) -> list[str]:
    """Return what is wrong with the rows: each byte of the frame must be in exactly one row, in order."""
    wrong = []
    position = base
    for row in decoded.rows:
        if row.within:
            continue  # an offset in decompressed data
        if row.start != position or row.data != frame[row.start - base : row.end - base]:
            wrong.append(f"{row.path} at {row.start}, not {position}")
        position = row.end
    return wrong if position == base + len(frame) else [*wrong, f"ends at {position}"]


@pytest.mark.parametrize("batch", BATCHES)
def test_every_byte_of_a_request_belongs_to_a_field(batch: str) -> None:
    frame = produced(batch)
    decoded = decode_request_frame(frame, 100)
    assert decoded.problems == []
    # The value of a compressed message appears as bytes, and again decompressed.
    rows = [row for row in decoded.rows if row.type not in ("gzip", "snappy", "lz4") or batch.startswith("v2")]
    decoded.rows = rows
    assert covered(decoded, frame, 100) == []
    assert (decoded.name, decoded.header["clientId"]) == ("Produce v9" if batch[:2] == "v2" else decoded.name, "test")


@pytest.mark.parametrize("batch", BATCHES)
def test_records_of_every_format_and_compression(batch: str) -> None:
    rows = decode_request_frame(produced(batch), 0).rows
    named = [row for row in rows if row.path.endswith(("].key", "].value")) and "header[" not in row.path]
    inner = [row for row in named if row.within] or named
    values = [row.value for row in inner if ".key" not in row.path[-4:]]
    assert values == [value for _, _, value, _ in RECORDS]
    assert [row.value for row in inner if row.path.endswith(".key")] == [key for _, key, _, _ in RECORDS]


def test_notes_beside_numbers() -> None:
    notes = {row.path: row.note for row in decode_response_frame(METADATA_RESPONSE, 0, METADATA, 9).rows}
    assert notes["topics[0].error_code"] == "NONE"
    assert notes["topics[0].partitions[0].error_code"] == "LEADER_NOT_AVAILABLE"
    notes = {row.path: row.note for row in decode_request_frame(produced("v2 lz4"), 0).rows}
    batch = "topic_data[0].partition_data[0].records.batch[0]"
    assert notes[f"{batch}.crc"] == "right"
    assert notes[f"{batch}.attributes"] == "lz4, create time"
    assert notes[f"{batch}.base_timestamp"] == "2023-11-14 22:13:20.000Z"
    assert notes["header.request_api_key"] == "Produce"


def test_an_incomplete_last_batch_is_not_a_problem() -> None:
    decoded = decode_response_frame(fetch(BATCHES["v2"] + BATCHES["v2"][:70]), 0, find_api("Fetch"), 4)
    assert decoded.is_whole
    assert (decoded.rows[-1].note, decoded.rows[-1].path[-8:]) == ("cut off here", "batch[1]")
    assert [row.note for row in decoded.rows if row.path.endswith(".crc")] == ["right", "not checked"]


@pytest.mark.parametrize(
    ("at", "byte", "path", "says"),
    [
        (-2, 0x55, ".crc", "CRC-32C"),
        (61, 0x02, ".record[0]", "its length says"),
        (57, 0x08, ".record[3].length", "the data ends inside"),  # millions of records in the count
        (16, 0x03, ".magic", "no message format 3"),
        (22, 0x07, "", "compression 7"),
    ],
)
def test_a_damaged_batch(at: int, byte: int, path: str, says: str) -> None:
    batch = bytearray(BATCHES["v2"])
    batch[at] = byte
    decoded = decode_request_frame(produce(bytes(batch)), 0)
    assert decoded.message is not None, "the message around it is whole"
    problem = next(one for one in decoded.problems if says in one.message)
    assert f"batch[0]{path}" in str(problem.where["path"])
    assert isinstance(problem.where["offset"], int)


FRAMES = [METADATA_REQUEST, *(produced(batch) for batch in BATCHES)]


@pytest.mark.parametrize("frame", FRAMES, ids=["metadata", *BATCHES])
def test_every_prefix_ends_at_its_last_byte(frame: bytes) -> None:
    for length in range(len(frame)):
        decoded = decode_request_frame(frame[:length], 0)
        assert decoded.problems, length
        assert covered(decoded, frame[:length]) == [], length


@settings(deadline=None)
@given(st.sampled_from(FRAMES), st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), min_size=1, max_size=4))
def test_damaged_bytes_raise_nothing(frame: bytes, changes: list[tuple[int, int]]) -> None:
    damaged = bytearray(frame)
    for at, byte in changes:
        damaged[at % len(frame)] = byte
    decoded = decode_request_frame(bytes(damaged), 0)
    assert decoded.is_whole or decoded.problems
    assert all(isinstance(problem, KwireError) for problem in decoded.problems)


@pytest.mark.parametrize(
    ("frame", "path", "offset", "says"),
    [
        (b"", "header.request_api_key", 0, "2 bytes are needed"),
        (bytes.fromhex("7fff0000 00000001 ffff"), "header.request_api_key", 0, "no API with key 32767"),
        (bytes.fromhex("00030063 00000001 ffff"), "header.request_api_version", 2, "in versions 0-13, not 99"),
        (bytes.fromhex("00030001 00000001 0009 6162"), "header.client_id", 10, "9 bytes are needed and 2 are left"),
        (bytes.fromhex("00030001 00000001 fffe"), "header.client_id", 8, "-2 is not a length"),
        (bytes.fromhex("00030001 00000001 0001 ff"), "header.client_id", 10, "not UTF-8"),
        (METADATA_REQUEST + b"\0", "rest", len(METADATA_REQUEST), "left over"),
    ],
)
def test_where_a_request_fails(frame: bytes, path: str, offset: int, says: str) -> None:
    problem = decode_request_frame(frame, 0).problems[0]
    assert (says in problem.message, problem.where.get("path", "rest"), problem.where["offset"]) == (True, path, offset)


def test_decode_body() -> None:
    decoded = decode_body(METADATA_RESPONSE[5:], 0, "response", METADATA, 9)
    assert decoded.message == decode_response_frame(METADATA_RESPONSE, 0, METADATA, 9).message
    assert decoded.header == {}


def test_possible_messages_include_the_right_one() -> None:
    found = list(possible_messages(METADATA_RESPONSE, 0, ["request", "response"], None))
    assert ("response", "Metadata v9", True) in [(one.decoded.kind, one.decoded.name, one.round_trips) for one in found]
    assert [one.decoded.name for one in possible_messages(METADATA_REQUEST, 0, ["request"], None)] == ["Metadata v9"]


def is_whole(frame: bytes) -> bool:
    return decode_request_frame(frame, 0).is_whole


@pytest.mark.parametrize(
    ("data", "frames"),
    [
        (METADATA_REQUEST, [RawFrame(0, METADATA_REQUEST, False)]),
        (sized(METADATA_REQUEST), [RawFrame(4, METADATA_REQUEST, True)]),
        (
            sized(METADATA_REQUEST) + sized(b"\0\0"),
            [RawFrame(4, METADATA_REQUEST, True), RawFrame(len(METADATA_REQUEST) + 8, b"\0\0", True)],
        ),
        (sized(METADATA_REQUEST)[:-3], [RawFrame(4, METADATA_REQUEST[:-3], True, 3)]),
        (METADATA_REQUEST[:-3], [RawFrame(0, METADATA_REQUEST[:-3], False)]),
        (
            sized(METADATA_REQUEST) + b"\0\0",
            [RawFrame(4, METADATA_REQUEST, True), RawFrame(len(METADATA_REQUEST) + 4, b"\0\0", False)],
        ),
        (b"", [RawFrame(0, b"", False)]),
        (b"\xff\xff\xff\xff\x00", [RawFrame(0, b"\xff\xff\xff\xff\x00", False)]),
    ],
    ids=["bare", "sized", "stream", "cut off", "bare and cut off", "rest", "nothing", "no size"],
)
def test_split_frames(data: bytes, frames: list[RawFrame]) -> None:
    assert split_frames(data, None, is_whole) == frames


def test_split_frames_with_or_without_sizes() -> None:
    data = sized(METADATA_REQUEST)
    assert split_frames(data, False, is_whole) == [RawFrame(0, data, False)]
    assert split_frames(data, True, is_whole) == [RawFrame(4, METADATA_REQUEST, True)]


FIXTURES = Path(__file__).parents[2] / "fixtures"
BROKERS = sorted(path.name for path in FIXTURES.iterdir() if path.is_dir())
NAME = re.compile(r"(?P<api>.+?)_v(?P<version>\d+).*_(?P<kind>request|response)")


@pytest.mark.slow
@pytest.mark.parametrize("broker", BROKERS)
def test_every_recorded_frame_decodes_to_its_last_byte(broker: str) -> None:
    files = sorted((FIXTURES / broker).glob("*.bin"))
    assert files
    for file in files:
        name = NAME.fullmatch(file.stem)
        assert name is not None, file
        is_request = name["kind"] == "request"
        options = FrameOptions.of(
            None if is_request else name["api"],
            None if is_request else name["version"],
            None,
            False,
            redaction=Redaction(secrets=False),
        )
        data = file.read_bytes()
        for framed, start in ((data, 0), (len(data).to_bytes(4, "big") + data, 4)):
            frames = split_frames(framed, None, options.makes_sense)
            assert frames == [RawFrame(start, data, has_size=start == 4)], file
            decoded = options.read(frames[0])
            assert decoded.is_whole, (file, decoded.problems)
            assert (decoded.kind, decoded.version) == (name["kind"], int(name["version"])), file
            recorded = json.loads(file.with_suffix(".json").read_text())
            assert (decoded.header, decoded.message) == (recorded["header"], recorded["body"]), file
            assert max(row.end for row in decoded.rows if not row.within) == start + len(data), file
