"""Handle AddRaftVoter and RemoveRaftVoter (KIP-853) as a cluster whose kraft.version is 0: its voters are fixed."""

from __future__ import annotations

from kwire.broker.authorizer import Operation
from kwire.broker.broker import Broker
from kwire.broker.handlers.handler import Handler, needs_cluster
from kwire.broker.request_context import RequestContext
from kwire.errors import ErrorCode
from kwire.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from kwire.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse

_WHY = "Cluster doesn't support {} voter because the kraft.version feature is 0"


def add(broker: Broker, request: AddRaftVoterRequest, context: RequestContext, now: float) -> AddRaftVoterResponse:
    if _is_other_cluster(broker, request.cluster_id):
        return AddRaftVoterResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID, error_message=None)
    return AddRaftVoterResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=_WHY.format("adding"))


def remove(
    broker: Broker, request: RemoveRaftVoterRequest, context: RequestContext, now: float
) -> RemoveRaftVoterResponse:
    if _is_other_cluster(broker, request.cluster_id):
        return RemoveRaftVoterResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID, error_message=None)
    return RemoveRaftVoterResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=_WHY.format("removing"))


def _is_other_cluster(broker: Broker, cluster_id: str | None) -> bool:
    return cluster_id not in (None, broker.cluster.options.cluster_id)


def add_error(request: AddRaftVoterRequest, code: int, version: int) -> AddRaftVoterResponse:
    return AddRaftVoterResponse(error_code=code, error_message=None)


def remove_error(request: RemoveRaftVoterRequest, code: int, version: int) -> RemoveRaftVoterResponse:
    return RemoveRaftVoterResponse(error_code=code, error_message=None)


_authorize = needs_cluster(Operation.ALTER)
ADD_RAFT_VOTER = Handler(AddRaftVoterRequest, add, add_error, authorize=_authorize)
REMOVE_RAFT_VOTER = Handler(RemoveRaftVoterRequest, remove, remove_error, authorize=_authorize)
