"""Send the requests of topics and their configuration: create, describe, alter, delete."""

from __future__ import annotations

from kwire.protocol.messages.alter_configs import AlterConfigsRequest
from kwire.protocol.messages.create_partitions import CreatePartitionsRequest
from kwire.protocol.messages.create_topics import CreateTopicsRequest
from kwire.protocol.messages.delete_topics import DeleteTopicsRequest
from kwire.protocol.messages.describe_configs import DescribeConfigsRequest
from kwire.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from recording.scene import TOPIC, Scene
from recording.wire import Exchange

_RESOURCE_TOPIC = 2
_SET = 0


def create_topics(scene: Scene, version: int) -> Exchange:
    kind = CreateTopicsRequest.Topic
    config = kind.Config(name="cleanup.policy", value="compact")
    by_count = kind(name=scene.new_name("created"), num_partitions=2, replication_factor=1, configs=[config])
    assignment = kind.Assignment(partition_index=0, broker_ids=[1])
    by_hand = kind(name=scene.new_name("assigned"), num_partitions=-1, replication_factor=-1, assignments=[assignment])
    return scene.wire.exchange(CreateTopicsRequest(topics=[by_count, by_hand], timeout_ms=10_000), version)


def delete_topics(scene: Scene, version: int) -> Exchange:
    name = _new_topic(scene, "deleted")
    if version >= 6:
        request = DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name=name)], timeout_ms=10_000)
    else:
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000)
    return scene.wire.exchange(request, version)


def create_partitions(scene: Scene, version: int) -> Exchange:
    kind = CreatePartitionsRequest.Topic
    by_count = kind(name=_new_topic(scene, "grown"), count=2, assignments=None)
    by_hand = kind(name=_new_topic(scene, "grown"), count=2, assignments=[kind.Assignment(broker_ids=[1])])
    request = CreatePartitionsRequest(topics=[by_count, by_hand], timeout_ms=10_000, validate_only=False)
    return scene.wire.exchange(request, version)


def describe_configs(scene: Scene, version: int) -> Exchange:
    resource = DescribeConfigsRequest.Resource(
        resource_type=_RESOURCE_TOPIC, resource_name=TOPIC, configuration_keys=["cleanup.policy", "retention.ms"]
    )
    return scene.wire.exchange(DescribeConfigsRequest(resources=[resource], include_synonyms=version >= 1), version)


def incremental_alter_configs(scene: Scene, version: int) -> Exchange:
    kind = IncrementalAlterConfigsRequest.Resource
    config = kind.Config(name="retention.ms", config_operation=_SET, value="86400000")
    resource = kind(resource_type=_RESOURCE_TOPIC, resource_name=TOPIC, configs=[config])
    return scene.wire.exchange(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), version)


def alter_configs(scene: Scene, version: int) -> Exchange:
    """Replace all configs of a topic of its own: the others need what the topic of the scene has."""
    kind = AlterConfigsRequest.Resource
    config = kind.Config(name="retention.ms", value="86400000")
    resource = kind(resource_type=_RESOURCE_TOPIC, resource_name=_new_topic(scene, "configured"), configs=[config])
    return scene.wire.exchange(AlterConfigsRequest(resources=[resource], validate_only=False), version)


def _new_topic(scene: Scene, kind: str) -> str:
    name = scene.new_name(kind)
    topic = CreateTopicsRequest.Topic(name=name, num_partitions=1, replication_factor=1)
    created = scene.newest(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
    assert not created.topics[0].error_code
    return name
