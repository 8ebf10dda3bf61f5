"""Test connecting and failures: addresses, names, time limits, back-off, idle connections, the wake-up, closing."""

from __future__ import annotations

import contextlib
import errno
import os
import queue
import socket
import threading
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

import kwire.net.selector
from kwire.errors import ClosedError, ConfigurationError, ConnectError, DisconnectedError, ResolveError
from kwire.net import KafkaSelector, ThreadResolver, VirtualClock
from kwire.net.dial import Address, Outcome, literal_address, show_address, system_lookup
from kwire.net.listener import Listener
from kwire.net.threads import MAX_THREADS
from tests.net.harness import (
    PATIENCE_SECONDS,
    Driver,
    FakeResolver,
    Peer,
    address_of,
    closed_port,
    drive,
    framed,
    joined,
    read_frame,
    running,
)


def jumping(**options: object) -> Driver:
    """Return a driver on virtual time that skips every wait, for tests without an active peer."""
    return Driver(clock=VirtualClock(1000.0, autojump=True), random=Random(1), **options)


class HeldResolver(FakeResolver):
    """Leave each name to the test, which calls `done`."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[Callable[[Outcome], None]] = []

    def resolve(self, host: str, port: int, done: Callable[[Outcome], None]) -> None:
        self.done.append(done)


class TestAddresses:
    def test_a_closed_port(self) -> None:
        with running() as (driver, _):
            host, port = closed_port()
            driver.selector.connect(1, host, port)
            cause = driver.cause(1)
            assert type(cause) is ConnectError
            assert str(cause) == (
                f"cannot connect (Connection refused) [broker 1 at {host}:{port}]: "
                "nothing listens there: check the port and that the broker runs"
            )

    def test_all_addresses_of_a_name_are_tried_in_turn(self) -> None:
        six = Address(socket.AF_INET6, ("::1", closed_port()[1]))
        with Peer() as peer:
            driver = Driver(resolver=FakeResolver(three=[six, address_of(closed_port()), address_of(peer)]))
            try:
                driver.connect(1, ("three", 9092))
                assert driver.selector.peername(1) == peer.address
            finally:
                driver.close()

    @pytest.mark.parametrize(("host", "port"), [("", 9092), ("127.0.0.1", 0), ("127.0.0.1", -1), ("127.0.0.1", 65536)])
    def test_an_invalid_address_fails(self, host: str, port: int) -> None:
        """A broker's metadata may have such an address; the system takes an empty host for localhost."""
        driver = Driver()
        try:
            driver.selector.connect(1, host, port)
            cause = driver.cause(1)
            assert type(cause) is ConnectError
            assert f"{host!r}, port {port}, is no address" in cause.message
        finally:
            driver.close()

    @pytest.mark.parametrize("host", ["a\0b", "x" * 64 + ".example", "256.1.1.1"])
    def test_an_invalid_host_name_fails(self, host: str) -> None:
        driver = Driver(resolver=ThreadResolver())
        try:
            driver.selector.connect(1, host, 9092)
            assert type(driver.cause(1)) is ResolveError
        finally:
            driver.close()

    def test_a_socket_that_cannot_be_created_fails_its_address_only(self, monkeypatch: pytest.MonkeyPatch) -> None:
        driver = Driver()
        try:
            with monkeypatch.context() as patched:
                patched.setattr(socket, "socket", _no_socket)
                driver.selector.connect(1, "127.0.0.1", 9092)
                cause = driver.cause(1)
            assert "Too many open files" in cause.message
            assert "raise its limit" in str(cause.remedy)
        finally:
            driver.close()

    def test_the_error_names_every_address_that_failed(self) -> None:
        first, second = closed_port(), closed_port()
        resolver = FakeResolver(name=[address_of(first), address_of(second)])
        driver = Driver(resolver=resolver)
        try:
            driver.selector.connect(1, "name", 9092)
            message = driver.cause(1).message
            assert f"{first[0]}:{first[1]}: Connection refused; {second[0]}:{second[1]}: Connection refused" in message
        finally:
            driver.close()

    def test_an_address_that_drops_packets_gets_only_its_share_of_the_time(self) -> None:
        """With two addresses and ten seconds, the second address is tried after five."""
        blackhole = Blackhole()
        clock = VirtualClock(1000.0)
        with Peer() as peer:
            driver = Driver(clock=clock, resolver=FakeResolver(name=[blackhole.address, address_of(peer)]))
            try:
                driver.selector.connect(1, "name", 9092)
                driver.poll()
                clock.advance(4.9)
                driver.poll()
                assert driver.connected == []
                clock.advance(0.2)
                drive(lambda: 1 in driver.connected, driver)
                assert clock.now() == pytest.approx(1005.1)
            finally:
                driver.close()
                blackhole.close()

    def test_an_attempt_that_succeeded_before_a_late_poll(self) -> None:
        clock, held = VirtualClock(1000.0), HeldResolver()
        with running(clock=clock, resolver=held, connect_timeout_ms=5000) as (driver, peer):
            driver.selector.connect(1, "broker", peer.address[1])
            driver.poll()
            held.done[0]([Address(socket.AF_INET, peer.address)])
            clock.advance(6.0)
            driver.poll()  # the name has its address
            clock.advance(6.0)
            driver.poll()  # the address has its connection
            assert (driver.connected, driver.disconnected) == ([1], [])

    def test_an_attempt_that_was_refused_before_a_late_poll(self) -> None:
        clock, held = VirtualClock(1000.0), HeldResolver()
        with running(clock=clock, resolver=held, connect_timeout_ms=5000) as (driver, _):
            driver.selector.connect(1, "broker", 9092)
            driver.poll()
            held.done[0]([Address(socket.AF_INET, closed_port())])
            driver.poll()
            clock.advance(6.0)
            assert "Connection refused" in str(driver.cause(1))

    def test_connecting_times_out(self) -> None:
        blackhole = Blackhole()
        driver = jumping(resolver=FakeResolver(name=[blackhole.address]), connect_timeout_ms=3000)
        try:
            driver.selector.connect(1, "name", 9092)
            driver.poll(timeout=60)
            (lost,) = driver.disconnected
            assert isinstance(lost.cause, ConnectError)
            assert "timed out" in lost.cause.message
            assert "firewall" in str(lost.cause.remedy)
            assert driver.selector._clock.now() == pytest.approx(1003.0)
        finally:
            driver.close()
            blackhole.close()


class TestNames:
    def test_a_name_without_address(self) -> None:
        driver = jumping(resolver=FakeResolver(nowhere=OSError(-2, "Name or service not known"), empty=[]))
        try:
            for node, host in enumerate(["nowhere", "empty"]):
                driver.selector.connect(node, host, 9092)
                cause = driver.cause(node)
                assert type(cause) is ResolveError
                assert f"the host name {host} has no address" in cause.message
                assert cause.where["broker"] == f"{node} at {host}:9092"
                assert "check the name" in str(cause.remedy)
        finally:
            driver.close()

    def test_a_slow_name_server_delays_only_its_own_lookups(self) -> None:
        with Peer() as peer:
            clock = VirtualClock(1000.0)
            driver = Driver(clock=clock, resolver=FakeResolver(known=[address_of(peer)]), connect_timeout_ms=10_000)
            try:
                driver.selector.connect("hanging", "unknown", 9092)
                driver.connect("fine", ("known", peer.address[1]))
                driver.poll([("fine", b"works")])
                assert read_frame(peer.accept()) == b"works"
                clock.advance(10.0)
                cause = driver.cause("hanging")
                assert isinstance(cause, ResolveError)
                assert "no response from the name server in 10 s" in cause.message
            finally:
                driver.close()

    def test_a_lookup_that_ends_after_the_disconnect_is_ignored(self) -> None:
        late: list[object] = []

        class Late(FakeResolver):
            def resolve(self, host: str, port: int, done: object) -> None:
                late.append(done)

        driver = jumping(resolver=Late())
        try:
            driver.selector.connect(1, "slow", 9092)
            driver.poll(timeout=60)
            assert len(driver.disconnected) == 1
            late[0]([Address(socket.AF_INET, closed_port())])  # type: ignore[operator]
            driver.poll(timeout=1)
            assert len(driver.disconnected) == 1
        finally:
            driver.close()

    def test_a_real_name_through_a_real_thread(self) -> None:
        with running() as (driver, peer):
            driver.connect(1, ("localhost", peer.address[1]))
            assert driver.selector.peername(1) == peer.address


class TestThreadResolver:
    def test_an_ip_address_needs_no_thread(self) -> None:
        responses: list[Outcome] = []
        resolver = ThreadResolver(lookup=lambda host, port: pytest.fail("digits need no lookup"))
        resolver.resolve("127.0.0.1", 80, responses.append)
        resolver.resolve("::1", 80, responses.append)
        assert [str(outcome[0]) for outcome in responses] == ["127.0.0.1:80", "[::1]:80"]  # type: ignore[index]

    def test_lookups_run_in_parallel_up_to_a_limit(self) -> None:
        started, release, resolved = threading.Semaphore(0), threading.Event(), threading.Semaphore(0)
        running_now: list[str] = []

        def lookup(host: str, port: int) -> list[Address]:
            running_now.append(host)
            started.release()
            assert release.wait(20)
            return []

        resolver = ThreadResolver(lookup)
        for n in range(MAX_THREADS + 5):
            resolver.resolve(f"host{n}", 1, lambda outcome: resolved.release())
        for _ in range(MAX_THREADS):
            assert started.acquire(timeout=20)
        assert len(running_now) == MAX_THREADS
        release.set()
        for _ in range(MAX_THREADS + 5):
            assert resolved.acquire(timeout=20)
        resolver.close()

    def test_a_system_without_a_thread_left_fails_the_lookup(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found, release, outcomes = literal_address("127.0.0.1", 80), threading.Event(), queue.Queue[Outcome]()
        assert found is not None

        def lookup(host: str, port: int) -> list[Address]:
            release.wait(PATIENCE_SECONDS)
            return [found]

        def refuse(thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        resolver = ThreadResolver(lookup=lookup)
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            for _ in range(MAX_THREADS + 1):
                resolver.resolve("broker", 80, outcomes.put)
                assert str(outcomes.get(timeout=PATIENCE_SECONDS)) == "can't start new thread"
        resolver.resolve("broker", 80, outcomes.put)
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            resolver.resolve("broker", 80, outcomes.put)  # waits for the thread that runs
        release.set()
        assert [outcomes.get(timeout=PATIENCE_SECONDS) for _ in range(2)] == [[found], [found]]

    @pytest.mark.parametrize("error", [OSError("no such name"), UnicodeError("label too long")])
    def test_a_lookup_may_result_in_an_error(self, error: Exception) -> None:
        responses: list[Outcome] = []
        is_there = threading.Event()

        def lookup(host: str, port: int) -> list[Address]:
            raise error

        def done(outcome: Outcome) -> None:
            responses.append(outcome)
            is_there.set()

        ThreadResolver(lookup).resolve("name", 1, done)
        assert is_there.wait(20)
        assert isinstance(responses[0], OSError)

    def test_each_address_is_returned_once(self) -> None:
        found = system_lookup("localhost", 9092)
        assert len(found) == len(set(found)) > 0
        assert literal_address("localhost", 9092) is None
        assert show_address("::1", 1) == "[::1]:1"


class TestBackoff:
    def test_the_waits_of_a_node_that_is_down_grow_and_others_do_not_wait(self) -> None:
        driver = jumping()
        clock = driver.selector._clock
        host, port = closed_port()
        waits: list[float] = []
        try:
            for attempt in range(8):
                began = clock.now()
                driver.selector.connect(1, host, port)
                driver.poll(timeout=60)
                assert len(driver.disconnected) == attempt + 1
                waits.append(clock.now() - began)
                assert driver.selector.next_attempt_at(1) > clock.now()
            assert waits[0] == 0
            for wait, expected in zip(waits[1:], [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0], strict=True):
                assert expected * 0.8 <= wait <= min(expected * 1.2, 1.0) + 0.001
            assert driver.selector.next_attempt_at("another") == 0.0
        finally:
            driver.close()

    def test_nodes_that_nobody_tries_again_are_forgotten(self) -> None:
        driver = jumping()
        try:
            for number in range(2000):
                driver.selector.connect(number, "", 9092)  # which fails at once
                if number % 20 == 0:
                    driver.selector.connect("again", "", 9092)
                driver.poll(timeout=0)
                while "again" in driver.selector.nodes:
                    driver.poll(timeout=60)
            assert len(driver.disconnected) == 2100
            assert len(driver.selector._backoffs) <= 1024
            assert driver.selector._backoffs["again"].failures == 100
        finally:
            driver.close()

    def test_is_over_with_the_first_frame(self) -> None:
        clock = VirtualClock(1000.0)
        with running(clock=clock) as (driver, peer):
            host, port = closed_port()
            driver.selector.connect(1, host, port)
            driver.cause(1)
            assert driver.selector.next_attempt_at(1) > 1000.0
            clock.advance(1.0)
            driver.connect(1, peer.address)
            assert driver.selector.next_attempt_at(1) > 1000.0  # a connection alone does not end the back-off
            peer.accept().sendall(framed(b"alive"))
            drive(lambda: bool(driver.received), driver)
            assert driver.selector.next_attempt_at(1) == 0.0

    def test_the_selector_itself_waits(self) -> None:
        clock = VirtualClock(1000.0)
        with running(clock=clock, reconnect_backoff_ms=500, random=Random(1)) as (driver, peer):
            driver.connect(1, peer.address)
            peer.accept().close()
            driver.cause(1)
            driver.connected.clear()
            driver.selector.connect(1, *peer.address)
            clock.advance(0.39)
            driver.poll()
            assert driver.connected == []
            clock.advance(0.22)
            drive(lambda: 1 in driver.connected, driver)

    def test_disconnecting_starts_no_back_off_unless_the_node_failed(self) -> None:
        with joined() as (driver, _):
            driver.selector.disconnect(1)
            assert driver.selector.next_attempt_at(1) == 0.0
        with joined() as (driver, _):
            driver.selector.disconnect(1, failed=True)
            assert driver.selector.next_attempt_at(1) > 0.0


class TestDisconnect:
    def test_the_peer_sees_the_end_and_no_list_has_it(self) -> None:
        with joined() as (driver, peer):
            driver.selector.disconnect(1)
            assert peer.recv(1) == b""
            driver.poll()
            assert driver.disconnected == []
            assert driver.selector.nodes == []
            driver.selector.disconnect(1)  # a second call does nothing

    @pytest.mark.parametrize("polls", [0, 1])
    def test_of_an_attempt(self, polls: int) -> None:
        driver = Driver(resolver=FakeResolver())
        try:
            driver.selector.connect(1, "unknown", 9092)
            for _ in range(polls):
                driver.poll()
            driver.selector.disconnect(1)
            driver.poll()
            assert (driver.connected, driver.disconnected) == ([], [])
        finally:
            driver.close()

    def test_of_an_attempt_that_is_connecting(self) -> None:
        blackhole = Blackhole()
        driver = Driver(resolver=FakeResolver(name=[blackhole.address]))
        try:
            driver.selector.connect(1, "name", 9092)
            driver.poll()
            driver.selector.disconnect(1)
            driver.selector.connect(1, "name", 9092)
            driver.poll()
        finally:
            driver.close()
            blackhole.close()

    def test_a_node_cannot_be_connected_twice(self) -> None:
        with joined() as (driver, peer), pytest.raises(ValueError, match="already"):
            driver.selector.connect(1, *peer.getsockname())


class TestIdleness:
    def test_an_unused_connection_is_closed_in_time(self) -> None:
        clock = VirtualClock(1000.0)
        with joined(clock=clock, idle_timeout_ms=60_000) as (driver, peer):
            clock.advance(59.0)
            peer.sendall(framed(b"used"))
            drive(lambda: bool(driver.received), driver)
            clock.advance(59.0)
            driver.poll()
            assert driver.disconnected == []
            clock.advance(1.0)
            driver.poll()
            (lost,) = driver.disconnected
            assert isinstance(lost.cause, DisconnectedError)
            assert lost.is_idle
            assert "unused for 60 s" in lost.cause.message
            assert driver.selector.next_attempt_at(1) == 0.0
            assert peer.recv(1) == b""

    def test_bytes_that_wait_in_the_socket_count_although_the_poll_is_late(self) -> None:
        clock = VirtualClock(1000.0)
        with joined(clock=clock, idle_timeout_ms=60_000) as (driver, peer):
            peer.sendall(framed(b"waits"))
            clock.advance(61.0)
            driver.poll()
            assert (driver.frames(1), driver.disconnected) == ([b"waits"], [])
            clock.advance(59.0)
            driver.poll()
            assert driver.disconnected == []

    def test_the_end_of_the_stream_is_the_cause_although_the_poll_is_late(self) -> None:
        clock = VirtualClock(1000.0)
        with joined(clock=clock, idle_timeout_ms=60_000) as (driver, peer):
            peer.sendall(framed(b"last"))
            peer.shutdown(socket.SHUT_WR)
            clock.advance(61.0)
            drive(lambda: bool(driver.disconnected), driver)
            assert driver.frames(1) == [b"last"]
            assert "the peer closed the connection" in driver.disconnected[0].cause.message

    def test_a_large_frame_that_comes_slowly(self) -> None:
        clock, whole = VirtualClock(1000.0), framed(bytes(8_000_000))
        with joined(clock=clock, idle_timeout_ms=60_000) as (driver, peer):
            peer.sendall(whole[:600_000])
            drive(lambda: driver.selector._links[1]._low_watermark > 1, driver)  # type: ignore[union-attr]
            for at in range(600_000, 900_000, 100_000):  # fewer than wake the selector
                peer.sendall(whole[at : at + 100_000])
                clock.advance(61.0)
                driver.poll()
            assert driver.disconnected == []
            clock.advance(61.0)
            driver.poll()
            assert "sent nothing for 60 s in the middle of a frame, 899,996 of 8,000,000" in str(driver.cause(1))

    def test_a_peer_that_stops_in_the_middle_of_a_frame_is_at_fault(self) -> None:
        clock = VirtualClock(1000.0)
        with joined(clock=clock, idle_timeout_ms=60_000) as (driver, peer):
            peer.sendall(framed(b"whole") + framed(b"partial")[:7])
            drive(lambda: bool(driver.received), driver)
            clock.advance(61.0)
            driver.poll()
            (lost,) = driver.disconnected
            assert "the peer sent nothing for 60 s in the middle of a frame, 3 of 7 bytes in" in str(lost.cause)
            assert not lost.is_idle
            assert driver.selector.next_attempt_at(1) > clock.now()

    def test_a_connection_with_bytes_to_write_is_not_idle(self) -> None:
        clock = VirtualClock(1000.0)
        with joined(clock=clock, idle_timeout_ms=60_000) as (driver, _):
            driver.poll([(1, bytes(30_000_000))])
            for _ in range(10):
                clock.advance(60.0)
                driver.poll()
            assert driver.disconnected == []


class TestArguments:
    """The call that gets a wrong argument rejects it by name, and the selector still works."""

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("a", "localhost", "9192"), "port is '9192': give an int"),
            (("a", "localhost", 9092.0), "port is 9092.0: give an int"),
            (("a", "localhost", True), "port is True"),
            (("a", b"localhost", 9092), "host is b'localhost'"),
            (("a", None, 9092), "host is None"),
            ((["a"], "localhost", 9092), r"node is \['a'\]: give a hashable value"),
        ],
    )
    def test_connect(self, arguments: tuple[Any, Any, Any], message: str) -> None:
        with joined() as (driver, _):
            with pytest.raises(TypeError, match=message):
                driver.selector.connect(*arguments)
            assert driver.selector.nodes == [1]
            driver.poll()

    @pytest.mark.parametrize("tls", ["yes", 1, "ca.pem"])
    def test_tls(self, tls: Any) -> None:
        with joined() as (driver, _):
            with pytest.raises(TypeError, match=r"tls is .*: give a kwire.Tls"):
                driver.selector.connect(2, "localhost", 9092, tls=tls)
            with pytest.raises(TypeError, match=r"tls is .*: give a kwire.Tls with cert_file"):
                driver.selector.listen("127.0.0.1", 0, tls=tls)
            with pytest.raises(TypeError, match=r"tls is .*: give a kwire.Tls"):
                KafkaSelector(tls=tls)

    def test_listen(self) -> None:
        with joined() as (driver, _), pytest.raises(TypeError, match="port is '0': give an int"):
            driver.selector.listen("127.0.0.1", "0")  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("sends", "message"),
        [
            (5, r"sends is 5: give \(node, frame\) pairs"),
            (b"abc", r"sends\[0\] is 97: give \(node, frame\)"),
            ([b"ab"], r"sends\[0\] is b'ab': give \(node, frame\)"),
            ((1, b"ab"), r"sends\[0\] is 1: give \(node, frame\)"),
            ({1: b"ab"}, r"sends\[0\] is 1"),
            ([(1, b"good"), (1,)], r"sends\[1\] is \(1,\)"),
            ([(1, b"good"), (1, "text")], r"sends\[1\]: frame is 'text': give bytes"),
            ([(1, None)], r"sends\[0\]: frame is None"),
            ([(1, "")], r"sends\[0\]: frame is ''"),
            ([(1, iter([b"a"]))], r"sends\[0\]: frame is <list_iterator"),
            ([(1, memoryview(b"abcd")[::2])], r"sends\[0\]: frame is <memory.*: give bytes, or a list of them; memory"),
            ([("waits", memoryview(b"abcd")[::2])], r"sends\[0\]: frame is <memory"),
            ([("waits", [memoryview(b"abcd")[::2]])], r"sends\[0\]: frame is \[<memory"),
            ([("waits", iter([b"a"]))], r"sends\[0\]: frame is <list_iterator"),
            ([("waits", "text")], r"sends\[0\]: frame is 'text'"),
            ([("waits", [b"a", "b"])], r"sends\[0\]: frame is \[b'a', 'b'\]"),
            ([("nowhere", "text")], r"sends\[0\]: frame is 'text'"),
            ([([1], b"a")], r"sends\[0\]: node is \[1\], which is not hashable"),
        ],
    )
    def test_sends(self, sends: Any, message: str) -> None:
        with joined() as (driver, sock):
            driver.selector.connect("waits", *closed_port())
            with pytest.raises(TypeError, match=message):
                driver.poll(sends)
            driver.poll([(1, b"end")])
            frame = read_frame(sock)
            assert (read_frame(sock) if frame == b"good" else frame) == b"end"

    @pytest.mark.parametrize("timeout", ["1", b"", []])
    def test_timeout(self, timeout: Any) -> None:
        with joined() as (driver, _), pytest.raises(TypeError, match=r"timeout is .*: give seconds, or None"):
            driver.poll([], timeout)

    def test_a_timeout_that_is_no_time(self) -> None:
        with joined() as (driver, _), pytest.raises(ValueError, match="timeout is nan: give seconds, or None"):
            driver.poll([], float("nan"))

    @pytest.mark.parametrize("seconds", [40 * 86_400.0, 1e30])
    def test_waits_that_are_longer_than_the_system_takes(self, seconds: float) -> None:
        with joined(idle_timeout_ms=seconds * 1000) as (driver, _):
            for timeout in (None, seconds):
                driver.selector.wakeup()
                assert driver.poll([], timeout) == []

    @pytest.mark.parametrize(
        "options",
        [
            {"connect_timeout_ms": "5"},
            {"idle_timeout_ms": -1},
            {"reconnect_backoff_ms": None},
            {"reconnect_backoff_ms_max": True},
            {"max_frame_bytes": 0},
            {"read_bytes_per_poll": 1.5},
        ],
    )
    def test_options(self, options: dict[str, Any]) -> None:
        with pytest.raises(ConfigurationError, match=f"{next(iter(options))} is "):
            KafkaSelector(**options)


def test_the_repr_shows_the_connections() -> None:
    selector = KafkaSelector()
    assert repr(selector) == "<KafkaSelector: 0 connected, 0 connecting>"
    host, port = selector.listen("::1", 0)
    selector.connect(1, host, port)
    assert repr(selector) == f"<KafkaSelector: 0 connected, 1 connecting, listening on [::1]:{port}>"
    while not selector.is_connected(1) or len(selector.nodes) < 2:
        selector.poll([], 10)
    assert repr(selector) == f"<KafkaSelector: 2 connected, 0 connecting, listening on [::1]:{port}>"
    selector.close()
    assert repr(selector) == "<KafkaSelector: closed>"


class TestWakeup:
    def test_ends_a_poll_from_another_thread(self) -> None:
        driver = Driver()
        try:
            for _ in range(50):
                other = threading.Thread(target=driver.selector.wakeup)
                other.start()
                assert driver.poll(timeout=None) == []
                other.join()
        finally:
            driver.close()

    def test_before_the_poll_counts_for_the_next_one_only(self) -> None:
        clock = VirtualClock(autojump=True)
        driver = Driver(clock=clock)
        try:
            driver.selector.wakeup()
            driver.selector.wakeup()
            driver.poll(timeout=60)
            assert clock.now() == 0.0
            driver.poll(timeout=60)
            assert clock.now() == 60.0
        finally:
            driver.close()

    def test_after_close_does_nothing(self) -> None:
        selector = KafkaSelector()
        selector.close()
        selector.wakeup()
        with pytest.raises(ClosedError):
            selector.poll([], 0)

    @pytest.mark.parametrize("is_before", [True, False])
    @pytest.mark.parametrize("call", ["send_pieces", "receive_into"])
    def test_survives_an_interrupt(self, call: str, is_before: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        """After Ctrl-C at a system call of the wake-up or of the poll, later wake-ups still end the poll."""
        module: Any = kwire.net.selector
        act = getattr(module, call)

        def interrupted(*args: Any) -> int:
            monkeypatch.setattr(module, call, act)
            if not is_before:
                act(*args)
            raise KeyboardInterrupt

        clock = VirtualClock(autojump=True)
        driver = Driver(clock=clock)
        try:
            monkeypatch.setattr(module, call, interrupted)
            with contextlib.suppress(KeyboardInterrupt):
                driver.selector.wakeup()
                driver.poll(timeout=60)
            assert getattr(module, call) is act
            driver.poll(timeout=0)
            for _ in range(3):
                now = clock.now()
                driver.selector._wakeup.notify()
                assert [key.fd for key, _ in driver.selector._selector.select(0)] == [driver.selector._wakeup.fileno()]
                driver.selector.wakeup()
                driver.poll(timeout=60)
                assert clock.now() == now
        finally:
            driver.close()

    def test_wakeups_from_many_threads_are_never_lost(self) -> None:
        """Each thread adds a number and wakes the poll, which has no timeout; the poller must see all numbers."""
        driver, left = Driver(), list[int]()

        def ring(start: int) -> None:
            for n in range(start, start + 500):
                left.append(n)
                driver.selector.wakeup()

        threads = [threading.Thread(target=ring, args=(1000 * n,)) for n in range(4)]
        try:
            for thread in threads:
                thread.start()
            while len(left) < 2000:
                driver.poll(timeout=20)
            for thread in threads:
                thread.join()
        finally:
            driver.close()


class TestTheEnd:
    def test_close_closes_all_and_may_be_repeated(self) -> None:
        with running() as (driver, peer):
            driver.connect(1, peer.address)
            sock = peer.accept()
            address = driver.selector.listen("127.0.0.1", 0)
            driver.selector.connect(2, *closed_port())
            driver.selector.connect(3, *peer.address)
            driver.poll()
            driver.selector.close()
            driver.selector.close()
            assert sock.recv(1) == b""
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(address, 5)

    @pytest.mark.parametrize(
        "call",
        [
            lambda s: s.poll([], 0),
            lambda s: s.connect(1, "x", 1),
            lambda s: s.disconnect(1),
            lambda s: s.listen("127.0.0.1", 0),
            lambda s: s.stop_listening(("127.0.0.1", 9092)),
            lambda s: s.send_raw(1, b"x"),
            lambda s: s.pause(1),
            lambda s: s.peername(1),
        ],
    )
    def test_every_call_after_close_raises(self, call: object) -> None:
        selector = KafkaSelector(resolver=FakeResolver())
        selector.close()
        with pytest.raises(ClosedError):
            call(selector)  # type: ignore[operator]

    def test_a_forked_child_that_closes_does_not_disturb_the_parent(self) -> None:
        with joined() as (driver, peer):
            driver.selector.listen("127.0.0.1", 0)
            driver.selector.connect(2, *peer.getsockname())
            child = os.fork()
            if child == 0:
                driver.selector.close()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            peer.sendall(framed(b"the parent goes on"))
            drive(lambda: bool(driver.received), driver)

    def test_a_call_in_a_forked_child_raises(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with joined() as (driver, peer):
            pid = os.getpid()
            monkeypatch.setattr(os, "getpid", lambda: pid + 1)
            with pytest.raises(ClosedError, match="make a new one after a fork"):
                driver.poll()
            monkeypatch.setattr(os, "getpid", lambda: pid)
            peer.sendall(framed(b"the parent goes on"))
            drive(lambda: bool(driver.received), driver)


class TestListening:
    def test_on_a_port_in_use(self) -> None:
        taken = pytest.raises(ConnectError, match=r"cannot listen on 127\.0\.0\.1:.*Address already in use")
        with running() as (driver, peer), taken:
            driver.selector.listen(*peer.address)

    def test_on_an_invalid_address(self) -> None:
        driver = Driver()
        try:
            with pytest.raises(ConnectError, match="cannot listen on"):
                driver.selector.listen("256.256.256.256", 0)
        finally:
            driver.close()

    @pytest.mark.parametrize(
        ("host", "port", "message"),
        [
            ("127.0.0.1", 70_000, "127.0.0.1:70000: no such port"),
            ("127.0.0.1", -1, "no such port"),
            ("127.0.0.1", 10**30, "no such port"),
            ("a" * 64, 0, "not a host name"),
        ],
    )
    def test_on_what_is_no_address(self, host: str, port: int, message: str) -> None:
        driver = Driver()
        try:
            with pytest.raises(ConnectError, match=message):
                driver.selector.listen(host, port)
        finally:
            driver.close()

    def test_only_a_listener_is_stopped(self) -> None:
        with joined() as (driver, _), pytest.raises(ValueError, match=r"no listener has the address \('a', 1\)"):
            driver.selector.stop_listening(("a", 1))

    def test_it_pauses_without_free_file_descriptors(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = VirtualClock(1000.0)
        driver = Driver(clock=clock)
        try:
            address = driver.selector.listen("127.0.0.1", 0)
            with socket.create_connection(address, 5):
                calls: list[None] = []

                def accept(self: Listener) -> object:
                    calls.append(None)
                    raise OSError(errno.EMFILE, "Too many open files")

                with monkeypatch.context() as patched:
                    patched.setattr(Listener, "accept", accept)
                    drive(lambda: bool(calls), driver)
                    for _ in range(5):
                        driver.poll()
                    assert len(calls) == 1
                clock.advance(0.1)
                drive(lambda: bool(driver.accepted), driver)
        finally:
            driver.close()


def _no_socket(*_: object) -> socket.socket:
    raise OSError(errno.EMFILE, "Too many open files")


class Blackhole:
    """Provide an address on which connecting never ends: the listener's queue is full, so the kernel drops the SYN."""

    def __init__(self) -> None:
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(0)
        self._fillers: list[socket.socket] = []
        self.address = address_of(self._listener.getsockname())
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(self.address.sockaddr)
            self._fillers.append(filler)

    def close(self) -> None:
        for sock in (self._listener, *self._fillers):
            sock.close()
