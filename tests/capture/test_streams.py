"""Streams are built from damaged sequences of segments, and frames from streams with gaps."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.capture.frames import SEARCHED_BYTES_MAX, FrameParser, Skipped, StreamFrame
from kwire.capture.tcp import (
    EARLY_BYTES_MAX,
    EARLY_SEGMENTS_MAX,
    Event,
    Gap,
    HalfStream,
    StreamData,
)

FIRST = 2**32 - 1000  # sequence numbers wrap around in nearly every test


def joined(events: Iterable[Event]) -> list[bytes | int]:
    """Return consecutive bytes as one item, and a gap as its size."""
    found: list[bytes | int] = []
    for event in events:
        if isinstance(event, Gap):
            found.append(event.size)
        elif found and isinstance(found[-1], bytes):
            found[-1] += event.data
        else:
            found.append(event.data)
    return found


def heard(half: HalfStream, segments: Iterable[tuple[int, bytes]]) -> list[Event]:
    events: list[Event] = []
    for packet, (start, data) in enumerate(segments):
        events += half.add((FIRST + start) % 2**32, data, 0, packet, packet)
    return events


TABLE: list[tuple[str, list[tuple[int, bytes]], list[bytes | int]]] = [
    ("in order", [(0, b"abc"), (3, b"def")], [b"abcdef"]),
    ("out of order", [(3, b"def"), (0, b"abc")], [b"abcdef"]),
    ("sent again", [(0, b"abc"), (0, b"abc"), (3, b"def")], [b"abcdef"]),
    ("sent again with more", [(0, b"abc"), (0, b"abcdef")], [b"abcdef"]),
    ("sent again with other ends", [(0, b"abcd"), (2, b"cdef"), (1, b"bc")], [b"abcdef"]),
    ("a probe whether the other side lives", [(0, b"abc"), (2, b"c"), (3, b"def")], [b"abcdef"]),
    ("waiting twice", [(3, b"def"), (3, b"def"), (0, b"abc")], [b"abcdef"]),
    ("waiting, in pieces", [(4, b"e"), (3, b"d"), (5, b"f"), (0, b"abc")], [b"abcdef"]),
    ("a hole", [(0, b"abc"), (6, b"ghi")], [b"abc", 3, b"ghi"]),
    ("two holes", [(0, b"a"), (2, b"c"), (4, b"e")], [b"a", 1, b"c", 1, b"e"]),
    ("what fills a hole in part", [(0, b"a"), (4, b"e"), (2, b"cd")], [b"a", 1, b"cde"]),
]


@pytest.mark.parametrize(("name", "segments", "expected"), TABLE, ids=[name for name, _, _ in TABLE])
def test_segments_to_stream(name: str, segments: list[tuple[int, bytes]], expected: list[bytes | int]) -> None:
    half = HalfStream()
    half.begin(FIRST)
    assert joined([*heard(half, segments), *half.flush()]) == expected


def test_a_stream_joined_midway_begins_at_its_first_segment() -> None:
    half = HalfStream()
    assert not half.has_begun
    assert joined([*half.add(5, b"abc", 0, 1, 1), *half.add(8, b"def", 0, 2, 2)]) == [b"abcdef"]


def test_data_says_whether_it_begins_a_segment() -> None:
    half = HalfStream()
    half.begin(FIRST)
    events = heard(half, [(0, b"abc"), (1, b"bcde"), (5, b"f")])
    assert [(event.data, event.is_start, event.packet) for event in events if isinstance(event, StreamData)] == [
        (b"abc", True, 0), (b"de", False, 1), (b"f", True, 2)
    ]  # fmt: skip
    assert half.resent_bytes == 2


def test_a_hole_is_a_gap_once_the_reader_must_have_received_it() -> None:
    half = HalfStream()
    half.begin(0)
    assert joined(half.add(3, b"def", 0, 1, 1)) == []
    assert not list(half.acknowledged(0)), "it has not"
    assert not list(half.acknowledged(3)), "it may acknowledge a copy of what is before the hole"
    assert [list(half.acknowledged(6)) for _ in range(2)] == [[], []], "the capture may be out of order"
    assert joined(half.acknowledged(6)) == [3, b"def"]
    assert not list(half.add(0, b"abc", 0, 2, 2)), "too late"


def test_bytes_beyond_the_snapshot_length_are_a_gap() -> None:
    half = HalfStream()
    half.begin(0)
    assert joined(half.add(0, b"ab", 4, 1, 1)) == [b"ab", 4]
    assert joined(half.add(6, b"gh", 0, 2, 2)) == [b"gh"]
    assert joined(half.add(4, b"efgh", 2, 3, 3)) == [2], "sent again, and cut off too"


def test_the_end_of_a_stream() -> None:
    half = HalfStream()
    half.begin(0)
    half.finish(3)
    assert not half.has_ended
    list(half.add(0, b"abc", 0, 1, 1))
    assert half.has_ended


def test_early_segments_are_bounded() -> None:
    for size, count in ((64 * 1024, 40), (1, 2 * EARLY_SEGMENTS_MAX)):
        half = HalfStream()
        half.begin(0)
        events: list[Event] = []
        for index in range(count):
            events += half.add(10 + index * size, bytes(size), 0, index, index)
            assert half._waiting_bytes <= EARLY_BYTES_MAX
        assert joined([*events, *half.flush()]) == [10, bytes(size * count)]


@given(st.data())
def test_any_order_with_losses_and_retransmissions(data: st.DataObject) -> None:
    stream = bytes(index % 251 for index in range(data.draw(st.integers(1, 300))))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=12)) | {0, len(stream)})
    segments = [(start, stream[start:end]) for start, end in pairwise(cuts)]
    sent = data.draw(st.lists(st.sampled_from(segments), max_size=20)) if segments else []
    half = HalfStream()
    half.begin(FIRST)
    position, known = 0, {index for start, piece in sent for index in range(start, start + len(piece))}
    for event in [*heard(half, sent), *half.flush()]:
        size = event.size if isinstance(event, Gap) else len(event.data)
        if isinstance(event, StreamData):
            assert event.data == stream[position : position + size]
        else:
            assert not known & set(range(position, position + size)), "what came is not missing"
        position += size
    assert position == max(known, default=-1) + 1


def sized(*frames: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)


def nowhere(buffer: bytes, marks: Sequence[int]) -> int | None:
    return None


def at_hash(buffer: bytes, marks: Sequence[int]) -> int | None:
    """In these tests, a frame that can be found again has # after its size."""
    found = buffer.find(b"#", 4)
    return found - 4 if found >= 0 else None


def cut(events: Iterable[bytes | int], *, in_step: bool = True, frame_bytes_max: int = 100) -> list[object]:
    """Return the result of pieces and gaps: whole frames as bytes, broken ones as (bytes, missing), else Skipped."""
    cutter = FrameParser(at_hash, frame_bytes_max=frame_bytes_max, in_step=in_step)
    found = [one for event in events for one in cutter.feed(Gap(event) if isinstance(event, int) else piece(event))]
    return [
        one if isinstance(one, Skipped) else (one.data, one.missing) if one.missing else one.data
        for one in [*found, *cutter.finish(is_whole=False)]
    ]


def piece(data: bytes) -> StreamData:
    return StreamData(data, 1, 2, is_start=True)


STREAM = sized(b"abcdef", b"#hijkl", b"")
FRAMES = [
    ([STREAM], True, [b"abcdef", b"#hijkl", b""]),
    ([STREAM[:7], 2, STREAM[9:]], True, [(b"abc", 3), b"#hijkl", b""]),
    ([STREAM[:7], 3, STREAM[10:]], True, [(b"abc", 3), b"#hijkl", b""]),
    ([STREAM[:4], 6, STREAM[10:]], True, [(b"", 6), b"#hijkl", b""]),
    ([STREAM[:7], 4, STREAM[11:]], True, [(b"abc", 3), Skipped(13, 1)]),
    ([STREAM[:7], 4, STREAM[11:] + STREAM], True, [(b"abc", 3), Skipped(23, 1), b"#hijkl", b""]),
    ([STREAM[:2], 1, STREAM[3:]], True, [Skipped(9, 1), b"#hijkl", b""]),
    ([5, STREAM], True, [Skipped(10, 5), b"#hijkl", b""]),
    ([STREAM[5:]], False, [Skipped(5, 0), b"#hijkl", b""]),
    ([STREAM[:12]], True, [b"abcdef", Skipped(2, 0)]),
    ([STREAM[:17]], True, [b"abcdef", (b"#hi", 3)]),
    ([b"\xff\xff\xff\xff" + STREAM], True, [Skipped(14, 0), b"#hijkl", b""]),
    ([b"\x7f\xff\xff\xff" + STREAM], True, [Skipped(14, 0), b"#hijkl", b""]),
    ([sized(b"x" * 90, b"y" * 300, b"z")], True, [b"x" * 90, (b"y" * 100, 200), b"z"]),
    ([sized(b"y" * 300, b"z")[:110], sized(b"y" * 300, b"z")[110:]], True, [(b"y" * 100, 200), b"z"]),
    ([sized(b"y" * 300, b"z")[:110], 150, sized(b"y" * 300, b"z")[260:]], True, [(b"y" * 100, 200), b"z"]),
    ([sized(b"y" * 300)[:50], 254, sized(b"z")], True, [(b"y" * 46, 254), b"z"]),
]


@pytest.mark.parametrize(("events", "in_step", "expected"), FRAMES)
def test_frames(events: list[bytes | int], in_step: bool, expected: list[object]) -> None:
    assert cut(events, in_step=in_step) == expected
    by_byte = [one for event in events for one in ([event] if isinstance(event, int) else list_of_bytes(event))]
    assert joined_skips(cut(by_byte, in_step=in_step)) == joined_skips(expected), "and byte by byte"


def list_of_bytes(data: bytes) -> list[bytes | int]:
    return [data[index : index + 1] for index in range(len(data))]


def joined_skips(found: list[object]) -> list[object]:
    return [one for one in found if not isinstance(one, Skipped)]


def test_the_search_buffer_is_bounded() -> None:
    cutter = FrameParser(nowhere, frame_bytes_max=10, in_step=False)
    for _ in range(100):
        assert not list(cutter.feed(piece(bytes(5000))))
        assert len(cutter._buffer) <= SEARCHED_BYTES_MAX
    assert list(cutter.finish(is_whole=False)) == [Skipped(500_000, 0)]


def test_a_frame_has_the_packet_that_completed_it() -> None:
    cutter = FrameParser(nowhere, frame_bytes_max=10, in_step=True)
    data = sized(b"abc", b"de")
    found = [
        *cutter.feed(StreamData(data[:5], 1, 10, is_start=True)),
        *cutter.feed(StreamData(data[5:], 2, 20, is_start=True)),
    ]
    assert found == [StreamFrame(b"abc", 0, 2, 20), StreamFrame(b"de", 0, 2, 20)]
