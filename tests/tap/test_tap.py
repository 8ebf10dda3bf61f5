"""A tap between real clients and embedded brokers: nothing is lost, everything is seen, nothing secret is written."""

# ruff: noqa: SIM117 - a tap inside its cluster reads better
from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kwire
from kwire.broker import Cluster
from kwire.capture import Exchange, Remark, read_exchanges
from kwire.capture.secrets import MASKED
from kwire.errors import ConfigurationError, ConnectError, KwireError
from kwire.protocol.headers import encode_request
from kwire.protocol.messages.api_versions import ApiVersionsRequest
from kwire.protocol.messages.produce import ProduceRequest
from kwire.session import Sasl
from kwire.tap import Rule, Tap, load_rules
from kwire.tap.proxy import _expects_response
from kwire.tap.recorder import CaptureFiles
from tests.broker.test_cluster import certificates
from tests.capture.captures import sized
from tests.cli.running import run
from tests.waiting import PATIENCE_SECONDS, wait_until

PASSWORD = "hunter2-hunter2"
HELLO = sized(encode_request(ApiVersionsRequest(), 0, 1, "client"))


def exchanges_of(path: Path) -> list[Exchange]:
    remarks: list[Remark] = []
    found = list(read_exchanges(path, on_remark=remarks.append))
    assert not [one for one in remarks if one.is_problem], remarks
    assert not [one.problems for one in found if one.problems]
    return found


def read(bootstrap: str, number: int, partitions: int, **options: Any) -> list[bytes | None]:
    found: list[bytes | None] = []
    with kwire.Consumer(bootstrap, **options) as consumer:
        consumer.assign([("t", partition, "earliest") for partition in range(partitions)])
        while len(found) < number:
            found += [record.value for record in consumer.poll(timeout=10)]
    return found


def send_and_read(bootstrap: str, number: int, partitions: int = 1, **options: Any) -> list[bytes | None]:
    with kwire.Producer(bootstrap, **options) as producer:
        for index in range(number):
            producer.send("t", f"v{index}".encode(), key=str(index % 7).encode())
    return sorted(read(bootstrap, number, partitions, **options), key=str)


def test_all_brokers_are_reached_through_the_tap(tmp_path: Path) -> None:
    seen: list[Exchange] = []
    path = tmp_path / "t.pcapng"
    with Cluster(3, topics={"t": 6}) as cluster:
        with Tap(cluster.bootstrap.split(",")[0], record=path, on_exchange=seen.append) as tap:
            values = send_and_read(tap.address, 2_000, 6)
        assert len(tap.brokers) == 3
        assert not cluster.failures
    assert values == sorted((f"v{index}".encode() for index in range(2_000)), key=str)
    stored = exchanges_of(path)
    assert tap.exchanges == len(seen)
    assert [one.api_name for one in stored if one.response] != []
    assert {one.connection.number for one in seen} == {one.connection.number for one in stored}
    for exchanges in (seen, stored):
        records = sum(
            batch.count for one in exchanges if one.api_name == "Produce" and one.request
            for _, batch in one.request.record_batches()
        )  # fmt: skip
        assert records == 2_000
    # What the client got names the tap; what is recorded names the brokers.
    named = {node["port"] for one in stored if one.api_name == "Metadata" and one.response
             for node in (one.response.message or {})["brokers"]}  # fmt: skip
    assert named == {int(address.rpartition(":")[2]) for address in cluster.bootstrap.split(",")}


def test_a_filter_and_a_group(tmp_path: Path) -> None:
    seen: list[Exchange] = []
    with (
        Cluster(3, topics={"t": 4}) as cluster,
        Tap(cluster.bootstrap, where="group == g", on_exchange=seen.append) as tap,
    ):
        with kwire.Producer(tap.address) as producer:
            for index in range(100):
                producer.send("t", str(index).encode())
        with kwire.Consumer(tap.address, group="g") as consumer:
            consumer.subscribe(["t"])
            found: list[object] = []
            while len(found) < 100:
                found += consumer.poll(timeout=1)
    assert seen
    assert {one.api_name for one in seen} <= {
        "ConsumerGroupHeartbeat", "OffsetCommit", "OffsetFetch", "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup",
        "FindCoordinator",
    }  # fmt: skip


@pytest.mark.parametrize("injects", [False, True])
def test_no_password_is_recorded(tmp_path: Path, injects: bool) -> None:
    path = tmp_path / "t.pcapng"
    sasl = Sasl("PLAIN", "alice", PASSWORD)
    with Cluster(1, topics={"t": 1}, sasl={"alice": PASSWORD}) as cluster:
        with Tap(cluster.bootstrap, record=path, sasl=sasl if injects else None) as tap:
            assert len(send_and_read(tap.address, 10, 1, **({} if injects else {"sasl": sasl}))) == 10
    assert PASSWORD.encode() not in path.read_bytes()
    names = [one.api_name for one in exchanges_of(path)]
    assert ("SaslAuthenticate" in names) is not injects
    assert "Produce" in names


def test_payloads_are_masked_in_the_file(tmp_path: Path) -> None:
    from kwire.capture.secrets import Redaction

    path = tmp_path / "t.pcapng"
    with (
        Cluster(1, topics={"t": 1}) as cluster,
        Tap(cluster.bootstrap, record=path, redaction=Redaction(payloads=True)) as tap,
        kwire.Producer(tap.address, compression="gzip") as producer,
    ):
        producer.send("t", b"a private value", key=b"a private key").result(10)
    values = [
        record.value for one in exchanges_of(path) if one.api_name == "Produce" and one.request
        for _, batch in one.request.record_batches() for record in batch.records()
    ]  # fmt: skip
    assert values == [b"*" * len("a private value")]
    assert b"private" not in path.read_bytes()


def test_tls_on_both_sides(tmp_path: Path) -> None:
    server, client = certificates(tmp_path)
    path = tmp_path / "t.pcapng"
    with Cluster(2, topics={"t": 4}, tls=server) as cluster:
        with Tap(cluster.bootstrap, record=path, tls=client, tls_in=server) as tap:
            assert len(send_and_read(tap.address, 100, 4, tls=client)) == 100
    assert "Produce" in [one.api_name for one in exchanges_of(path)], "the capture is plaintext"


def test_a_login_that_the_broker_refuses_is_told() -> None:
    said: list[str] = []
    with Cluster(1, sasl={"alice": PASSWORD}) as cluster:
        with Tap(cluster.bootstrap, sasl=Sasl("PLAIN", "alice", "wrong"), on_remark=said.append) as tap:
            with socket.create_connection(("127.0.0.1", int(tap.address.rpartition(":")[2])), timeout=10) as client:
                client.sendall(HELLO)
                assert client.recv(1) == b""
    (text,) = said
    assert "the tap could not authenticate: the broker rejected SASL PLAIN for user 'alice'" in text


def test_a_client_with_tls_is_told_from_one_without() -> None:
    said: list[str] = []
    with Tap("127.0.0.1:1", on_remark=said.append) as tap:
        with socket.create_connection(("127.0.0.1", int(tap.address.rpartition(":")[2])), timeout=10) as client:
            client.sendall(bytes.fromhex("16030100a5010000a10303"))
            assert client.recv(1) == b""
    (text,) = said
    assert "from the client: the peer speaks TLS" in text


def test_remarks_name_the_options_of_the_command(tmp_path: Path) -> None:
    server, _ = certificates(tmp_path)
    with Cluster(1, tls=server) as cluster:
        program = f"{sys.executable} -m kwire metadata -q --timeout 2"
        ran = run("tap", "-b", cluster.bootstrap, "--tls", "--exec", program)
    assert "signed by an authority that is not trusted" in ran.stderr
    assert "give the authority's certificate as --cafile" in ran.stderr


def test_a_broker_that_is_down(tmp_path: Path) -> None:
    path = tmp_path / "t.pcapng"
    remarks: list[str] = []
    with Cluster(1) as cluster:
        bootstrap = cluster.bootstrap
    with Tap(bootstrap, record=path, on_remark=remarks.append) as tap:
        with pytest.raises(KwireError), kwire.Producer(tap.address, delivery_timeout_ms=700) as producer:
            producer.send("t", b"v").result(5)
    assert any("refused" in text for text in remarks), remarks
    assert [one.api_name for one in exchanges_of(path)][:1] == ["ApiVersions"], "the request was seen"


def test_captures_rotate(tmp_path: Path) -> None:
    path = tmp_path / "t.pcapng"
    with (
        Cluster(1, topics={"t": 1}) as cluster,
        Tap(cluster.bootstrap, record=path, rotate_bytes=20_000, keep=2) as tap,
    ):
        with kwire.Producer(tap.address, linger_ms=0) as producer:
            for index in range(60):
                producer.send("t", bytes(1000) + str(index).encode()).result(10)
    files = sorted(tmp_path.iterdir())
    assert len(files) == 3
    assert all(file.stat().st_size < 60_000 for file in files)
    for file in files[:2]:
        assert any(one.api_name == "Produce" and one.request for one in read_exchanges(file))


def test_a_second_run_goes_on_with_the_numbers(tmp_path: Path) -> None:
    """A tap that is started again must not write over what the one before has recorded."""
    path = tmp_path / "t.pcapng"
    for name, text in (("t.pcapng", "newest"), ("t.1.pcapng", "oldest"), ("t.10.pcapng", "old"), ("t.x.pcapng", "no")):
        (tmp_path / name).write_text(text)
    with Tap("127.0.0.1:1", record=path, rotate_bytes=1 << 20, keep=10):
        pass
    found = {one.name: one.read_bytes() for one in tmp_path.iterdir()}
    assert exchanges_of(path) == []
    assert found.pop("t.pcapng").startswith(b"\x0a\x0d\x0d\x0a")
    assert found == {"t.10.pcapng": b"old", "t.11.pcapng": b"newest", "t.x.pcapng": b"no"}


@pytest.mark.parametrize("is_there", [True, False])
def test_an_earlier_run_counts_without_its_newest_file(tmp_path: Path, is_there: bool) -> None:
    """A full disk leaves it empty, and a user may have moved it away."""
    path = tmp_path / "t.pcapng"
    earlier = {tmp_path / f"t.{number}.pcapng": f"number {number}".encode() for number in (1, 2)}
    for one, data in earlier.items():
        one.write_bytes(data)
    if is_there:
        path.touch()
    files = CaptureFiles(path, MASKED, rotate_bytes=1, keep=None)
    assert set(tmp_path.iterdir()) == {*earlier, path}, "an empty file gets no number"
    files.flush([])
    files.close()
    assert {one: one.read_bytes() for one in earlier} == earlier
    assert set(tmp_path.iterdir()) == {*earlier, path, tmp_path / "t.3.pcapng"}


@pytest.mark.parametrize("rotate_bytes", [None, 1 << 20])
def test_a_file_that_another_tap_writes_is_left_to_it(tmp_path: Path, rotate_bytes: int | None) -> None:
    path, link = tmp_path / "t.pcapng", tmp_path / "link.pcapng"
    link.symlink_to(path)
    with Cluster(1, topics={"t": 1}) as cluster:
        with Tap(cluster.bootstrap, record=path, rotate_bytes=rotate_bytes) as tap:
            for name in (path, link):
                with pytest.raises(ConfigurationError, match="is being written by another tap"):
                    Tap(cluster.bootstrap, record=name, rotate_bytes=rotate_bytes)
            ran = run("record", str(path), "-b", cluster.bootstrap, "--exec", "true")
            assert ran.code == 2
            assert "is being written by another tap\n  do:  give each tap a file of its own" in ran.stderr
            assert len(send_and_read(tap.address, 10)) == 10
        assert "Produce" in [one.api_name for one in exchanges_of(path)]
        assert sorted(tmp_path.iterdir()) == [link, path], "nothing was renamed"
        with Tap(cluster.bootstrap, record=path):
            pass
    assert exchanges_of(path) == [], "a file is free after its tap"


def test_a_full_file_is_locked_until_it_has_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.pcapng"
    refused: list[ConfigurationError] = []
    rename = Path.rename

    def begin_another(self: Path, target: Path) -> Path:
        with pytest.raises(ConfigurationError) as caught:
            CaptureFiles(path, MASKED, rotate_bytes=None, keep=None)
        refused.append(caught.value)
        return rename(self, target)

    first = CaptureFiles(path, MASKED, rotate_bytes=1, keep=None)
    size = path.stat().st_size
    monkeypatch.setattr(Path, "rename", begin_another)
    first.flush([])
    first.close()
    assert [one.stat().st_size for one in (path, tmp_path / "t.1.pcapng")] == [size, size]
    assert len(refused) == 1


def test_taps_share_a_device() -> None:
    files = [CaptureFiles(os.devnull, MASKED, rotate_bytes=None, keep=None) for _ in range(2)]
    assert all(one.writer.size for one in files)
    for one in files:
        one.close()


def test_chaos_is_the_same_for_the_same_seed() -> None:
    rules = [Rule(api=frozenset({0}), chance=0.5, throttle_ms=1)]

    def run_once() -> list[int]:
        seen: list[Exchange] = []
        with Cluster(1, topics={"t": 1}) as cluster:
            with Tap(cluster.bootstrap, on_exchange=seen.append, where="api == Produce", chaos=rules, seed=3) as tap:
                for rule in rules:
                    rule.seen = rule.done = 0
                with kwire.Producer(tap.address, linger_ms=0) as producer:
                    for index in range(20):
                        producer.send("t", str(index).encode()).result(10)
        return [rules[0].seen, rules[0].done]

    first = run_once()
    assert first == run_once()
    assert 0 < first[1] < first[0]


@pytest.mark.parametrize("rule", [
    Rule(api=frozenset({0}), after=2, times=2, disconnect="before"),
    Rule(api=frozenset({0}), after=2, times=2, disconnect="after"),
    Rule(api=frozenset({0}), times=5, delay_ms=30, jitter_ms=20),
])  # fmt: skip
def test_nothing_is_lost_in_chaos(rule: Rule) -> None:
    with Cluster(1, topics={"t": 1}) as cluster:
        with Tap(cluster.bootstrap, chaos=[rule]) as tap, kwire.Producer(tap.address, linger_ms=0) as producer:
            for index in range(20):
                producer.send("t", str(index).encode()).result(20)
        assert rule.done
        assert read(cluster.bootstrap, 20, 1) == [str(index).encode() for index in range(20)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has no rules"),
        ("[[rule]]\ndelay = 3", "unknown key delay"),
        ("[[rule]]\napi = 'Prodce'\nmute = true", "there is no API Prodce"),
        ("[[rule]]\nchance = 0.5", "does nothing"),
        ("[[rule]]\ndisconnect = 'now'", "disconnect"),
        ("[[rule]]\nmute = 1", "mute"),
        ("rule = [5]", "rule 1 of"),
        ("[[rule]]\napi = 5\nmute = true", "api of rule 1 of"),
        ("[[rule]]\nchance = 5\nmute = true", "give a number from 0 to 1"),
        ("[[rule]]\ndelay_ms = nan", "delay_ms of rule 1"),
        ("[[rule]]\ndelay_ms = inf", "delay_ms of rule 1"),
        ("[[rule]]\nthrottle_ms = 99999999999", "give a number from 0 to 2,147,483,647"),
        ("[[rule", "cannot be read"),
    ],
)
def test_wrong_rules_are_named(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=says):
        load_rules(path)


@pytest.mark.parametrize("acks", [0, 1, -1])
@pytest.mark.parametrize("transactional_id", [None, "x" * 200])
def test_a_request_without_a_response_is_known(acks: int, transactional_id: str | None) -> None:
    for version in range(3, 13):
        request = ProduceRequest(acks=acks, timeout_ms=1, topic_data=[], transactional_id=transactional_id)
        for client_id in (None, "", "client"):
            frame = b"".join(encode_request(request, version, 7, client_id))
            assert _expects_response(frame, version) is (acks != 0)


def test_credentials_that_take_time_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="token"):
        Tap("127.0.0.1:9092", sasl=kwire.Sasl.oauth(lambda: "a token"))


def test_an_address_that_is_taken_leaves_an_earlier_capture(tmp_path: Path) -> None:
    path = tmp_path / "t.pcapng"
    path.write_bytes(b"an earlier capture")
    with Cluster(1) as cluster:
        host, _, port = cluster.bootstrap.rpartition(":")
        with pytest.raises(ConnectError):
            Tap(cluster.bootstrap, listen=(host, int(port)), record=path)
    assert path.read_bytes() == b"an earlier capture"


def test_a_file_that_cannot_be_written_ends_the_listener(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = free.getsockname()
    with pytest.raises(ConfigurationError, match="cannot be written"):
        Tap("127.0.0.1:1", listen=address, record=tmp_path / "nowhere" / "t.pcapng")
    with Tap("127.0.0.1:1", listen=address) as tap:
        assert tap.address == f"127.0.0.1:{address[1]}"


def test_a_full_disk_ends_the_tap_with_all_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pytest turns an exception that a thread does not catch into a failure."""

    def flush(files: CaptureFiles, connections: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(CaptureFiles, "flush", flush)
    with Cluster(1) as cluster:
        tap = Tap(cluster.bootstrap, record=tmp_path / "t.pcapng")
        with socket.create_connection(("127.0.0.1", int(tap.address.rpartition(":")[2])), timeout=10) as client:
            client.sendall(HELLO)
            while client.recv(1 << 16):
                pass
            assert tap.wait(10)
        with pytest.raises(OSError, match="No space left"):
            tap.close()


def test_a_request_in_flight_is_told_at_the_end(tmp_path: Path) -> None:
    """It may be the one that hangs, for which somebody started the tap."""
    seen: list[Exchange] = []
    with socket.create_server(("127.0.0.1", 0)) as broker:
        broker.settimeout(10)
        with Tap(f"127.0.0.1:{broker.getsockname()[1]}", on_exchange=seen.append) as tap:
            with socket.create_connection(("127.0.0.1", int(tap.address.rpartition(":")[2])), timeout=10) as client:
                client.sendall(HELLO)
                silent, _ = broker.accept()
                with silent:
                    silent.settimeout(10)
                    assert silent.recv(len(HELLO), socket.MSG_WAITALL) == HELLO
                    tap.close()
    assert [(one.api_name, one.response) for one in seen] == [("ApiVersions", None)]
    assert tap.exchanges == 1


def test_the_command_runs_a_program(tmp_path: Path) -> None:
    path = tmp_path / "t.pcapng"
    with Cluster(1, topics={"t": 1}) as cluster:
        program = f"echo hello | {sys.executable} -m kwire produce t -q && exit 7"
        ran = run("tap", "-b", cluster.bootstrap, "-o", str(path), "-w", "api == Produce", "--exec", program)
    assert ran.code == 7, ran.stderr
    assert "listening on 127.0.0.1:" in ran.stderr
    (line,) = [json.loads(text) for text in ran.stdout.splitlines() if text.startswith("{")]
    assert line["api"] == "Produce"
    assert "t[0] 1 record" in line["summary"]
    assert "Produce" in [one.api_name for one in exchanges_of(path)]
    assert run("tap", "-b", "x:1", "-o", str(path), "--show-secrets").code == 2


def records_in(path: Path) -> int:
    """Return how many records were produced in the capture."""
    return sum(
        batch.count for one in read_exchanges(path) if one.api_name == "Produce" and one.request
        for _, batch in one.request.record_batches()
    )  # fmt: skip


def test_a_killed_tap_leaves_a_readable_file(tmp_path: Path) -> None:
    path = tmp_path / "t.pcapng"
    with Cluster(1, topics={"t": 1}) as cluster:
        command = [sys.executable, "-m", "kwire", "tap", "-b", cluster.bootstrap, "-q", "-o", str(path)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tap:
            assert tap.stderr is not None
            address = tap.stderr.readline().split()[3]
            with kwire.Producer(address) as producer:
                for index in range(500):
                    producer.send("t", str(index).encode())
                producer.flush(20)
                wait_until(lambda: records_in(path) == 500)
                os.kill(tap.pid, signal.SIGKILL)
    assert records_in(path) == 500


def test_what_clients_sent_last_can_be_waited_for() -> None:
    """A client with acks=0 has ended before the tap has read its records."""
    with Cluster(1, topics={"t": 1}) as cluster, Tap(cluster.bootstrap) as tap:
        for number in range(1, 21):
            with kwire.Producer(tap.address, acks=0, idempotence=False) as producer:
                producer.send("t", b"value")
                producer.flush()
                assert not tap.wait_for_clients(0.0), "it is connected"
            assert tap.wait_for_clients(PATIENCE_SECONDS)
            wait_until(lambda number=number: len(cluster.log("t").records()) == number)  # type: ignore[misc]
