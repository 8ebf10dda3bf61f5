"""StreamsGroupTopologyDescriptionUpdate (key 93): a member of a Streams group describes its topology to the broker.

v0   flexible (KIP-1331)
"""

from kwire.protocol.fields import int8, int16, int32, string
from kwire.protocol.schema import Request, Response, Struct


class StreamsTopologyNode(Struct):
    name: string
    node_type: int8
    source_topics: list[string]
    sink_topic: string | None = None
    stores: list[string]
    successors: list[string]


class StreamsTopologyDescription(Struct):
    class Subtopology(Struct):
        subtopology_id: string
        nodes: list[StreamsTopologyNode]

    class GlobalStore(Struct):
        source: StreamsTopologyNode
        processor: StreamsTopologyNode

    subtopologies: list[Subtopology]
    global_stores: list[GlobalStore]


class StreamsGroupTopologyDescriptionUpdateRequest(
    Request["StreamsGroupTopologyDescriptionUpdateResponse"], key=93, versions=(0, 0), flexible=0
):
    group_id: string
    member_id: string
    topology_epoch: int32
    topology_description: StreamsTopologyDescription


class StreamsGroupTopologyDescriptionUpdateResponse(Response, key=93, versions=(0, 0), flexible=0):
    throttle_time_ms: int32 = 0
    error_code: int16
    error_message: string | None = None
