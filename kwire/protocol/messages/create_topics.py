"""CreateTopics (key 19): create topics; the controller's work.

v0   (KIP-4)
v1   a dry run, and error messages (KIP-4)
v2   throttle time (KIP-124)
v3   throttling is the client's to carry out (KIP-219)
v4   -1 partitions or replicas means the broker's default (KIP-464)
v5   flexible (KIP-482); the response has the topic's configuration (KIP-525)
v6   THROTTLING_QUOTA_EXCEEDED may be returned (KIP-599)
v7   the new topic's id (KIP-516)

Kafka 4.0 dropped versions 0 and 1.
"""

from kwire.protocol.fields import NO_ID, boolean, int8, int16, int32, string, uuid
from kwire.protocol.schema import Request, Response, Struct, since, tagged


class CreateTopicsRequest(Request["CreateTopicsResponse"], key=19, versions=(0, 7), flexible=5):
    class Topic(Struct):
        class Assignment(Struct):
            partition_index: int32
            broker_ids: list[int32]

        class Config(Struct):
            name: string
            value: string | None

        name: string
        num_partitions: int32
        replication_factor: int16
        assignments: list[Assignment] = since(0, default=[])
        configs: list[Config] = since(0, default=[])

    topics: list[Topic]
    timeout_ms: int32 = 60_000
    validate_only: boolean = since(1, default=False)


class CreateTopicsResponse(Response, key=19, versions=(0, 7), flexible=5):
    class Topic(Struct):
        class Config(Struct):
            name: string
            value: string | None
            read_only: boolean
            config_source: int8 = -1
            is_sensitive: boolean

        name: string
        topic_id: uuid = since(7, default=NO_ID, ignorable=True)
        error_code: int16
        error_message: string | None = since(1, default="", ignorable=True)
        topic_config_error_code: int16 = tagged(0, since=5, default=0, ignorable=True)
        num_partitions: int32 = since(5, default=-1, ignorable=True)
        replication_factor: int16 = since(5, default=-1, ignorable=True)
        configs: list[Config] | None = since(5, default=[], ignorable=True)

    throttle_time_ms: int32 = since(2, default=0, ignorable=True)
    topics: list[Topic]
