"""Test frames on real loopback sockets: cut anywhere, many in flight, very large, as client and as server."""

from __future__ import annotations

import doctest
import socket
import struct
import threading
from collections.abc import Sequence

import pytest

import kwire.net.selector
from kwire.errors import DisconnectedError, EncodeError, NotKafkaError
from kwire.net import Receive
from kwire.net.channel import send_pieces
from kwire.wire.frame import BytesLike
from tests.net.harness import PATIENCE_SECONDS, Driver, Peer, drive, framed, joined, read_exactly, read_frame, running

FRAMES = [b"first", b"", bytes(range(256)) * 5, b"last"]


def test_the_example_in_the_docstring() -> None:
    result = doctest.testmod(kwire.net.selector)
    assert (result.failed, result.attempted > 5) == (0, True)


class TestReceiving:
    def test_whole(self) -> None:
        with joined() as (driver, peer):
            peer.sendall(framed(*FRAMES))
            drive(lambda: len(driver.received) == len(FRAMES), driver)
            assert driver.received == [Receive(1, frame) for frame in FRAMES]

    def test_byte_by_byte(self) -> None:
        with joined() as (driver, peer):
            for byte in framed(b"slow", b"", b"trickle"):
                peer.sendall(bytes([byte]))
                driver.poll()
            drive(lambda: len(driver.received) == 3, driver)
            assert driver.frames(1) == [b"slow", b"", b"trickle"]

    def test_a_poll_that_got_only_a_part_of_a_frame_waits_for_the_rest(self) -> None:
        with joined() as (driver, peer):
            peer.sendall(framed(b"half")[:6])
            assert driver.poll(timeout=0.01) == []
            peer.sendall(framed(b"half")[6:])
            assert driver.poll(timeout=5) == [Receive(1, b"half")]

    @pytest.mark.parametrize("until_sent", [True, False])
    def test_a_poll_need_not_end_for_what_it_sent(self, until_sent: bool) -> None:
        with joined() as (driver, peer):
            may_respond = threading.Event()

            def respond() -> None:
                assert read_frame(peer) == b"request"
                may_respond.wait(10)
                peer.sendall(framed(b"response"))

            responding = threading.Thread(target=respond)
            responding.start()
            if not until_sent:
                may_respond.set()
            received = driver.selector.poll([(1, b"request")], 10, until_sent=until_sent)
            may_respond.set()
            responding.join()
            assert received == ([] if until_sent else [Receive(1, b"response")])

    def test_a_small_frame_behind_a_large_one_does_not_wait_for_more(self) -> None:
        """The kernel reports only many bytes during a large frame, and every byte again after it."""
        large = bytes(900_000)
        with joined() as (driver, peer):
            for _ in range(3):
                stream = framed(large, b"small")
                for at in range(0, len(stream), 60_000):
                    peer.sendall(stream[at : at + 60_000])
                    driver.poll()
                drive(lambda: b"small" in driver.frames(1), driver)
                peer.sendall(framed(b"x"))
                assert driver.poll(timeout=PATIENCE_SECONDS) == [Receive(1, b"x")]
                assert driver.frames(1) == [large, b"small", b"x"]
                driver.received.clear()

    def test_the_end_in_the_middle_of_a_large_frame_is_returned_at_once(self) -> None:
        with joined() as (driver, peer):
            peer.sendall(framed(bytes(900_000))[:100_000])
            driver.poll()
            peer.sendall(bytes(1_000))
            peer.close()
            assert "100,996 of 900,000" in str(driver.cause(1))

    def test_fifty_megabytes(self) -> None:
        frame = bytes(1_000_000) + b"\x01" * 49_000_000
        with joined() as (driver, peer):
            writer = threading.Thread(target=peer.sendall, args=(framed(frame),))
            writer.start()
            drive(lambda: bool(driver.received), driver)
            writer.join()
            assert driver.received[0].frame == frame

    def test_one_poll_reads_no_more_than_its_share_of_a_node(self) -> None:
        """A busy node gets only its share of a poll, and the same poll returns the frame of a quiet node."""
        with running(read_bytes_per_poll=256 * 1024) as (driver, peer):
            driver.connect("loud", peer.address)
            loud = peer.accept()
            driver.connect("quiet", peer.address)
            quiet = peer.accept()
            loud.setblocking(False)
            flood = memoryview(framed(bytes(1000)) * 4000)
            written = loud.send(flood)
            assert written > 1_000_000  # the kernel buffers several shares
            quiet.sendall(framed(b"hello"))
            drive(lambda: bool(driver.received), driver)
            assert driver.frames("quiet") == [b"hello"]
            assert sum(map(len, driver.frames("loud"))) <= 512 * 1024

    def test_a_paused_node_is_not_read(self) -> None:
        with joined() as (driver, peer):
            for _ in range(2):  # pausing and resuming twice is allowed
                driver.selector.pause(1)
            peer.sendall(framed(b"waits"))
            assert driver.poll(timeout=0.01) == []
            for _ in range(2):
                driver.selector.resume(1)
            assert driver.poll(timeout=5) == [Receive(1, b"waits")]

    def test_the_end_of_a_paused_node_is_found_by_a_write(self) -> None:
        with joined() as (driver, peer):
            driver.selector.pause(1)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            peer.close()
            driver.poll()
            assert driver.disconnected == []
            driver.poll([(1, b"anybody there?")])
            assert "reset" in driver.cause(1).message


class TestSending:
    def test_a_hundred_in_flight(self) -> None:
        with joined() as (driver, peer):
            frames = [b"%d" % n for n in range(100)]
            driver.poll([(1, frame) for frame in frames])
            assert [read_frame(peer) for _ in frames] == frames
            assert [sent.frame for sent in driver.sent] == frames
            peer.sendall(framed(*frames))
            drive(lambda: len(driver.received) == 100, driver)
            assert driver.frames(1) == frames

    def test_many_small_frames_share_a_write(self, monkeypatch: pytest.MonkeyPatch) -> None:
        writes: list[int] = []

        def counted(sock: socket.socket, pieces: Sequence[memoryview]) -> int:
            writes.append(len(pieces))
            return send_pieces(sock, pieces)

        with joined() as (driver, peer):
            monkeypatch.setattr("kwire.net.channel.send_pieces", counted)
            driver.poll([(1, b"a few bytes")] * 500)
            assert writes == [500]
            assert len(driver.sent) == 500
            driver.poll([(1, b"a few bytes")] * 1025)
            assert writes == [500, 1025, 1], "the system takes 1024 at once"
            assert read_exactly(peer, 15 * 1525) == framed(*[b"a few bytes"] * 1525)

    def test_pieces_of_all_sizes_arrive_as_one_frame(self) -> None:
        pieces: list[BytesLike] = [b"", b"head", bytearray(100_000), memoryview(b"x" * 2000), b"tail"]
        with joined() as (driver, peer):
            driver.poll([(1, pieces)])
            assert read_frame(peer) == b"".join(pieces)
            assert driver.sent[0].frame is pieces

    def test_a_peer_that_does_not_read_blocks_only_the_writes(self) -> None:
        frames = [bytes([n]) * 1_000_000 for n in range(20)]
        with joined() as (driver, peer):
            driver.poll([(1, frame) for frame in frames])
            done_before = len(driver.sent)
            assert done_before < len(frames)
            assert driver.selector.bytes_queued(1) > 0
            peer.sendall(framed(b"still heard"))
            drive(lambda: bool(driver.received), driver)
            got: list[bytes] = []
            reader = threading.Thread(target=lambda: got.extend(read_frame(peer) for _ in frames))
            reader.start()
            drive(lambda: len(driver.sent) == len(frames), driver)
            reader.join()
            assert got == frames
            assert driver.selector.bytes_queued(1) == 0

    def test_raw_bytes_break_the_framing_on_purpose(self) -> None:
        with joined() as (driver, peer):
            driver.poll([(1, b"whole")])
            driver.selector.send_raw(1, b"\0\0\0\5ha")
            assert read_exactly(peer, 15) == framed(b"whole") + b"\0\0\0\5ha"
            driver.poll()
            assert [sent.frame for sent in driver.sent] == [b"whole"]

    def test_before_the_connection_is_there(self) -> None:
        with running() as (driver, peer):
            driver.selector.connect(1, *peer.address)
            driver.poll([(1, b"early"), (1, [b"and ", b"earlier"])])
            sock = peer.accept()
            drive(lambda: len(driver.sent) == 2, driver)
            assert [read_frame(sock), read_frame(sock)] == [b"early", b"and earlier"]

    def test_too_large_before_the_connection_is_there(self) -> None:
        half = memoryview(bytes(2**20))
        with running() as (driver, peer):
            driver.selector.connect(1, *peer.address)
            with pytest.raises(EncodeError, match="does not fit four bytes"):
                driver.poll([(1, b"fine"), (1, [half] * 2048)])
            assert read_frame(_accepted(driver, peer)) == b"fine"

    def test_to_a_node_that_has_no_connection(self) -> None:
        with joined() as (driver, _):
            driver.poll([("nobody", b"1"), (1, b"arrives"), ("nobody", b"2")])
            (lost,) = driver.disconnected
            assert (lost.node, lost.unsent) == ("nobody", 2)
            assert "connect to the node first" in str(lost.cause)
            assert [sent.node for sent in driver.sent] == [1]


def _accepted(driver: Driver, peer: Peer) -> socket.socket:
    drive(lambda: bool(driver.connected), driver)
    return peer.accept()


LIARS = [
    (b"\xff\xff\xff\xff", "announced a frame of -1 bytes"),
    (b"\x7f\xff\xff\xff", "announced a frame of 2,147,483,647 bytes, above the limit of 104,857,600"),
    (b"HTTP/1.1 400 Bad Request\r\n\r\n", "speaks HTTP: 'HTTP/1.1 400 Bad Request'"),
    (b"\x15\x03\x03\x00\x02\x02\x46", "speaks TLS"),
    (b"+OK POP3 ready\r\n", "sent text: '+OK POP3 ready'"),
    (framed(b"good") + b"\x80\0\0\0", "announced a frame of -2147483648 bytes"),
]


class TestEnds:
    STREAM = framed(b"abc", b"defgh")

    @pytest.mark.parametrize("cut", range(len(STREAM) + 1))
    def test_the_peer_closes_at_each_byte(self, cut: int) -> None:
        """Complete frames are returned; the error has the received and the expected size of the partial frame."""
        with joined() as (driver, peer):
            peer.sendall(self.STREAM[:cut])
            peer.close()
            cause = driver.cause(1)
            assert type(cause) is DisconnectedError
            assert driver.frames(1) == [b"abc", b"defgh"][: (cut >= 7) + (cut >= 16)]
            inside = cut if cut < 7 else cut - 7
            if cut in (0, 7, 16):
                assert "in the middle" not in cause.message
            elif inside < 4:
                assert f"in the middle of a frame, {inside} of 4 bytes" in cause.message
            else:
                assert f"in the middle of a frame, {inside - 4} of {3 if cut < 7 else 5} bytes" in cause.message
            assert str(cause.where["broker"]).startswith("1 at 127.0.0.1:")
            assert (cause.remedy is None) == (cut >= 7)

    def test_a_frame_and_the_end_in_one_poll_come_as_both(self) -> None:
        with joined() as (driver, peer):
            peer.sendall(framed(b"goodbye"))
            peer.close()
            assert driver.poll(timeout=5) == [Receive(1, b"goodbye")]
            drive(lambda: bool(driver.disconnected), driver)

    def test_frames_that_were_not_written_are_counted(self) -> None:
        with joined() as (driver, peer):
            driver.poll([(1, bytes(3_000_000))] * 5)
            peer.close()
            cause = driver.cause(1)
            assert isinstance(cause, DisconnectedError)
            assert len(driver.sent) + driver.disconnected[0].unsent == 5
            assert driver.disconnected[0].unsent >= 1

    @pytest.mark.parametrize(("stream", "message"), LIARS)
    def test_invalid_sizes_disconnect_with_the_cause(self, stream: bytes, message: str) -> None:
        with joined() as (driver, peer):
            peer.sendall(stream)
            cause = driver.cause(1)
            assert type(cause) is NotKafkaError
            assert message in cause.message
            assert str(cause.where["broker"]).startswith("1 at 127.0.0.1:")
            assert cause.remedy
            assert peer.recv(1) == b""

    def test_bytes_of_the_peer_before_its_close_explain_the_failed_write(self) -> None:
        """A web server responds 400 and closes during our write: the response explains more than the reset."""
        with joined() as (driver, peer):
            peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            peer.close()
            driver.poll([(1, bytes(100_000))] * 50)
            assert isinstance(driver.cause(1), NotKafkaError)

    def test_a_reset_that_no_poll_has_seen(self) -> None:
        with joined() as (driver, peer):
            assert driver.selector.peername(1) == peer.getsockname()
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.close()
            with pytest.raises(ValueError, match="node 1 is not connected any more"):
                driver.selector.peername(1)
            assert "reset" in str(driver.cause(1))

    def test_a_reset(self) -> None:
        with joined() as (driver, peer):
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            peer.close()
            assert "the peer reset the connection" in driver.cause(1).message


def test_two_selectors_as_client_and_broker() -> None:
    broker, client = Driver(), Driver()
    try:
        addresses = [broker.selector.listen("127.0.0.1", 0), broker.selector.listen("127.0.0.1", 0)]
        for node, address in enumerate(addresses):
            client.selector.connect(node, *address)
        drive(lambda: len(client.connected) == len(broker.accepted) == 2, client, broker)
        client.poll([(0, b"to zero"), (1, b"to one")])
        drive(lambda: len(broker.received) == 2, client, broker)
        by_listener = {broker.selector.sockname(node): frame for node, frame in broker.received}
        assert by_listener == {addresses[0]: b"to zero", addresses[1]: b"to one"}
        broker.poll([(node, bytes(frame).upper()) for node, frame in broker.received])
        drive(lambda: len(client.received) == 2, client, broker)
        assert sorted(client.received) == [Receive(0, b"TO ZERO"), Receive(1, b"TO ONE")]
        assert broker.selector.peername(broker.accepted[0]) == client.selector.sockname(0)
    finally:
        client.close()
        broker.close()


def test_a_stopped_listener_accepts_no_peer_and_keeps_its_connections() -> None:
    broker, client = Driver(), Driver()
    try:
        address = broker.selector.listen("127.0.0.1", 0)
        client.selector.connect(1, *address)
        drive(lambda: bool(client.connected and broker.accepted), client, broker)
        broker.selector.stop_listening(address)
        client.selector.connect(2, *address)
        assert "Connection refused" in client.cause(2).message
        client.poll([(1, b"still here")])
        drive(lambda: bool(broker.received), client, broker)
        assert broker.selector.listen(*address) == address  # the port is free again at once
    finally:
        client.close()
        broker.close()


def test_peers_of_both_families() -> None:
    with running() as (driver, _):
        six = Peer("::1")
        try:
            driver.connect(6, six.address)
            assert driver.selector.peername(6) == six.address
            six.accept().close()
            assert driver.cause(6).where["broker"] == f"6 at [::1]:{six.address[1]}"
        finally:
            six.close()


def test_a_frame_that_cannot_be_sent_raises_and_the_frames_before_it_are_sent() -> None:
    half = memoryview(bytes(2**20))
    with joined() as (driver, peer):
        with pytest.raises(EncodeError, match="does not fit four bytes"):
            driver.poll([(1, b"fine"), (1, [half] * 2048)])
        assert read_frame(peer) == b"fine"
        driver.poll([(1, b"and on")])
        assert read_frame(peer) == b"and on"
