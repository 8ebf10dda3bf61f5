"""The target that the properties of a client describe."""

from __future__ import annotations

import pytest

from kwire.doctor.client_properties import target_of
from kwire.errors import ConfigurationError


def test_a_target() -> None:
    target = target_of({
        "bootstrap.servers": "a:9092", "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": 'x.ScramLoginModule required username="u" password="p";',
        "group.id": "billing", "transactional.id": "t", "client.id": "app",
    })  # fmt: skip
    assert (target.bootstrap, target.group, target.transactional_id, target.client_id) == (
        "a:9092", "billing", "t", "app",
    )  # fmt: skip
    assert target.tls is not None
    assert target.sasl is not None
    assert target.sasl.username == "u"
    assert "password" not in repr(target.sasl)


def test_librdkafkas_name_and_contradictions() -> None:
    assert target_of({"metadata.broker.list": "a"}).bootstrap == "a"
    with pytest.raises(ConfigurationError):
        target_of({"sasl.mechanism": "PLAIN"})
