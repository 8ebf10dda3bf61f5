"""Frames from a stream: fed whole, byte by byte, split anywhere, followed by more; and streams of other protocols."""

from __future__ import annotations

import doctest
import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kwire.wire.frame
from kwire.errors import NotKafkaError
from kwire.wire.frame import SIZE, BytesLike, FrameReader, not_kafka
from tests.wire.speedups import needs_c, speedups


def framed(*frames: BytesLike) -> bytes:
    return b"".join(SIZE.pack(len(frame)) + frame for frame in frames)


STREAMS = [
    ([b"\0\0\0\1rest"]),
    ([b""]),
    ([b"", b"", b"x"]),
    ([b"first", b"", b"third", b"4" * 300]),
    ([bytes(range(256)), b"\0", b"HTTP/1.1 inside a frame is data"]),
]


@pytest.mark.parametrize("frames", STREAMS)
class TestFeeding:
    def test_whole(self, frames: list[bytes]) -> None:
        reader = FrameReader()
        assert reader.feed(framed(*frames)) == frames
        assert reader.progress is None
        assert reader.frames_read == len(frames)

    def test_byte_by_byte(self, frames: list[bytes]) -> None:
        reader = FrameReader()
        assert [frame for byte in framed(*frames) for frame in reader.feed(bytes([byte]))] == frames

    def test_cut_in_two_at_each_byte(self, frames: list[bytes]) -> None:
        stream = framed(*frames)
        for cut in range(len(stream) + 1):
            reader = FrameReader()
            assert reader.feed(stream[:cut]) + reader.feed(stream[cut:]) == frames

    def test_truncated_at_each_byte(self, frames: list[bytes]) -> None:
        """`feed` returns whole frames, `progress` has the rest, and the end shows no known protocol."""
        stream = framed(*frames)
        for cut in range(len(stream)):
            reader = FrameReader()
            whole = reader.feed(stream[:cut])
            assert whole == frames[: len(whole)]
            rest = stream[len(framed(*whole)) : cut]
            if not rest:
                assert reader.progress is None
            elif len(rest) < SIZE.size:
                assert reader.progress == (len(rest), SIZE.size)
            else:
                assert reader.progress == (len(rest) - SIZE.size, len(frames[len(whole)]))
            assert reader.ended() is None

    def test_with_the_next_behind(self, frames: list[bytes]) -> None:
        reader = FrameReader()
        assert reader.feed(framed(*frames) + b"\0\0") == frames
        assert reader.progress == (2, 4)

    def test_of_any_bytes_like(self, frames: list[bytes]) -> None:
        assert FrameReader().feed(bytearray(framed(*frames))) == frames
        got = FrameReader().feed(memoryview(framed(*frames)))
        assert got == frames
        assert all(type(frame) is bytes for frame in got)  # decoders keep views of frames, so frames must be immutable


@given(st.lists(st.binary(max_size=50), max_size=8), st.data())
def test_any_cuts(frames: list[bytes], data: st.DataObject) -> None:
    stream = framed(*frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    reader = FrameReader()
    got: list[BytesLike] = []
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        got += reader.feed(stream[start:stop])
    assert got == frames


NOT_KAFKA = [
    (b"HTTP/1.1 400 Bad Request\r\nServer: x", "the peer speaks HTTP: 'HTTP/1.1 400 Bad Request'"),
    (b"GET / HTTP/1.1\r\n", "the peer is an HTTP client: 'GET / HTTP/1.1'"),
    (b"POST /topics HTTP/1.1\r\n", "the peer is an HTTP client"),
    (b"PRI * HTTP/2.0\r\n", "the peer is an HTTP client"),
    (b"\x15\x03\x03\x00\x02\x02\x46", "the peer speaks TLS (it sent an alert), and this connection is plaintext"),
    (b"\x16\x03\x01\x02\x00\x01\x00", "the peer speaks TLS (it sent a handshake), and this connection is plaintext"),
    (b"220 mail ESMTP\r\n", "the peer sent text: '220 mail ESMTP'"),
    (b"-ERR unknown command\r\n", "the peer sent text: '-ERR unknown command'"),
    (b"SSH-2.0-OpenSSH_9\r\n", "the peer sent text: 'SSH-2.0-OpenSSH_9'"),
    (b"\xff\xff\xff\xff", "the peer announced a frame of -1 bytes"),
    (b"\x80\0\0\0", "the peer announced a frame of -2147483648 bytes"),
    (b"\x7f\xff\xff\xff", "the peer announced a frame of 2,147,483,647 bytes, above the limit of 104,857,600"),
]


@pytest.mark.parametrize(("stream", "message"), NOT_KAFKA)
def test_streams_that_are_not_kafka(stream: bytes, message: str) -> None:
    reader = FrameReader()
    with pytest.raises(NotKafkaError) as caught:
        reader.feed(stream)
    assert caught.value.message.startswith(message)
    assert caught.value.remedy
    with pytest.raises(NotKafkaError):  # the error persists
        reader.feed(framed(b"good"))
    assert reader.ended() is caught.value


@pytest.mark.parametrize(("stream", "_"), NOT_KAFKA)
def test_byte_by_byte_they_are_rejected_at_the_size(stream: bytes, _: str) -> None:
    reader = FrameReader()
    for byte in stream[:3]:
        assert reader.feed(bytes([byte])) == []
    with pytest.raises(NotKafkaError):
        reader.feed(stream[3:4])


def test_valid_frames_before_an_invalid_one_are_returned() -> None:
    reader = FrameReader()
    assert reader.feed(framed(b"one", b"two") + b"\xff\xff\xff\xff") == [b"one", b"two"]
    assert reader.failure is not None
    with pytest.raises(NotKafkaError):
        reader.feed(b"")


@pytest.mark.parametrize("size", [0, 1, 999, 1000])
def test_a_frame_of_the_limit_is_accepted(size: int) -> None:
    assert FrameReader(1000).feed(framed(bytes(size))) == [bytes(size)]


def test_a_frame_above_the_limit_is_rejected() -> None:
    with pytest.raises(NotKafkaError, match=r"a frame of 1,001 bytes, above the limit of 1,000.*raise max_frame_bytes"):
        FrameReader(1000).feed(SIZE.pack(1001))


def test_the_end_of_a_stream_reveals_a_protocol_that_looks_like_a_valid_size() -> None:
    reader = FrameReader(2**31 - 1)
    assert reader.feed(b"HTTP/1.1 400 Bad Request\r\n\r\n") == []
    error = reader.ended()
    assert error is not None
    assert "HTTP/1.1 400 Bad Request" in error.message
    tls = FrameReader(2**31 - 1)
    assert tls.feed(b"\x15\x03\x03\x00\x02") == []
    assert "speaks TLS" in str(tls.ended())


@pytest.mark.parametrize("sample", [b"", b"\0", b"\0\0\0\x10", b"\x15\x04", b"\x16", b"HTT"])
def test_what_may_be_kafka(sample: bytes) -> None:
    assert not_kafka(sample) is None


def test_memory_grows_with_the_bytes_received_not_with_the_size_announced() -> None:
    tracemalloc.start()
    reader = FrameReader()
    reader.feed(SIZE.pack(90_000_000) + b"a little")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000


def test_a_large_frame_in_small_pieces_is_not_copied_over_and_over() -> None:
    """With 20 MB in pieces of 1 kB, quadratic copying would move 200 GB."""
    reader = FrameReader()
    reader.feed(SIZE.pack(20_000_000))
    piece = bytes(1000)
    for _ in range(19_999):
        assert reader.feed(piece) == []
    assert reader.feed(piece) == [bytes(20_000_000)]


def test_the_examples() -> None:
    assert doctest.testmod(kwire.wire.frame).failed == 0


LARGE = random.Random(7).randbytes(1_000_000)


@pytest.mark.parametrize("first", [4, 1_000, 62_504, 300_000, 999_000])
@pytest.mark.parametrize("steps", [[1, 7, 1 << 20], [100_000] * 20, [1 << 20]])
@pytest.mark.parametrize("reuse_buffers", [False, True])
def test_a_large_frame_is_read_into_its_memory(first: int, steps: list[int], reuse_buffers: bool) -> None:
    """Feed a sixteenth, then read into `pending` while it exists."""
    stream = SIZE.pack(len(LARGE)) + LARGE + SIZE.pack(2) + b"ab"
    reader, kind = FrameReader(reuse_buffers=reuse_buffers), "bytes"
    frames, at = reader.feed(stream[:first]), first
    for step in steps:
        if at >= 4 + len(LARGE):
            break
        room = reader.pending
        if room is None:
            frames += reader.feed(stream[at : at + step])
            at = min(len(stream), at + step)
        else:
            assert reader.progress == (at - 4, len(LARGE))
            count = min(step, len(room))
            room[:count] = stream[at : at + count]
            del room
            kind = "memoryview" if reuse_buffers else "bytes"
            frames += reader.received(count)
            at += count
    frames += reader.feed(stream[at:])
    assert frames == [LARGE, b"ab"]
    assert (reader.pending, reader.progress, reader.frames_read) == (None, None, 2)
    assert [type(frame).__name__ for frame in frames] == [kind, "bytes"]
    assert memoryview(frames[0]).readonly


@needs_c
def test_large_frames_reuse_the_same_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where records are read in C; of fresh memory the system clears every page."""
    monkeypatch.setattr(kwire.wire.frame, "alloc_pooled", speedups().alloc_pooled)
    consumer, reader, stream = (
        speedups().RecordIterator(),
        FrameReader(reuse_buffers=True),
        SIZE.pack(len(LARGE)) + LARGE,
    )
    assert reader.feed(stream[:100_000]) + reader.feed(stream[100_000:]) == [LARGE]
    tracemalloc.start()
    for _ in range(3):
        assert reader.feed(stream[:1000]) + reader.feed(stream[1000:]) == [LARGE]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < len(LARGE) + 100_000  # `stream[1000:]` itself
    consumer._end()


def test_feed_fills_pending_memory_too() -> None:
    stream = SIZE.pack(len(LARGE)) + LARGE + SIZE.pack(2) + b"ab"
    reader = FrameReader()
    assert reader.feed(stream[:100_000]) == []
    assert reader.pending is not None
    assert [frame for at in range(100_000, len(stream), 9_999) for frame in reader.feed(stream[at : at + 9_999])] == [
        LARGE,
        b"ab",
    ]


def test_a_size_alone_allocates_no_memory() -> None:
    reader = FrameReader()
    reader.feed(SIZE.pack(64_000_000) + bytes(1_000_000))
    assert reader.pending is None
    reader.feed(bytes(3_000_000))
    assert reader.pending is not None


def test_a_large_frame_that_is_incomplete() -> None:
    reader = FrameReader()
    reader.feed(SIZE.pack(4_000_000) + bytes(2_000_000))
    assert reader.pending is not None
    assert (reader.progress, reader.ended()) == ((2_000_000, 4_000_000), None)


@pytest.mark.parametrize(("size", "gets_memory"), [(200_000, False), (16_000_000, True), (16_000_001, False)])
def test_after_a_large_frame_one_16_times_as_large_gets_memory_at_once(size: int, gets_memory: bool) -> None:
    reader = FrameReader()
    buffer = memoryview(bytearray(1_000))
    assert len(reader.recv_buffer(buffer)) == 1_000
    reader.feed(framed(LARGE))
    assert len(reader.recv_buffer(buffer)) == SIZE.size
    reader.feed(SIZE.pack(size)[:1])
    assert len(reader.recv_buffer(buffer)) == SIZE.size - 1
    reader.feed(SIZE.pack(size)[1:])
    assert reader.progress == (0, size)
    assert len(reader.recv_buffer(buffer)) == (size if gets_memory else 1_000)


def test_after_a_small_frame_a_large_size_allocates_no_memory() -> None:
    reader = FrameReader()
    reader.feed(framed(LARGE, b"small") + SIZE.pack(900_000))
    assert reader.pending is None
    assert reader.progress == (0, 900_000)
