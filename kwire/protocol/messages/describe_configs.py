"""DescribeConfigs (key 32): the configuration of topics, brokers, groups and client metrics.

v0   (KIP-133)
v1   where a value comes from, and what it hides (KIP-226)
v2   throttling is the client's to carry out (KIP-219)
v3   types and documentation (KIP-569)
v4   flexible (KIP-482)

Kafka 4.0 dropped version 0.
"""

from kwire.protocol.fields import boolean, int8, int16, int32, string
from kwire.protocol.schema import Request, Response, Struct, since


class DescribeConfigsRequest(Request["DescribeConfigsResponse"], key=32, versions=(0, 4), flexible=4):
    class Resource(Struct):
        resource_type: int8
        resource_name: string
        configuration_keys: list[string] | None

    resources: list[Resource]
    include_synonyms: boolean = since(1, default=False)
    include_documentation: boolean = since(3, default=False)


class DescribeConfigsResponse(Response, key=32, versions=(0, 4), flexible=4):
    class Result(Struct):
        class Config(Struct):
            class Synonym(Struct):
                name: string
                value: string | None
                source: int8

            name: string
            value: string | None
            read_only: boolean
            is_default: boolean = since(0, until=0, default=False)
            config_source: int8 = since(1, default=-1, ignorable=True)
            is_sensitive: boolean
            synonyms: list[Synonym] = since(1, default=[], ignorable=True)
            config_type: int8 = since(3, default=0, ignorable=True)
            documentation: string | None = since(3, default="", ignorable=True)

        error_code: int16
        error_message: string | None
        resource_type: int8
        resource_name: string
        configs: list[Config]

    throttle_time_ms: int32 = 0
    results: list[Result]
