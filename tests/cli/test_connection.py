"""Connection options: their meaning, the sources of passwords, and that no password is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from kwire.cli.connection import ConnectionOptions, connection_options
from kwire.net import Tls
from kwire.session import Sasl


def parsed(*args: str, env: dict[str, str] | None = None, stdin: str = "") -> tuple[ConnectionOptions | None, str]:
    """Return the ConnectionOptions that the options make, or None and the error."""
    made: list[ConnectionOptions] = []

    @click.command()
    @connection_options
    def probe(connection: ConnectionOptions) -> None:
        made.append(connection)

    hidden = dict.fromkeys(("KWIRE_BOOTSTRAP", "KWIRE_USERNAME", "KWIRE_PASSWORD", "KWIRE_KEY_PASSWORD"))
    result = CliRunner().invoke(probe, list(args), env={**hidden, **(env or {})}, input=stdin)
    if made:
        assert result.exit_code == 0
        return made[0], result.output
    said = str(result.exception) if not isinstance(result.exception, SystemExit) else result.output
    return None, said


def connection(*args: str, env: dict[str, str] | None = None) -> ConnectionOptions:
    made, said = parsed(*args, env=env)
    assert made is not None, said
    return made


def test_bootstrap_from_option_or_environment() -> None:
    env = {"KWIRE_BOOTSTRAP": "env:9092"}
    assert connection(env=env).bootstrap == "env:9092"
    assert connection("-b", "here:9092", env=env).bootstrap == "here:9092"
    assert "set KWIRE_BOOTSTRAP" in parsed()[1]


def test_client_options() -> None:
    options = connection("-b", "h:1", "--timeout", "5", "-X", "linger_ms=50", "-X", "rack=eu", "-X", "check_crc=false")
    assert options.client_options() == {
        "bootstrap": "h:1", "tls": None, "sasl": None, "request_timeout_ms": 4000, "connect_timeout_ms": 4000,
        "linger_ms": 50, "rack": "eu", "check_crc": False,
    }  # fmt: skip
    assert connection("-b", "h:1", "--timeout", "0.5").config().request_timeout_ms == 400


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    contents = {"ca": "ca", "cert": "cert", "key": "key", "password": "secret\nrest", "empty": ""}
    for name, text in contents.items():
        (tmp_path / name).write_text(text)
    return {name: str(tmp_path / name) for name in contents}


def test_tls(files: dict[str, str]) -> None:
    base = ["-b", "h:1"]
    assert connection(*base).tls is None
    assert connection(*base, "--tls").tls is True
    assert connection(*base, "--cafile", files["ca"]).tls == Tls(ca_file=files["ca"])
    assert connection(*base, "--cert", files["cert"], "--key", files["key"]).tls == Tls(
        cert_file=files["cert"], key_file=files["key"]
    )
    assert connection(*base, "--insecure").tls == Tls(verify=False, check_hostname=False)
    assert "--key needs --cert" in parsed(*base, "--key", files["key"])[1]
    assert "nosuch" in parsed(*base, "--cafile", "nosuch")[1]


def test_an_encrypted_key_prompts_for_its_password(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----")
    made = connection("-b", "h:1", "--cert", str(key), env={"KWIRE_KEY_PASSWORD": "s"})
    assert isinstance(made.tls, Tls)
    assert made.tls.key_password == "s"
    assert "set KWIRE_KEY_PASSWORD" in parsed("-b", "h:1", "--cert", str(key))[1]


@pytest.mark.parametrize(
    ("args", "env", "sasl"),
    [
        (["--username", "u", "--password", "p"], {}, Sasl("SCRAM-SHA-512", "u", "p")),
        (["--username", "u", "--password", "p", "--tls"], {}, Sasl("PLAIN", "u", "p")),
        (["--username", "u", "--sasl-mechanism", "plain"], {"KWIRE_PASSWORD": "p"}, Sasl("PLAIN", "u", "p")),
        ([], {"KWIRE_USERNAME": "u", "KWIRE_PASSWORD": "p"}, Sasl("SCRAM-SHA-512", "u", "p")),
        ([], {"KWIRE_PASSWORD": "p"}, None),
    ],
)  # fmt: skip
def test_sasl(args: list[str], env: dict[str, str], sasl: Sasl | None) -> None:
    assert connection("-b", "h:1", *args, env=env).sasl == sasl


def test_password_from_a_file(files: dict[str, str]) -> None:
    assert connection("-b", "h:1", "--username", "u", "--password-file", files["password"]).sasl == Sasl(
        "SCRAM-SHA-512", "u", "secret"
    )
    assert "is empty" in parsed("-b", "h:1", "--username", "u", "--password-file", files["empty"])[1]


@pytest.mark.parametrize(
    ("content", "password"),
    [
        (b"\xef\xbb\xbfp\xc3\xa4 \r\nrest", "pä "),
        ("a\x85b\u2028c".encode(), "a\x85b\u2028c"),
        (b"\nrest", None),
        (b"s3cret\xe9\n", None),
    ],
)
def test_the_first_line_of_a_password_file(tmp_path: Path, content: bytes, password: str | None) -> None:
    path = tmp_path / "password"
    path.write_bytes(content)
    made, said = parsed("-b", "h:1", "--username", "u", "--password-file", str(path))
    assert (made and made.sasl) == (password and Sasl("SCRAM-SHA-512", "u", password))
    assert password is not None or "is empty" in said or "is not UTF-8" in said
    assert "s3cret" not in said


def test_a_password_on_the_command_line_is_not_passed_over(files: dict[str, str]) -> None:
    assert "needs --username" in parsed("-b", "h:1", "--password", "p")[1]
    both = parsed("-b", "h:1", "--username", "u", "--password", "p", "--password-file", files["password"])
    assert "leave one out" in both[1]
    assert "leave out --password" in parsed("-b", "h:1", "--command-config", files["empty"], "--password", "p")[1]
    assert connection("-b", "h:1", "--command-config", files["empty"], env={"KWIRE_PASSWORD": "p"}).sasl is None


def test_the_password_prompt_needs_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe at stdin has data, so no password is read from it. The error says what to do instead."""
    made, said = parsed("-b", "h:1", "--username", "u", stdin="data")
    assert made is None
    assert "set KWIRE_PASSWORD or give --password-file" in said

    prompts: list[tuple[Any, ...]] = []

    def prompt(*args: Any, **options: Any) -> str:
        prompts.append((*args, options))
        return "typed"

    monkeypatch.setattr("kwire.cli.connection.is_terminal", lambda: True)
    monkeypatch.setattr(click, "prompt", prompt)
    assert connection("-b", "h:1", "--username", "u").sasl == Sasl("SCRAM-SHA-512", "u", "typed")
    assert prompts == [("Password of u", {"hide_input": True, "err": True})]


def test_a_password_is_never_shown() -> None:
    made = connection("-b", "h:1", "--username", "u", "--password", "hunter2")
    assert "hunter2" not in repr(made)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--sasl-mechanism", "PLAIN"], "SASL needs --username"),
        (["-X", "linger_ms"], "must be NAME=VALUE"),
        (["--timeout", "0"], "timeout"),
        (["--sasl-mechanism", "GSSAPI"], "GSSAPI"),
    ],
)
def test_wrong_options_are_errors(args: list[str], says: str) -> None:
    assert says in parsed("-b", "h:1", *args)[1]
