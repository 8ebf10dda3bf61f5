"""Fixtures of the live tests: `backend` runs a test on every cluster, `secure` has the listeners with TLS and SASL."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import pytest
from brokers.cluster import KafkaCluster
from brokers.configuration import MAX_MESSAGE_BYTES
from brokers.kdc import Kdc, missing_programs
from chaos_runs.run import cluster_for
from chaos_runs.scenarios import SHORT

from tests.conftest import missing
from tests.live import backends
from tests.live.backends import Backend, create_topic
from tests.token_server import Issuer

_numbers = itertools.count(1)
_SHARED = {"backend", "secure", "secure_3_9"}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests of this folder; pytest calls this for no other."""
    item.add_marker(pytest.mark.live)
    if _uses(item, _SHARED):
        item.add_marker(pytest.mark.shared_brokers)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the tests with three brokers follow each other, so that these do not run idle for minutes."""
    items.sort(key=lambda item: _uses(item, {"three_brokers"}))


def _uses(item: pytest.Item, fixtures: set[str]) -> bool:
    return isinstance(item, pytest.Function) and not fixtures.isdisjoint(item.fixturenames)


@pytest.fixture(scope="session", autouse=True)
def _java_and_maven() -> None:
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            missing(f"no {program} on PATH, for real brokers: `tools/env java maven` says how to get it")


@pytest.fixture(scope="session")
def _backend_named() -> Iterator[Callable[[str], Backend]]:
    """Start a cluster at its first use; it runs until the last test."""
    with ExitStack() as running:
        yield cache(lambda name: running.enter_context(backends.running(name)))


@pytest.fixture(params=backends.NAMES)
def backend(request: pytest.FixtureRequest, _backend_named: Callable[[str], Backend]) -> Backend:
    """Return each cluster in turn; a test may choose some by parametrizing `backend` indirectly."""
    return _backend_named(request.param)


def _lacking_for_kerberos() -> list[str]:
    return missing_programs() + ([] if importlib.util.find_spec("gssapi") else ["the package gssapi"])


@pytest.fixture(scope="session")
def kdc() -> Iterator[Kdc]:
    """Run a key distribution centre of Kerberos."""
    if lacking := _lacking_for_kerberos():
        missing(f"no {', '.join(lacking)}: `tools/env kerberos` installs them")
    with Kdc() as running:
        yield running


@pytest.fixture(scope="session")
def issuer() -> Issuer:
    """Return who signs the tokens for the secured brokers."""
    return Issuer()


@pytest.fixture(scope="session")
def jwks_url(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> str:
    keys = tmp_path_factory.mktemp("issuer") / "jwks.json"
    keys.write_text(json.dumps(issuer.jwks()))
    return keys.as_uri()


@pytest.fixture(scope="session")
def secure(request: pytest.FixtureRequest, jwks_url: str) -> Iterator[KafkaCluster]:
    """Run a real broker with every kind of listener, without automatic topic creation."""
    centre = None if _lacking_for_kerberos() else request.getfixturevalue("kdc")
    settings = {"auto.create.topics.enable": "false", "delegation.token.secret.key": "any"}
    with KafkaCluster(tls=True, sasl=True, jwks_url=jwks_url, kdc=centre, settings=settings) as cluster:
        create_topic(cluster.bootstrap, "secured")
        yield cluster


@pytest.fixture(scope="session")
def secure_3_9(request: pytest.FixtureRequest, jwks_url: str) -> Iterator[KafkaCluster]:
    """Run a broker of the last version with a 3 in front, with every kind of listener."""
    centre = None if _lacking_for_kerberos() else request.getfixturevalue("kdc")
    settings = {"delegation.token.secret.key": "any"}
    with KafkaCluster("3.9.1", tls=True, sasl=True, jwks_url=jwks_url, kdc=centre, settings=settings) as cluster:
        create_topic(cluster.bootstrap, "secured")
        yield cluster


@pytest.fixture(scope="package")
def three_brokers() -> Iterator[KafkaCluster]:
    """Run three real brokers that a test may stop; each test finds all of them running and leaves them running."""
    with cluster_for(SHORT) as cluster:
        yield cluster


@pytest.fixture
def topic_name() -> str:
    """Return a name that no other test uses, not even on a cluster that outlives the run."""
    return f"kwire-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def make_topic(backend: Backend, topic_name: str) -> Callable[[int], str]:
    def make(partitions: int) -> str:
        backend.create_topic(topic_name, partitions)
        return topic_name

    return make


@pytest.fixture(scope="session")
def largest_value() -> bytes:
    """Return the largest value of a record that fits into a broker's largest batch in every format."""
    return os.urandom(MAX_MESSAGE_BYTES - 200)
