"""The target that the properties of a Java or librdkafka client describe: bootstrap.servers, security, group.id, ..."""

from __future__ import annotations

from collections.abc import Mapping

from kwire.cluster.security_properties import tls_and_sasl
from kwire.doctor.facts import Target


def target_of(properties: Mapping[str, str]) -> Target:
    """Return the target of a client with these properties. Raises ConfigurationError for contradictory ones."""
    tls, sasl = tls_and_sasl(properties)
    return Target(
        properties.get("bootstrap.servers") or properties.get("metadata.broker.list") or "",
        tls=tls,
        sasl=sasl,
        client_id=properties.get("client.id") or "kwire-doctor",
        group=properties.get("group.id"),
        transactional_id=properties.get("transactional.id"),
    )
