"""An hour of authentications that end after ten seconds, under load on virtual time (KIP-368).

No record is lost or out of order, and no connection ends: each is renewed in time.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from kwire.cluster import ClientConfig
from kwire.producer.options import ProducerSettings
from kwire.records import decode_batches
from kwire.session import Sasl, SaslServer
from kwire.session.sasl import OAuthValidator
from kwire.session.sasl.oauth import unsecured_jwt
from kwire.simulation.clients import SimulatedProducer
from kwire.simulation.cluster import SimulatedCluster
from kwire.simulation.history import History, RecordId
from kwire.simulation.network import Network
from kwire.simulation.world import Trace, World

HOUR = 3_600.0
SECONDS_BETWEEN_RECORDS = 1.0


class AtOnce:
    """Runs what may block on the loop's thread: virtual time stands still meanwhile."""

    def __init__(self, name: str) -> None:
        pass

    def submit(self, call: Callable[[], object]) -> None:
        call()


class Tokens:
    """A source of tokens that live 12 to 40 s, and that fails for three seconds in each minute."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.count = 0

    def __call__(self) -> str:
        now = self.world.time_ms() / 1000
        if now % 60 < 3:
            raise OSError("the token server restarts")
        self.count += 1
        return unsecured_jwt({"sub": "alice", "iat": now, "exp": now + 12 + self.count % 5 * 7})


def run_hour(sasl: Callable[[World], Sasl], server: SaslServer) -> tuple[int, int]:
    """Return how often connections were opened, and how often clients authenticated."""
    world, history = World(time_ms=1_700_000_010_000), History()
    net = Network(world, Random(1), Trace())
    authenticated = 0
    exchange = server.exchange

    def counted(mechanism: str) -> object:
        nonlocal authenticated
        authenticated += 1
        return exchange(mechanism)

    server.exchange = counted  # type: ignore[method-assign,assignment]
    cluster = SimulatedCluster(net, history, Random(2), brokers=3, sasl=server)
    cluster.create_topic("t", 3)
    config = ClientConfig(cluster.bootstrap, client_id="p", sasl=sasl(world), metadata_max_age_ms=20_000)
    settings = ProducerSettings(linger_ms=5)
    producer = SimulatedProducer(net, "p", history, Random(3), config, settings)

    def send(now: float) -> None:
        producer.send("t", partition=producer._numbers.get("t", 0) % 3, size=50)
        if now < HOUR:
            world.at(now + SECONDS_BETWEEN_RECORDS, send)

    world.at(0.0, send)
    world.run(HOUR + 60)
    assert len(history.sent) > HOUR / SECONDS_BETWEEN_RECORDS * 0.99
    assert all(sent.acknowledged is not None for sent in history.sent.values())
    numbers: list[int] = []
    for partition in range(3):
        log = cluster.state.partition("t", partition).log
        batches = [batch for stored in log for batch in decode_batches(stored.data)]
        found = [RecordId.of(record.value) for batch in batches for record in batch.records()]
        in_partition = [id.number for id in found if id is not None]
        assert in_partition == sorted(in_partition)
        numbers += in_partition
    assert sorted(numbers) == list(range(len(history.sent)))
    metrics = producer.event_loop.metrics()
    return sum(broker.connects for broker in metrics.brokers.values()), authenticated


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_hour_of_sessions_of_ten_seconds() -> None:
    server = SaslServer({"alice": "pw"}, session_lifetime_ms=10_000)
    connects, authenticated = run_hour(lambda world: Sasl("PLAIN", "alice", "pw"), server)
    assert connects <= 4
    assert authenticated > 3 * HOUR / 10


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_hour_of_tokens_that_live_for_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kwire.cluster.connections.DaemonThreads", AtOnce)
    server = SaslServer({}, oauth=OAuthValidator(allow_unsecured=True))
    connects, authenticated = run_hour(lambda world: Sasl.oauth(Tokens(world)), server)
    assert connects <= 4
    assert authenticated > 3 * HOUR / 40
