"""Profiles of connections, and the help as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kwire.broker import Cluster
from tests.cli.running import Ran, run


@pytest.fixture
def config(tmp_path: Path) -> Path:
    folder = tmp_path / "kwire"
    folder.mkdir()
    return folder / "config.toml"


def run_in(config: Path, *args: str, **env: str) -> Ran:
    return run(*args, env={"XDG_CONFIG_HOME": str(config.parent.parent), **env})


def test_a_profile_connects(config: Path) -> None:
    (config.parent / "password").write_text("hunter2-hunter2\n")
    with Cluster(1, topics={"t": 1}, sasl={"alice": "hunter2-hunter2"}) as cluster:
        config.write_text(
            f'[test]\nbootstrap = "{cluster.bootstrap}"\nusername = "alice"\npassword_file = "password"\ntimeout = 5\n'
            '[test.options]\nclient_id = "by-profile"\n'
        )
        for ran in (
            run_in(config, "topics", "list", "--profile", "test"),
            run_in(config, "topics", "list", KWIRE_PROFILE="test"),
            run_in(config, "topics", "list", "--profile", "test", KWIRE_BOOTSTRAP="127.0.0.1:1"),
        ):
            assert ran.code == 0, ran.stderr
            assert ran.stdout
        ran = run_in(config, "topics", "list", "--profile", "test", "--password", "typed-in-its-place")
        assert "rejected SASL" in ran.stderr


def test_what_comes_first(config: Path) -> None:
    """The command line, then a profile that it names, then the environment, then a profile that that names."""
    config.write_text('[p]\nbootstrap = "127.0.0.1:2"\ntimeout = 1\n')
    ran = run_in(config, "metadata", "--profile", "p", "-b", "127.0.0.1:3")
    assert (ran.code, "127.0.0.1:3" in ran.stderr) == (3, True), ran.stderr
    ran = run_in(config, "metadata", "--profile", "p", KWIRE_BOOTSTRAP="127.0.0.1:4")
    assert "127.0.0.1:2" in ran.stderr
    ran = run_in(config, "metadata", "--timeout", "1", KWIRE_PROFILE="p", KWIRE_BOOTSTRAP="127.0.0.1:4")
    assert "127.0.0.1:4" in ran.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "config.toml does not exist"),
        ("[p", "cannot be read"),
        ("[pp]\nbootstrap = 'a:1'\n", "did you mean pp?"),
        ("[p]\nbootstap = 'a:1'\n", "did you mean bootstrap?"),
        ("[p]\nbootstrap = 1\n", "give a text"),
        ("[p]\ntls = 'yes'\n", "give true or false"),
        ("[p]\npassword = 'hunter2'\n", "give password_file"),
        ("[p]\ncafile = 'nowhere.pem'\n", "there is no file"),
    ],
)
def test_wrong_profiles(config: Path, text: str | None, message: str) -> None:
    if text is not None:
        config.write_text(text)
    ran = run_in(config, "metadata", "--profile", "p")
    assert ran.code == 2
    assert message in ran.stderr
    assert "hunter2" not in ran.stderr


def test_help_as_json() -> None:
    ran = run("--help-json")
    assert ran.code == 0
    found = json.loads(ran.stdout)
    commands = found["commands"]
    assert {"tap", "lint", "groups", "timeline"} <= commands.keys()
    options = {option for param in commands["timeline"]["params"] for option in param["opts"]}
    assert {"-o", "--ascii", "--where"} <= options
    assert "lag" in commands["groups"]["commands"]
