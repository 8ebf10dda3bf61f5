"""The bytes of the consumer protocol: subscriptions and assignments of classic groups, versions 0 to 3.

    subscription_bytes   MemberSubscription -> the metadata of a protocol in JoinGroup
    parse_subscription   what the leader reads from each member in JoinGroup's response
    assignment_bytes     MemberAssignment -> a member's assignment in the leader's SyncGroup
    parse_assignment     what a member reads from SyncGroup's response

Kafka's counterpart is `ConsumerProtocol`. `kwire.protocol.messages.consumer_protocol` has the fields of each version.
"""

from __future__ import annotations

from kwire.consumer.assignors.assignor import NO_GENERATION, MemberAssignment, MemberSubscription, by_topic
from kwire.errors import DecodeError
from kwire.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_versioned,
    encode_versioned,
)

VERSION_MAX = ConsumerProtocolSubscription.VERSIONS.stop - 1


def subscription_bytes(subscription: MemberSubscription, version: int = VERSION_MAX) -> bytes:
    """Return a subscription as bytes. Raises EncodeError for what the bytes cannot hold.

    Topics and owned partitions are sorted, as in Kafka, so that equal subscriptions have equal bytes: the coordinator
    compares them when a member joins again. A version below 3 leaves out what it cannot carry.
    """
    message = ConsumerProtocolSubscription(
        topics=sorted(subscription.topics),
        user_data=subscription.user_data,
        owned_partitions=[
            ConsumerProtocolSubscription.TopicPartition(topic=topic, partitions=partitions)
            for topic, partitions in by_topic(sorted(subscription.owned))
        ],
        generation_id=subscription.generation,
        rack_id=subscription.rack,
    )
    return encode_versioned(message, version)


def parse_subscription(data: bytes, instance_id: str | None = None) -> MemberSubscription:
    """Return the subscription in bytes of any version from 0 up; what a version above 3 adds is ignored.

    `instance_id` is the member's, from JoinGroup's response. Raises DecodeError with the field and its position.
    """
    _, message = decode_versioned(ConsumerProtocolSubscription, data)
    return MemberSubscription(
        topics=tuple(message.topics),
        owned=tuple((entry.topic, partition) for entry in message.owned_partitions for partition in entry.partitions),
        generation=max(message.generation_id, NO_GENERATION),
        rack=message.rack_id or None,
        user_data=message.user_data,
        instance_id=instance_id,
    )


def assignment_bytes(assignment: MemberAssignment, version: int = VERSION_MAX) -> bytes:
    """Return an assignment as bytes, partitions in the order given. Raises EncodeError."""
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=partitions)
            for topic, partitions in by_topic(assignment.partitions)
        ],
        user_data=assignment.user_data,
    )
    return encode_versioned(message, version)


def parse_assignment(data: bytes) -> MemberAssignment:
    """Return the assignment in bytes of any version from 0 up. No bytes are an empty assignment.

    A coordinator sends none to a member that the leader left out.
    Raises DecodeError with the field and its position, also for a negative partition.
    """
    if not data:
        return MemberAssignment()
    _, message = decode_versioned(ConsumerProtocolAssignment, data)
    partitions = tuple((entry.topic, index) for entry in message.assigned_partitions for index in entry.partitions)
    for topic, index in partitions:
        if index < 0:
            raise DecodeError(
                f"a partition of {index} of topic {topic}",
                api="ConsumerProtocolAssignment",
                path="assigned_partitions",
                remedy="the group's leader computed it; look at that client and its assignor",
            )
    return MemberAssignment(partitions, message.user_data)
