"""Handle ElectLeaders (KIP-460): make the preferred replica the leader, or any replica where there is no leader."""

from __future__ import annotations

from kwire.broker.authorizer import Operation
from kwire.broker.broker import Broker
from kwire.broker.handlers.handler import Handler, needs_cluster
from kwire.broker.partition import NO_LEADER, Partition
from kwire.broker.request_context import RequestContext
from kwire.errors import BrokerError, ErrorCode, broker_error
from kwire.protocol.messages.elect_leaders import PREFERRED, ElectLeadersRequest, ElectLeadersResponse

_UNCLEAN = 1
_FIRST_VERSION_WITH_ERROR = 1
_Topic = ElectLeadersResponse.Topic


def handle(broker: Broker, request: ElectLeadersRequest, context: RequestContext, now: float) -> ElectLeadersResponse:
    if request.election_type not in (PREFERRED, _UNCLEAN):
        return error_response(request, ErrorCode.INVALID_REQUEST, context.version)
    named = _named(broker, request)
    topics: dict[str, _Topic] = {}
    for name, index in named:
        result = _Topic.Partition(partition_id=index, error_code=ErrorCode.NONE, error_message=None)
        try:
            _elect(broker, broker.cluster.partition(name, index), request.election_type, now)
        except BrokerError as error:
            # Where all partitions are meant, those that need nothing are left out.
            if request.topic_partitions is None and error.code == ErrorCode.ELECTION_NOT_NEEDED:
                continue
            result.error_code, result.error_message = error.code, error.broker_message
        topics.setdefault(name, _Topic(topic=name, partition_result=[])).partition_result.append(result)
    return ElectLeadersResponse(error_code=ErrorCode.NONE, replica_election_results=list(topics.values()))


def _named(broker: Broker, request: ElectLeadersRequest) -> list[tuple[str, int]]:
    if request.topic_partitions is None:
        return [(partition.topic, partition.index) for partition in broker.cluster.partitions()]
    return [(topic.topic, index) for topic in request.topic_partitions for index in topic.partitions]


def _elect(broker: Broker, partition: Partition, election_type: int, now: float) -> None:
    nodes = broker.cluster.nodes
    if election_type == PREFERRED:
        preferred = partition.replicas[0]
        if partition.leader == preferred:
            raise broker_error(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
        if preferred not in partition.isr or not nodes[preferred].is_up or partition.leader == NO_LEADER:
            raise broker_error(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available.")
        partition.move_leader(preferred, now)
        return
    if partition.leader != NO_LEADER:
        raise broker_error(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
    candidates = [replica for replica in partition.replicas if nodes[replica].is_up]
    if not candidates:
        raise broker_error(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available."
        )
    partition.elect_unclean(candidates[0], now)


def error_response(request: ElectLeadersRequest, code: int, version: int) -> ElectLeadersResponse:
    topics = [
        _Topic(
            topic=topic.topic,
            partition_result=[
                _Topic.Partition(partition_id=index, error_code=code, error_message=None) for index in topic.partitions
            ],
        )
        for topic in request.topic_partitions or ()
    ]
    response = ElectLeadersResponse(replica_election_results=topics)
    if version >= _FIRST_VERSION_WITH_ERROR:
        response.error_code = code
    return response


def named_partitions(broker: Broker, request: ElectLeadersRequest) -> list[tuple[str, int]]:
    return _named(broker, request)


ELECT_LEADERS = Handler(
    ElectLeadersRequest, handle, error_response, named_partitions, authorize=needs_cluster(Operation.ALTER)
)
