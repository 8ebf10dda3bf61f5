"""Test the parts that need no socket: back-off, timers, clocks, the queue of outgoing buffers."""

from __future__ import annotations

import doctest
import pickle
from pathlib import Path
from random import Random
from typing import Any

import pytest

import kwire.net.clock
from kwire.errors import ConfigurationError, EncodeError
from kwire.net import SystemClock, Tls, VirtualClock
from kwire.net.backoff import JITTER, Backoff, ReconnectBackoff
from kwire.net.channel import SMALL_BYTES, SendQueue
from kwire.wire.frame import SIZE, BytesLike, Frame, FrameReader


class TestBackoff:
    def test_doubles_up_to_the_maximum_with_jitter_included(self) -> None:
        """KIP-580: `retry.backoff.max.ms` bounds the wait itself, its jitter included."""
        backoff = Backoff(100, 1_000)
        for failures, expected in enumerate([0.1, 0.2, 0.4, 0.8, 1.0, 1.0], start=1):
            waits = [backoff.seconds(failures, Random(seed)) for seed in range(200)]
            assert min(waits) >= expected * (1 - JITTER)
            assert max(waits) <= min(expected * (1 + JITTER), 1.0)
            assert max(waits) - min(waits) > expected * JITTER / 2

    def test_many_failures_cause_no_overflow(self) -> None:
        assert 0.8 <= Backoff(100, 1_000).seconds(100_000, Random(1)) <= 1.0


def reconnect_backoff(seed: int = 1) -> ReconnectBackoff:
    return ReconnectBackoff(Backoff(50, 1_000), Random(seed))


class TestReconnectBackoff:
    def test_doubles_up_to_the_ceiling_within_the_jitter(self) -> None:
        backoff = reconnect_backoff()
        for expected in [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]:
            delay = backoff.failed(100.0) - 100.0
            assert expected * (1 - JITTER) - 1e-9 <= delay <= min(expected * (1 + JITTER), 1.0) + 1e-9

    def test_is_the_same_for_the_same_seed_and_another_for_another(self) -> None:
        def schedule(seed: int) -> list[float]:
            backoff = reconnect_backoff(seed)
            return [backoff.failed(0.0) for _ in range(6)]

        assert schedule(7) == schedule(7)
        assert schedule(7) != schedule(8)

    def test_many_failures_do_not_overflow(self) -> None:
        backoff = reconnect_backoff()
        for _ in range(5000):
            assert backoff.failed(0.0) <= 1.0
        assert backoff.failures == 5000

    def test_a_frame_ends_it(self) -> None:
        backoff = reconnect_backoff()
        for _ in range(5):
            backoff.failed(0.0)
        backoff.recovered(10.0)
        assert backoff.ready_at == 0.0
        assert backoff.failed(60.0) - 60.0 <= 0.05 * (1 + JITTER)

    def test_but_not_for_a_node_that_fails_again_at_once(self) -> None:
        """With a rejected password every attempt receives a frame, but the waits must still grow."""
        backoff = reconnect_backoff()
        now, waits = 0.0, []
        for _ in range(6):
            backoff.recovered(now)
            waits.append(backoff.failed(now + 0.01) - now)
            now += 2.0
        assert waits == sorted(waits)
        assert waits[-1] > 0.8


class TestClocks:
    def test_the_system_clock_reads_and_waits(self) -> None:
        clock, timeouts = SystemClock(), list[float | None]()

        def select(timeout: float | None) -> list[str]:
            timeouts.append(timeout)
            return ["ready"]

        assert clock.now() <= clock.now()
        assert clock.time_ms() > 1_600_000_000_000
        assert clock.wait(select, 3.0) == ["ready"]
        assert timeouts == [3.0]

    def test_a_virtual_clock_stands_still(self) -> None:
        clock = VirtualClock(5.0, time_ms=1000)
        assert clock.wait(lambda timeout: list[int](), 60.0) == []
        assert clock.now() == 5.0
        clock.advance(1.5)
        assert (clock.now(), clock.time_ms()) == (6.5, 2500)
        with pytest.raises(ValueError, match="backwards"):
            clock.advance(-1)

    def test_one_that_jumps_does_so_only_if_nothing_was_ready(self) -> None:
        clock = VirtualClock(autojump=True)
        assert clock.wait(lambda timeout: [1], 60.0) == [1]
        assert clock.now() == 0.0
        assert clock.wait(lambda timeout: list[int](), 60.0) == []
        assert clock.now() == 60.0

    def test_the_examples(self) -> None:
        assert doctest.testmod(kwire.net.clock).failed == 0


FRAMES: list[tuple[Frame, bytes]] = [
    (b"", b""),
    (b"small", b"small"),
    (bytearray(b"changeable"), b"changeable"),
    (memoryview(b"a view"), b"a view"),
    ([], b""),
    ([b"", b"two ", b"", bytearray(b"parts")], b"two parts"),
    ([b"head", b"L" * 5000, b"tail"], b"head" + b"L" * 5000 + b"tail"),
    ([b"L" * SMALL_BYTES, b"M" * SMALL_BYTES], b"L" * SMALL_BYTES + b"M" * SMALL_BYTES),
    (memoryview(bytes(8)).cast("q"), bytes(8)),  # counted in bytes, not in items
]


class TestOutgoing:
    @pytest.mark.parametrize("step", [1, 3, 7, 1000, 10**6])
    def test_frames_come_out_whole_however_little_is_written_at_a_time(self, step: int) -> None:
        queue, reader = SendQueue(), FrameReader()
        for frame, _ in FRAMES:
            queue.push(frame)
        out: list[BytesLike] = []
        done: list[Frame] = []
        while queue.pieces:
            written = b"".join(queue.pieces)[:step]
            out += reader.feed(written)
            done += queue.advance(len(written))
            assert len(done) == len(out)
            assert queue.frames_queued == len(FRAMES) - len(done)
        assert out == [expected for _, expected in FRAMES]
        assert all(given is sent for (given, _), sent in zip(FRAMES, done, strict=True))
        assert queue.bytes_queued == 0

    def test_large_pieces_are_not_copied(self) -> None:
        large = bytes(100_000)
        queue = SendQueue()
        queue.push([b"head", large, b"tail"])
        assert [piece.obj is large for piece in queue.pieces] == [False, True, False]

    def test_small_ones_share_a_piece_with_the_size(self) -> None:
        queue = SendQueue()
        queue.push([b"a", b"b", b"c"])
        assert [bytes(piece) for piece in queue.pieces] == [SIZE.pack(3) + b"abc"]

    @pytest.mark.parametrize("max_bytes", [1, 5, 64, 16384])
    def test_chunks_are_the_same_bytes(self, max_bytes: int) -> None:
        queue, reader, out = SendQueue(), FrameReader(), list[BytesLike]()
        for frame, _ in FRAMES:
            queue.push(frame)
        while queue.pieces:
            chunk = queue.chunk(max_bytes)
            assert 0 < len(chunk) <= max_bytes
            out += reader.feed(chunk)
            queue.advance(len(chunk))
        assert out == [expected for _, expected in FRAMES]

    def test_a_frame_too_large_for_its_size_field_is_rejected_before_queueing(self) -> None:
        queue = SendQueue()
        half = memoryview(bytes(2**20)).cast("B")
        with pytest.raises(EncodeError, match="2,147,483,648 bytes"):
            queue.push([half] * 2048)
        assert not queue.pieces


class TestTlsOptions:
    def test_pickle_and_hash_and_hide_the_password(self) -> None:
        tls = Tls(ca_file="ca.pem", key_password="hunter2")
        assert pickle.loads(pickle.dumps(tls)) == tls
        assert {tls: 1}[Tls(ca_file="ca.pem", key_password="hunter2")] == 1
        assert "hunter2" not in repr(tls)

    @pytest.mark.parametrize(
        ("tls", "message"),
        [
            (Tls(ca_file="/nowhere/ca.pem"), "cannot read ca_file '/nowhere/ca.pem': No such file or directory"),
            (Tls(cert_file="/nowhere/cert.pem"), "cannot read cert_file '/nowhere/cert.pem': No such file"),
            (Tls(cert_file=__file__, key_file="/"), "cannot read key_file '/': Is a directory"),
            (Tls(ca_file="a\0b"), "cannot read ca_file .*null byte"),
            (Tls(ca_file=__file__), f"ca_file '{__file__}' holds no certificate in PEM form"),
            (Tls(cert_file=__file__), f"cert_file '{__file__}' holds no certificate in PEM form"),
        ],
    )
    def test_wrong_files_raise_when_the_context_is_made(self, tls: Tls, message: str) -> None:
        with pytest.raises(ConfigurationError, match=message):
            tls.client_context()

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"ca_file": 5}, "ca_file is int"),
            ({"cert_file": b"cert.pem"}, "cert_file is bytes"),
            ({"cert_file": "c", "key_password": b"secret"}, "key_password is bytes"),
            ({"server_name": 1}, "server_name is int"),
            ({"key_file": "/nowhere/key.pem"}, "key_file without cert_file"),
        ],
    )
    def test_wrong_types_are_rejected(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(ConfigurationError, match=message):
            Tls(**options)

    @pytest.mark.parametrize("option", ["ca_file", "cert_file", "key_file", "crl_file"])
    def test_the_text_of_a_pem_file_is_refused_and_not_shown(self, option: str) -> None:
        text = "-----BEGIN PRIVATE KEY-----\ns3cret\n-----END PRIVATE KEY-----\n"
        options: dict[str, Any] = {"cert_file": "c", option: text}
        with pytest.raises(ConfigurationError, match=f"{option} is the text of a PEM file") as caught:
            Tls(**options)
        assert "s3cret" not in str(caught.value)

    def test_paths_may_be_path_objects(self) -> None:
        assert Tls(ca_file=Path("a") / "b") == Tls(ca_file="a/b")  # type: ignore[arg-type]

    def test_a_listener_needs_a_certificate(self) -> None:
        with pytest.raises(ConfigurationError, match="needs a certificate"):
            Tls().server_context()
