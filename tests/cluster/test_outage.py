"""When readers hear that no broker can be reached: once per outage, and not before it has lasted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kwire.cluster import Snapshot
from kwire.cluster.outage import Outage
from kwire.errors import DisconnectedError, KwireError
from tests.cluster.snapshots import snapshot

KNOWN = snapshot({"t": [(1, 0)]})


@dataclass
class View:
    """What the outage sees of the cluster."""

    snapshot: Snapshot = KNOWN
    connection_error: KwireError | None = None
    has_fatal_error: bool = False


@dataclass
class World:
    view: View = field(default_factory=View)
    outage: Outage = field(default_factory=lambda: Outage(30_000))
    wakes: list[float] = field(default_factory=list)

    def fail(self, *, is_fatal: bool = False) -> KwireError:
        error = DisconnectedError("refused", broker="1 at host-1:9092")
        self.view.connection_error, self.view.has_fatal_error = error, is_fatal
        return error

    def at(self, now: float) -> KwireError | None:
        self.wakes.clear()
        view: Any = self.view
        return self.outage.to_report(now, view, self.wakes.append)


def test_a_cluster_that_was_reached_has_the_request_timeout() -> None:
    world = World()
    error = world.fail()
    assert world.at(100.0) is None
    assert world.wakes == [130.0]
    assert world.at(129.9) is None
    assert world.at(130.0) is error


def test_a_cluster_that_was_never_reached_is_reported_after_two_seconds() -> None:
    world = World(View(Snapshot()))
    error = world.fail()
    assert world.at(100.0) is None
    assert world.at(101.9) is None
    assert world.at(102.0) is error


def test_what_no_retry_mends_is_reported_at_once() -> None:
    world = World()
    assert world.at(100.0) is None
    error = world.fail(is_fatal=True)
    assert world.at(100.0) is error


def test_an_outage_is_reported_once() -> None:
    world = World()
    world.fail()
    world.at(100.0)
    assert world.at(130.0) is not None
    assert world.at(130.0) is None
    assert world.at(500.0) is None
    assert world.wakes == []


def test_the_next_outage_is_another_one() -> None:
    world = World()
    world.fail()
    world.at(100.0)
    world.at(130.0)
    world.view.connection_error = None
    assert world.at(131.0) is None
    error = world.fail()
    assert world.at(140.0) is None
    assert world.wakes == [170.0]
    assert world.at(170.0) is error
