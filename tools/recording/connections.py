"""Send the first requests of a connection: ApiVersions, SASL and the cluster's metadata."""

from __future__ import annotations

from typing import Any

from brokers.configuration import HOST, USERS

from kwire.protocol.messages.api_versions import ApiVersionsRequest
from kwire.protocol.messages.describe_cluster import DescribeClusterRequest
from kwire.protocol.messages.find_coordinator import FindCoordinatorRequest
from kwire.protocol.messages.metadata import MetadataRequest
from kwire.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kwire.protocol.messages.sasl_handshake import SaslHandshakeRequest
from recording.scene import TOPIC, Scene
from recording.wire import Exchange, Wire


def api_versions(scene: Scene, version: int) -> Exchange:
    request = ApiVersionsRequest(client_software_name="kwire", client_software_version="0.1")
    return scene.wire.exchange(request, version)


def sasl_handshake(scene: Scene, version: int) -> Exchange:
    with Wire(HOST, scene.cluster.port(1, "sasl")) as wire:
        return wire.exchange(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), version)


def sasl_authenticate(scene: Scene, version: int) -> Exchange:
    with Wire(HOST, scene.cluster.port(1, "sasl")) as wire:
        wire.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        credentials = f"\0alice\0{USERS['alice']}".encode()
        return wire.exchange(SaslAuthenticateRequest(auth_bytes=credentials), version)


def metadata(scene: Scene, version: int) -> Exchange:
    return scene.wire.exchange(MetadataRequest(topics=[MetadataRequest.Topic(name=TOPIC)]), version)


def describe_cluster(scene: Scene, version: int) -> Exchange:
    return scene.wire.exchange(DescribeClusterRequest(include_cluster_authorized_operations=True), version)


def find_coordinator(scene: Scene, version: int) -> Exchange:
    asked: dict[str, Any] = {"coordinator_keys": ["a-group"]} if version >= 4 else {"key": "a-group"}
    return scene.wire.exchange(FindCoordinatorRequest(**asked), version)
