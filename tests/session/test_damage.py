"""Frames that are damaged at random: a session takes them or breaks, and never raises anything else."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwire.protocol import ApiKey
from kwire.protocol.messages.metadata import MetadataRequest
from kwire.session import ConnectionBroken, Sasl, SaslServer, Session, State
from tests.session.pipe import metadata

APIS = {ApiKey.METADATA: MetadataRequest.VERSIONS}
STAGES = 5  # frames each way until the first request is answered: ApiVersions, SaslHandshake, two of SCRAM, Metadata


def pair() -> tuple[Session, Session]:
    client = Session.client("1 at db:9092", sasl=Sasl("SCRAM-SHA-256", "alice", "secret"))
    broker = Session.broker(apis=APIS, sasl=SaslServer({"alice": "secret"}))
    client.send(MetadataRequest(topics=[]), 0.0)
    client.start(0.0)
    return client, broker


def forward(client: Session, broker: Session) -> bytes:
    """One frame to the broker; answers the one that comes back."""
    (parts,) = client.frames()
    for event in broker.receive(b"".join(parts), 0.0):
        broker.respond(event.tag, metadata())  # type: ignore[union-attr]
    (parts,) = broker.frames()
    return b"".join(parts)


@st.composite
def damages(draw: st.DrawFn) -> tuple[int, int, bytes]:
    """(how many bytes stay at the front, how many go, what comes in their place)"""
    return draw(st.integers(0, 200)), draw(st.integers(0, 50)), draw(st.binary(max_size=20))


def damaged(frame: bytes, damage: tuple[int, int, bytes]) -> bytes:
    keep, drop, insert = damage
    return frame[:keep] + insert + frame[keep + drop :]


def survives(session: Session, frame: bytes) -> None:
    events = session.receive(frame, 0.0)
    assert (session.state is State.BROKEN) == any(isinstance(event, ConnectionBroken) for event in events)
    session.frames()
    session.deadline()


@settings(max_examples=150, deadline=None)
@given(damages())
@pytest.mark.parametrize("stage", range(STAGES))
def test_a_client(stage: int, damage: tuple[int, int, bytes]) -> None:
    client, broker = pair()
    for _ in range(stage):
        client.receive(forward(client, broker), 0.0)
    survives(client, damaged(forward(client, broker), damage))


@settings(max_examples=150, deadline=None)
@given(damages())
@pytest.mark.parametrize("stage", range(STAGES))
def test_a_broker(stage: int, damage: tuple[int, int, bytes]) -> None:
    client, broker = pair()
    for _ in range(stage):
        client.receive(forward(client, broker), 0.0)
    (parts,) = client.frames()
    survives(broker, damaged(b"".join(parts), damage))
