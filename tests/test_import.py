"""`import kwire` is fast: it imports no message, socket or thread module; names are imported on first use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import kwire
from kwire.wire import accel

pytestmark = pytest.mark.programs

PROBE = "import sys; before = set(sys.modules); import kwire; print(*sorted(set(sys.modules) - before))"


def test_importing_kwire_imports_few_modules() -> None:
    loaded = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True).stdout.split()
    ours = [name for name in loaded if name.startswith("kwire")]
    assert ours == ["kwire", "kwire.version"]
    assert not {"asyncio", "ssl", "socket", "threading", "json"} & set(loaded)


FRAME = b"\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff"  # ApiVersions v0


def test_the_clients_for_threads_import_neither_asyncio_nor_tls() -> None:
    """A client would take an eighth longer to import."""
    program = "import sys; from kwire import Admin, Consumer, Producer, ShareConsumer; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", program], text=True).split()
    assert not {"asyncio", "ssl", "kwire.net.tls_filter"} & set(loaded)


def imported_by(*arguments: str, reads: bytes) -> set[str]:
    """Return the modules that a command of `kwire` imports from its start to its end."""
    command = [sys.executable, "-X", "importtime", "-m", "kwire", *arguments]
    done = subprocess.run(command, input=reads, capture_output=True, check=True)
    return {line.rpartition("|")[2].strip() for line in done.stderr.decode().splitlines() if "|" in line}


def test_decoding_a_frame_imports_nothing_for_networks_or_captures() -> None:
    """Each of these costs a start-up some milliseconds; `tools/start-up` measures them."""
    unwanted = {"asyncio", "ssl", "socket", "logging", "subprocess", "concurrent.futures", "rich", "kwire.net"}
    unwanted |= {"kwire.option_checks", "kwire.capture.pairing", "kwire.capture.tls", "kwire.session", "kwire.cluster"}
    unwanted |= {"kwire.records", "kwire.protocol.messages.consumer_protocol"}
    loaded = imported_by("decode", reads=FRAME)
    assert "kwire.capture.decoded_frame" in loaded
    assert not unwanted & loaded


@pytest.mark.parametrize("arguments", [("produce", "t"), ("metadata", "t")])
def test_a_command_without_tls_and_sasl_imports_neither(arguments: tuple[str, ...]) -> None:
    unwanted = {"asyncio", "ssl", "subprocess", "rich", "kwire.session.sasl.client", "kwire.cluster.login"}
    unwanted |= {"kwire.consumer", "kwire.admin", "kwire.cluster.asyncio_waiting", "kwire.net.tls_filter"}
    with kwire.broker.Cluster(brokers=1, topics={"t": 1}) as cluster:
        loaded = imported_by(*arguments, "-b", cluster.bootstrap, reads=b"one\ntwo\n")
        assert "kwire.cluster.loop" in loaded
        assert not unwanted & loaded


def test_every_public_name_exists() -> None:
    for name in kwire.__all__:
        assert getattr(kwire, name) is not None
    assert set(kwire.__all__) <= set(dir(kwire))


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(kwire, "Produce")


@pytest.mark.parametrize("name", sorted(vars(kwire)["_PACKAGES"] - {"spark"}))
def test_packages_need_no_import_of_their_own(name: str) -> None:
    program = f"import kwire; print(kwire.{name}.__name__)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"kwire.{name}\n", "")
    assert name in dir(kwire)


def test_every_package_is_named() -> None:
    folders = {path.parent.name for path in Path(kwire.__file__).parent.glob("*/__init__.py")}
    assert folders - {"wire"} | {"errors"} == set(vars(kwire)["_PACKAGES"])


def test_implementation() -> None:
    assert kwire.implementation() == accel.IMPLEMENTATION


def test_reprs_name_the_brokers() -> None:
    with kwire.broker.Cluster(brokers=1, topics={"t": 1}) as cluster:
        with kwire.Consumer(cluster.bootstrap, client_id="reader") as consumer:
            consumer.assign([("t", 0, 0)])
            where = f"of {cluster.bootstrap}"
            assert repr(consumer) == f"<kwire.Consumer 'reader' {where}, partitions assigned: 1>"
        assert repr(consumer) == f"<kwire.Consumer 'reader' {where}, partitions assigned: 1, closed>"
        with kwire.Admin(cluster.bootstrap) as admin:
            assert repr(admin) == f"<kwire.Admin 'kwire' {where}>"
        assert repr(cluster) == f"<kwire.broker.Cluster at {cluster.bootstrap}>"
    assert repr(cluster).endswith(", closed>")
