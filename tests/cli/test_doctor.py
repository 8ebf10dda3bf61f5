"""`kwire doctor`: output, exit codes, property files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kwire.broker import Cluster
from kwire.doctor import CHECKS
from tests.cli.running import run
from tests.net.harness import closed_port

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(2, topics={"orders": 4}) as running:
        yield running


def test_a_table(cluster: Cluster) -> None:
    ran = run("doctor", "-b", cluster.bootstrap, "--topic", "orders", "-f", "table")
    assert (ran.code, ran.stderr) == (0, "")
    *lines, summary = ran.stdout.splitlines()
    assert lines[0].startswith("ok      D01 name            127.0.0.1")
    assert not any(line.startswith("skipped") for line in lines)
    assert " ok, 0 warnings, 0 failed, " in summary
    verbose = run("doctor", "-b", cluster.bootstrap, "-f", "table", "-v").stdout
    assert "skipped D24 topic           no topic given (--topic)" in verbose


def test_what_failed_has_cause_and_remedy(cluster: Cluster) -> None:
    ran = run("doctor", "-b", cluster.bootstrap, "--topic", "ordres", "-f", "table")
    assert ran.code == 1
    assert "FAIL    D24 topic           there is no topic ordres, or this user may not describe it" in ran.stdout
    assert "do: create it (kwire topics create ordres), correct the name, or grant Describe" in ran.stdout


def test_json(cluster: Cluster) -> None:
    ran = run("doctor", "-b", cluster.bootstrap, "--json", "-f", "table")
    *results, counts = ran.lines()
    assert [result["check"] for result in results] == list(CHECKS)
    assert sum(counts["counts"].values()) == 30
    assert counts["seconds"] > 0
    assert results[23]["findings"] == [{"status": "skipped", "text": "no topic given (--topic)", "remedy": None}]


def test_junit(cluster: Cluster) -> None:
    ran = run("doctor", "-b", cluster.bootstrap, "--topic", "a<b&c", "--junit")
    assert ran.code == 1
    suite = ElementTree.fromstring(ran.stdout)
    assert (suite.get("tests"), suite.get("failures")) == ("30", "1")
    (failure,) = suite.iter("failure")
    assert "a<b&c" in str(failure.get("message"))


def test_nothing_answers() -> None:
    host, port = closed_port()
    assert run("doctor", "-b", f"{host}:{port}", "--timeout", "1").code == 3


def test_a_property_file(cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(f"bootstrap.servers={cluster.bootstrap}\ngroup.id=nobody\n")
    ran = run("doctor", "--from-config", str(path), "-f", "table")
    assert ran.code == 0
    assert "there is no group nobody" in ran.stdout
    other = run("doctor", "--from-config", str(path), "--group", "else", "-f", "table")
    assert "there is no group else" in other.stdout


def test_sasl_of_a_property_file(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    with Cluster(1, sasl={"alice": "secret"}) as secured:
        path.write_text(
            f"bootstrap.servers={secured.bootstrap}\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            'sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" \\\n'
            '  password="secret";\n'
        )
        ran = run("doctor", "--from-config", str(path), "-f", "table")
    assert ran.code == 0
    assert "PLAIN with user 'alice'" in ran.stdout
    assert "secret" not in ran.stdout


def test_the_documents_have_every_check() -> None:
    page = (ROOT / "docs" / "howto" / "doctor.md").read_text()
    for one in CHECKS.values():
        assert f"| {one.id} | {one.name} | {one.title} | {one.needs or '-'} |" in page


@pytest.mark.parametrize(
    ("options", "text"), [(["--json", "--junit"], "one of --json and --junit"), (["--probe"], "it needs --topic")]
)
def test_options_that_do_not_fit(options: list[str], text: str) -> None:
    ran = run("doctor", "-b", "127.0.0.1:1", *options)
    assert (ran.code, ran.stdout) == (2, "")
    assert text in ran.stderr
