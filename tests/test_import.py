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
