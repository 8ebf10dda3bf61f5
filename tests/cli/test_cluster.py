"""The commands that talk to brokers, against the embedded cluster."""

from __future__ import annotations

import io
import json
import re
import socket
from base64 import b64decode
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kwire.broker import Cluster
from kwire.cli.produce import split_records, whole_records
from kwire.protocol import ApiKey
from tests.cli.running import Ran, run

# How long to wait for a partition that the topic lacks: it may be created just now.
HASTE = ("-X", "unknown_topic_timeout_ms=500")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3, topics={"orders": 3, "one": 1, "copy": 3}, auto_create_topics=False) as running:
        yield running


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    """Return a new topic of one partition for each test."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    cluster.create_topic(name, partitions=1)
    return name


def run_on(cluster: Cluster, *args: str, stdin: str | bytes = b"") -> Ran:
    return run(*args, stdin=stdin, env={"KWIRE_BOOTSTRAP": cluster.bootstrap})


# -- metadata and versions


def test_metadata(cluster: Cluster) -> None:
    ran = run_on(cluster, "metadata", "orders", "one")
    assert (ran.code, ran.stderr) == (0, "")
    kinds = [line["kind"] for line in ran.lines()]
    assert kinds == ["cluster", "broker", "broker", "broker", "topic", "topic"]
    brokers = [f"{line['host']}:{line['port']}" for line in ran.lines() if line["kind"] == "broker"]
    assert ",".join(brokers) == cluster.bootstrap
    topics = {line["name"]: line for line in ran.lines() if line["kind"] == "topic"}
    assert [one["partition"] for one in topics["orders"]["partitions"]] == [0, 1, 2]
    assert topics["orders"]["partitions"][0]["leader"] == cluster.leader("orders", 0)
    assert topics["one"]["error"] is None


def test_metadata_as_a_table(cluster: Cluster) -> None:
    summary = run_on(cluster, "metadata", "-f", "table").stdout.splitlines()
    assert summary[0] == "cluster kwire-embedded-cluster, 3 brokers"
    assert ["orders", "3", "3"] in [line.split() for line in summary]
    leader = str(cluster.leader("orders", 2))
    rows = [line.split() for line in run_on(cluster, "metadata", "-f", "table", "orders").stdout.splitlines()]
    assert ["orders", "2", leader] in [row[:3] for row in rows]
    assert len(run_on(cluster, "metadata", "--partitions", "-f", "table").stdout.splitlines()) > len(summary)


def test_metadata_of_an_unknown_topic_creates_none(cluster: Cluster) -> None:
    ran = run_on(cluster, "metadata", "nosuch", "one")
    assert ran.code == 1
    errors = {line["name"]: line["error"] for line in ran.lines() if line["kind"] == "topic"}
    assert errors == {"nosuch": "UNKNOWN_TOPIC_OR_PARTITION", "one": None}
    assert "UNKNOWN_TOPIC_OR_PARTITION" in run_on(cluster, "metadata", "nosuch", "-f", "table").stdout


def test_metadata_of_an_old_broker_creates_none() -> None:
    """Before v4 a request could not forbid the creation, so no topic is requested by name."""
    with Cluster(1, topics={"there": 1}, api_versions={ApiKey.METADATA: range(0, 2)}) as old:
        assert run_on(old, "metadata", "there").code == 0
        assert run_on(old, "metadata", "nosuch").code == 1
        assert [line["name"] for line in run_on(old, "metadata").lines() if line["kind"] == "topic"] == ["there"]


def test_metadata_shows_problems(cluster: Cluster) -> None:
    with Cluster(2, topics={"t": 1}, default_replication_factor=1) as small:
        leader = small.leader("t", 0)
        small.stop(leader)
        ran = run_on(small, "metadata", "t", "-f", "table")
        assert ran.code == 1
        assert "none" in ran.stdout
        assert "LEADER_NOT_AVAILABLE" in ran.stdout
        assert "1 without leader" in run_on(small, "metadata", "-f", "table").stdout


def test_versions(cluster: Cluster) -> None:
    ran = run_on(cluster, "versions")
    assert ran.code == 0
    brokers = [line for line in ran.lines() if line["kind"] == "broker"]
    assert [one["id"] for one in brokers] == [1, 2, 3]
    fetch = next(line for line in ran.lines() if line.get("name") == "Fetch")
    assert fetch["api_key"] == 1
    assert fetch["kwire"] == fetch["brokers"]["1"] == fetch["brokers"]["3"]
    assert fetch["used"] == fetch["kwire"][1]


def test_versions_as_a_matrix() -> None:
    with Cluster(2, api_versions={ApiKey.FETCH: range(4, 12)}) as narrow:
        table = [line.split() for line in run_on(narrow, "versions", "-f", "table").stdout.splitlines()]
        assert table[0] == ["key", "api", "kwire", "brokers", "1,2", "used"]
        assert ["1", "Fetch", "0-18", "4-11", "11"] in table


# -- produce and consume


def values(ran: Ran) -> list[object]:
    return [line["value"] for line in ran.lines()]


@pytest.mark.parametrize(
    ("args", "stdin", "records"),
    [
        ([], "a\nb\n", [(None, "a"), (None, "b")]),
        ([], "no newline at the end", [(None, "no newline at the end")]),
        ([], "\n\n", [(None, ""), (None, "")]),
        ([], b"\xff\0\n", [(None, {"base64": "/wA="})]),
        (["-K", ":"], "k:v\nalone\n:\nk:v:w\n", [("k", "v"), (None, "alone"), ("", ""), ("k", "v:w")]),
        (["-K", "\\t", "-Z"], "k\t\n\tv\n", [("k", None), (None, "v")]),
        (["-k", "fixed", "-K", ":"], "a:b\nc\n", [("a", "b"), ("fixed", "c")]),
        (["-D", "\\0"], b"x\ny\0z", [(None, "x\ny"), (None, "z")]),
        (["-D", "--"], "a--b-c--", [(None, "a"), (None, "b-c")]),
        (["-c", "2"], "1\n2\n3\n", [(None, "1"), (None, "2")]),
        (["-z", "gzip", "--acks", "1", "-p", "0"], "zipped\n", [(None, "zipped")]),
    ],
)
def test_produce_lines(
    cluster: Cluster, topic: str, args: list[str], stdin: str | bytes, records: list[tuple[object, object]]
) -> None:
    ran = run_on(cluster, "produce", topic, *args, stdin=stdin)
    assert (ran.code, ran.stdout) == (0, "")
    assert f"{len(records)} record" in ran.stderr
    consumed = [(line["key"], line["value"]) for line in run_on(cluster, "consume", topic, "-e").lines()]
    # Records with a key keep their order, and so do records without a key.
    for has_key in (False, True):
        assert [one for one in consumed if (one[0] is not None) == has_key] == [
            one for one in records if (one[0] is not None) == has_key
        ]


@pytest.mark.parametrize("first_seconds", [0.0, 1.0])
def test_produce_reads_on_whether_the_first_lines_arrived_or_not(
    cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch, first_seconds: float
) -> None:
    monkeypatch.setattr("kwire.cli.produce._FIRST_SECONDS", first_seconds)
    lines = "".join(f"{number:099}\n" for number in range(5_000))  # 500 kB: the first read takes 64 KiB of them
    ran = run_on(cluster, "produce", topic, stdin=lines)
    assert ran.code == 0
    assert "5000 records" in ran.stderr
    assert len(values(run_on(cluster, "consume", topic, "-e"))) == 5_000


def test_produce_headers_and_files(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    files = [tmp_path / "a", tmp_path / "b"]
    files[0].write_bytes(bytes(range(256)))
    files[1].write_text("1\n2\n")
    assert run_on(cluster, "produce", topic, *map(str, files), "-H", "type=x=y", "-H", "none").code == 0
    first, second = run_on(cluster, "consume", topic, "-e").lines()
    assert first["headers"] == second["headers"] == [["type", "x=y"], ["none", None]]
    assert second["value"] == "1\n2\n"
    assert run_on(cluster, "consume", topic, "-c", "1", "--raw").stdout_bytes == bytes(range(256))
    assert run_on(cluster, "produce", topic, "-l", str(files[1])).code == 0
    assert values(run_on(cluster, "consume", topic, "-o", "2", "-e")) == ["1", "2"]


def test_produce_reads_what_consume_writes(cluster: Cluster) -> None:
    """Nulls, binary, headers, timestamps and partitions survive the round trip."""
    lines = [
        {"key": None, "value": None, "partition": 0, "timestamp_ms": 1700000000000},
        {"key": "", "value": "", "partition": 1, "timestamp_ms": 1700000000001, "headers": [["h", None], ["h", ""]]},
        {"key": {"base64": "/w=="}, "value": "\u20ac\n\t\\", "partition": 2, "timestamp_ms": 1700000000002},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    assert run_on(cluster, "produce", "orders", "-J", stdin=text).code == 0
    first = run_on(cluster, "consume", "orders", "-e").stdout
    assert run_on(cluster, "produce", "copy", "--json", stdin=first).code == 0
    copied = [
        {**json.loads(line), "topic": "orders"} for line in run_on(cluster, "consume", "copy", "-e").stdout.splitlines()
    ]
    original = [json.loads(line) for line in first.splitlines()]

    def partition(line: dict[str, int]) -> int:
        return line["partition"]

    assert sorted(copied, key=partition) == sorted(original, key=partition)
    assert [one["key"] for one in sorted(original, key=partition)] == [None, "", {"base64": "/w=="}]
    assert run_on(cluster, "produce", "one", "--json", "--repartition", stdin=first).code == 0


def test_produce_reports_each_record(cluster: Cluster, topic: str) -> None:
    reports = run_on(cluster, "produce", topic, "--report", stdin="a\nb\n").lines()
    assert [(one["input"], one["topic"], one["partition"], one["offset"]) for one in reports] == [
        ("line 1", topic, 0, 0),
        ("line 2", topic, 0, 1),
    ]
    failed = run_on(cluster, "produce", topic, "-p", "7", "--report", *HASTE, stdin="x\n")
    (report,) = failed.lines()
    assert (failed.code, report["input"], report["possibly_persisted"]) == (1, "line 1", False)
    assert "has 1 partition" in report["error"] or "partition 7" in report["error"]
    assert "kwire: line 1: " in failed.stderr
    assert "0 records, 0 bytes" in failed.stderr
    assert "1 failed" in failed.stderr


def test_a_wrong_json_line_stops_produce_after_the_lines_before_it(cluster: Cluster, topic: str) -> None:
    ran = run_on(cluster, "produce", topic, "-J", stdin='{"value": "a"}\n{"value": 1}\n{"value": "c"}\n')
    assert ran.code == 2
    assert 'kwire: line 2: 1 is neither a string, null nor {"base64": ...}' in ran.stderr
    assert values(run_on(cluster, "consume", topic, "-e")) == ["a"]


def test_failures_are_told_once_for_each_reason(cluster: Cluster, topic: str) -> None:
    ran = run_on(cluster, "produce", topic, "-p", "9", *HASTE, stdin="x\n" * 50)
    assert ran.code == 1
    assert "50 failed" in ran.stderr
    assert ran.stderr.count("kwire: line ") == 1
    assert "kwire: 49 more records failed in the same way (line 2, line 3, line 4, ...)" in ran.stderr
    assert "leave out -p" in ran.stderr


def test_records_for_partitions_that_the_topic_lacks(cluster: Cluster, topic: str) -> None:
    """What `consume orders | produce smaller --json` meets: one message, and the option that helps."""
    lines = "".join(f'{{"value": "{n}", "partition": {n}}}\n' for n in range(4))
    ran = run_on(cluster, "produce", topic, "--json", *HASTE, stdin=lines)
    assert (ran.code, values(run_on(cluster, "consume", topic, "-e"))) == (1, ["0"])
    assert ran.stderr.count("kwire: line ") == 1
    assert "2 more records failed in the same way (line 3, line 4)" in ran.stderr
    assert "--repartition ignores those of the JSON records" in ran.stderr
    assert run_on(cluster, "produce", topic, "--json", "--repartition", stdin=lines).code == 0


def test_a_value_that_is_no_partition_is_told_with_its_line(cluster: Cluster, topic: str) -> None:
    lines = '{"value": "a"}\n{"value": "b", "partition": 99999999999}\n{"value": "c"}\n'
    ran = run_on(cluster, "produce", topic, "--json", stdin=lines)
    assert ran.code == 2
    assert "line 2: " in ran.stderr
    assert values(run_on(cluster, "consume", topic, "-e")) == ["a"]


def test_produce_in_a_transaction(cluster: Cluster, topic: str) -> None:
    committed = ["consume", topic, "-e", "--isolation", "read_committed"]
    transaction = ["produce", topic, "--json", "--transactional-id", topic]
    ran = run_on(cluster, *transaction, stdin='{"value": "a"}\n{"value": "b"}\n')
    assert ran.code == 0
    assert values(run_on(cluster, *committed)) == ["a", "b"]
    # A wrong line ends the input, and the records before it are not to be seen.
    ran = run_on(cluster, *transaction, stdin='{"value": "c"}\n{"value": 1}\n')
    assert ran.code == 2
    assert "the transaction was aborted" in ran.stderr
    assert values(run_on(cluster, *committed)) == ["a", "b"]
    assert values(run_on(cluster, "consume", topic, "-e")) == ["a", "b", "c"]


def test_produce_to_no_topic(cluster: Cluster) -> None:
    ran = run_on(cluster, "produce", "nowhere", "--no-create", stdin="x\n")
    assert ran.code == 1
    assert "UNKNOWN_TOPIC_OR_PARTITION" in ran.stderr
    assert "kwire topics create nowhere" in ran.stderr
    with Cluster(1, auto_create_topics=True) as creating:
        ran = run_on(creating, "produce", "new", stdin="x\n")
    assert ran.code == 0
    assert "there is no topic new yet: it is created if the brokers are set to do so" in ran.stderr


def test_a_record_too_large_fails_alone(cluster: Cluster, topic: str) -> None:
    ran = run_on(cluster, "produce", topic, "-X", "max_request_bytes=1000", stdin="a\n" + "x" * 2000 + "\nb\n")
    assert ran.code == 1
    assert "line 2: the record has" in ran.stderr
    assert values(run_on(cluster, "consume", topic, "-e")) == ["a", "b"]


@pytest.mark.parametrize(
    ("args", "numbers"),
    [
        (["-o", "beginning"], range(10)),
        (["-o", "4"], range(4, 10)),
        (["-o", "-3"], range(7, 10)),
        (["-o", "-99"], range(10)),
        (["-o", "end"], range(0)),
        (["-o", "@1005"], range(5, 10)),
        (["-o", "@1970-01-01T00:00:01.008Z"], range(8, 10)),
        (["-o", "@-1h"], range(0)),
        (["--until", "@1004"], range(4)),
        (["-o", "2", "--until", "@1970-01-01T00:00:01.008Z"], range(2, 8)),
        (["--until", "@1000"], range(0)),
        (["--until", "@-1h"], range(10)),
        (["-c", "3"], range(3)),
        (["-o", "4", "-c", "2"], range(4, 6)),
        (["-o", "10"], range(0)),
        (["--isolation", "read_committed"], range(10)),
    ],
)
def test_consume_from_an_offset(cluster: Cluster, topic: str, args: list[str], numbers: range) -> None:
    lines = "".join(json.dumps({"value": str(n), "timestamp_ms": 1000 + n}) + "\n" for n in range(10))
    assert run_on(cluster, "produce", topic, "-J", stdin=lines).code == 0
    ran = run_on(cluster, "consume", f"{topic}:0", "-e", *args)
    assert (ran.code, values(ran)) == (0, [str(n) for n in numbers])


def test_consume_formats(cluster: Cluster, topic: str) -> None:
    run_on(cluster, "produce", topic, "-K", ":", "-H", "a=1", stdin="k:v\nx\n")
    ran = run_on(cluster, "consume", topic, "-e", "-F", r"%t %p %o %k %K %s %S %h\n", "--null", "NULL")
    assert ran.stdout == f"{topic} 0 0 k 1 v 1 a=1\n{topic} 0 1 NULL -1 x 1 a=1\n"
    assert run_on(cluster, "consume", topic, "-e", "--raw", "-D", ";").stdout == "v;x;"
    table = run_on(cluster, "consume", topic, "-e", "-f", "table")
    first, second = table.stdout.splitlines()
    assert first.startswith(f"{topic}:0 @0  20")
    assert first.endswith("Z  k  v  [a=1]")
    assert second.endswith("Z  (null)  x  [a=1]")
    assert table.stderr == "2 records\n"


def test_chosen_fields_of_json(cluster: Cluster, topic: str) -> None:
    run_on(cluster, "produce", topic, "-K", ":", "-H", "a=1", stdin="k:v\n")
    (line,) = run_on(cluster, "consume", topic, "-e", "--json-fields", "offset, key,nothing").lines()
    assert line == {"offset": 0, "key": "k", "nothing": None}
    (line,) = run_on(cluster, "metadata", topic, "--json-fields", "name,partitions.partition").lines()[-1:]
    assert line == {"name": topic, "partitions.partition": [0]}
    for options in (["--json-fields", ","], ["-f", "table", "--json-fields", "offset"]):
        ran = run_on(cluster, "consume", topic, "-e", *options)
        assert (ran.code, "--json-fields needs names of fields" in ran.stderr) == (2, True)


def test_control_characters_are_escaped(cluster: Cluster, topic: str) -> None:
    run_on(cluster, "produce", topic, stdin="\x1b[31mred\n")
    assert r"\x1b[31mred" in run_on(cluster, "consume", topic, "-e", "-f", "table").stdout


def test_consume_several_topics(cluster: Cluster, topic: str) -> None:
    run_on(cluster, "produce", topic, stdin="a\n")
    ran = run_on(cluster, "consume", topic, "one:0", "-e", "-c", "1")
    assert len(ran.lines()) == 1


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["consume", "orders:9"], 2, "orders has partitions 0 to 2, not 9"),
        (["consume", "orders:x"], 2, "orders:x is not TOPIC or TOPIC:PARTITION"),
        (["consume", "orders", "-o", "x"], 2, "must be beginning, end, a number, -N or @TIME"),
        (["consume", "orders", "-o", "@x"], 2, "@x is not a time"),
        (["consume", "orders", "--until", "7"], 2, "--until 7: must be @TIME"),
        (["consume", "orders", "--until", "@7", "--group", "g"], 2, "--until is without --group"),
        (["consume", "orders", "-F", "%q"], 2, "not a token"),
        (["consume", "orders", "-F", "%s", "--raw"], 2, "give either --raw or -F, not both"),
        (["consume", "nosuch", "-e"], 1, "nosuch"),
        (["consume", "orders", "-X", "foo=1"], 2, "unknown option foo"),
        (["consume", "one", "-o", "99999", "-c", "1"], 1, "OFFSET_OUT_OF_RANGE"),
        (["produce", "orders", "-H", "=x"], 2, "must be NAME=VALUE"),
        (["produce", "orders", "-D", ""], 2, "--delimiter must not be empty"),
        (["produce", "orders", "-X", "acks=7"], 2, "acks is 7"),
    ],
)
def test_wrong_arguments_are_errors(cluster: Cluster, args: list[str], code: int, says: str) -> None:
    ran = run_on(cluster, *args)
    assert (ran.code, says in ran.stderr) == (code, True), ran.stderr


# -- send

LIST_OFFSETS = json.dumps(
    {"replicaId": -1, "topics": [{"name": "one", "partitions": [{"partitionIndex": 0, "timestamp": -1}]}]}
)


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["Metadata", '{"topics": []}'], 0),
        (["Metadata@4", '{"topics": [{"name": "nosuch"}], "allowAutoTopicCreation": false}'], 1),
        (["DescribeCluster", "{}", "--broker", "2"], 0),
        (["DescribeCluster", "{}", "--controller"], 0),
        (["ListOffsets@1", LIST_OFFSETS, "--leader", "one:0"], 0),
        (["Metadata", "{}", "--leader", "one:7"], 1),
        (["Metadata", "{}", "--leader", "nosuch:0"], 1),
        (["Heartbeat@0", '{"groupId": "g", "generationId": 1, "memberId": "m"}', "--coordinator", "g"], 1),
        (["InitProducerId", '{"transactionalId": "t", "transactionTimeoutMs": 1000}', "--transaction", "t"], 0),
        (["Metadata", '{"topic": []}'], 2),
        (["Metadata", "{}", "--broker", "1", "--controller"], 2),
        (["Metadata", "{}", "--leader", "one"], 2),
        (["Produce", '{"acks": 0, "timeoutMs": 1, "topicData": []}'], 2),
        (["Metadata", "nothing"], 2),
    ],
)  # fmt: skip
def test_send(cluster: Cluster, args: list[str], code: int) -> None:
    ran = run_on(cluster, "send", *args)
    assert ran.code == code, ran.stderr
    has_response = re.match(r"\w+ v\d+\n", ran.stderr) is not None and code < 2
    assert (len(ran.lines()) == 1) == has_response
    assert (code == 1 and has_response) == ("see `kwire error" in ran.stderr)


def test_send_prints_the_version_and_reads_stdin(cluster: Cluster) -> None:
    ran = run_on(cluster, "send", "Metadata@4", stdin='{"topics": []}')
    assert (ran.code, ran.stderr) == (0, "Metadata v4\n")
    assert ran.lines()[0]["clusterId"] == "kwire-embedded-cluster"


def test_send_a_version_that_the_broker_lacks() -> None:
    with Cluster(1, api_versions={ApiKey.FIND_COORDINATOR: range(0, 3)}) as narrow:
        ran = run_on(narrow, "send", "FindCoordinator@4", '{"keyType": 0, "coordinatorKeys": ["g"]}')
        assert ran.code == 1
        assert "has FindCoordinator only up to version 2, not 4" in ran.stderr


def test_over_ipv6() -> None:
    with Cluster(2, host="::1", topics={"t": 1}) as six:
        assert all(address.startswith("[::1]:") for address in six.bootstrap.split(","))
        for bootstrap in (six.bootstrap, six.bootstrap.split(",")[1]):
            shown = run("metadata", "-b", bootstrap, "-f", "table").stdout
            assert all(address in shown for address in six.bootstrap.split(","))
        assert run("produce", "t", "-b", six.bootstrap, stdin="one\n").code == 0
        assert run("consume", "t", "-e", "-b", six.bootstrap, "-F", "%s").stdout == "one"
        assert run("versions", "-b", six.bootstrap).code == 0
        address = six.bootstrap.split(",")[0]
    ran = run("metadata", "-b", address, "--timeout", "0.5")
    assert ran.code == 3
    assert f"cannot connect (Connection refused) [broker {address}]" in ran.stderr


# -- the log


@pytest.mark.parametrize("args", [["-v", "metadata"], ["metadata", "-v"]])
def test_connections_are_logged(cluster: Cluster, args: list[str]) -> None:
    ran = run_on(cluster, *args)
    assert re.search(r"^\S+ \S+ INFO kwire\.cluster: connected to broker 127\.0\.0\.1:\d+$", ran.stderr, re.MULTILINE)
    assert "INFO kwire.cluster: the connection to broker" in ran.stderr
    assert "DEBUG" not in ran.stderr
    assert len(ran.lines()) > 1
    assert run_on(cluster, "metadata").stderr == ""  # each run has a log of its own


@pytest.mark.parametrize("args", [["-vv", "metadata"], ["metadata", "-vv"], ["-v", "metadata", "-vv"]])
def test_requests_are_logged(cluster: Cluster, args: list[str]) -> None:
    ran = run_on(cluster, *args)
    assert re.search(r"DEBUG kwire.cluster.requests: to broker .*: Metadata v\d+ \(correlation id 1\)", ran.stderr)
    assert re.search(r"from broker .*: response to Metadata .*, \d+ bytes, \d+\.\d ms$", ran.stderr, re.MULTILINE)


def test_verbose_without_a_connection() -> None:
    assert run("-v", "error", "74").code == 0


def test_an_outage_is_reported_while_the_command_waits() -> None:
    with closing(socket.socket()) as unused:
        unused.bind(("127.0.0.1", 0))
        args = ["metadata", "-b", f"127.0.0.1:{unused.getsockname()[1]}", "--timeout", "0.5"]
        assert "WARNING kwire.cluster: no broker can be reached" in run("-v", *args).stderr


# -- no connection


def test_a_port_where_nothing_listens() -> None:
    with closing(socket.socket()) as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        for command in (["metadata"], ["versions"], ["consume", "t"], ["produce", "t"]):
            ran = run(*command, "-b", address, "--timeout", "0.5")
            assert ran.code == 3, (command, ran.stderr)
            assert "Connection refused" in ran.stderr
            assert "nothing listens there" in ran.stderr


def test_a_wrong_password() -> None:
    with Cluster(1, sasl={"user": "right"}, topics={"t": 1}) as guarded:
        args = ["metadata", "-b", guarded.bootstrap, "--timeout", "3", "--username", "user"]
        assert run(*args, "--password", "right").code == 0
        assert run(*args, "--password", "right", "--sasl-mechanism", "PLAIN").code == 0
        ran = run(*args, "--password", "wrong")
        assert ran.code == 3
        assert "wrong" not in ran.stdout
        assert run("metadata", "-b", guarded.bootstrap, "--timeout", "0.5").code == 3


@pytest.mark.parametrize("address", ["", "x:y", "a:b:c", "h:99999"])
def test_an_invalid_address(address: str) -> None:
    assert run("metadata", "-b", address, "--timeout", "0.5").code == 2


@pytest.mark.parametrize(
    ("chunks", "delimiter", "pieces"),
    [
        ([b"a\nb", b"c\n"], b"\n", [b"a", b"bc"]),
        ([b"a-", b"-b"], b"--", [b"a", b"b"]),
        ([b"", b"x"], b"\n", []),  # an empty chunk is the end
        ([b"\n"], b"\n", [b""]),
        ([b"aa", b"ax", b"aay"], b"aa", [b"", b"ax", b"y"]),  # a delimiter that overlaps itself
        ([b"aa", b"a"], b"aa", [b"", b"a"]),
    ],
)
def test_records_of_a_stream(chunks: list[bytes], delimiter: bytes, pieces: list[bytes]) -> None:
    class Chunks:
        def read1(self, size: int) -> bytes:
            return chunks.pop(0) if chunks else b""

    blocks = list(whole_records(Chunks(), delimiter))
    assert [one for block in blocks for one in split_records(block, delimiter)] == pieces
    assert all(block.endswith(delimiter) for block in blocks[:-1])


def test_the_first_block_of_a_stream_is_small() -> None:
    sizes = list(map(len, whole_records(io.BytesIO(b"0123456\n" * 400_000), b"\n")))
    assert sizes[0] == 1 << 16
    assert sizes[1] == 1 << 20
    assert sum(sizes) == 3_200_000


def test_an_offset_beyond_the_end_is_an_error(cluster: Cluster, topic: str) -> None:
    run_on(cluster, "produce", topic, stdin="a\nb\n")
    ran = run_on(cluster, "consume", topic, "-e", "-o", "100")
    assert (ran.code, ran.stdout) == (1, "")
    assert "the partition ends at offset 2, before 100" in ran.stderr
    assert f"topic {topic}, partition 0" in ran.stderr
    at_the_end = run_on(cluster, "consume", topic, "-e", "-o", "2")
    assert (at_the_end.code, at_the_end.stdout) == (0, "")


def test_an_offset_that_only_some_partitions_have(cluster: Cluster) -> None:
    cluster.create_topic("uneven", 2)
    run_on(cluster, "produce", "uneven", "-p", "0", stdin="a\nb\nc\n")
    ran = run_on(cluster, "consume", "uneven", "-e", "-o", "2", "-F", "%s\\n")
    assert (ran.code, ran.stdout) == (0, "c\n")


@pytest.mark.parametrize("shows", [True, False])
def test_send_shows_a_token_only_on_request(shows: bool) -> None:
    wants = '{"renewers": [], "maxLifetimeMs": -1}'
    with Cluster(1, sasl={"alice": "a secret"}) as secured:
        environment = {"KWIRE_BOOTSTRAP": secured.bootstrap, "KWIRE_USERNAME": "alice", "KWIRE_PASSWORD": "a secret"}
        options = ["--show-secrets"] if shows else []
        ran = run("send", "CreateDelegationToken", wants, *options, "-f", "json", env=environment)
    (response,) = ran.lines()
    assert ran.code == 0
    assert response["tokenId"]
    assert (b64decode(response["hmac"]).strip(b"*") != b"") is shows
