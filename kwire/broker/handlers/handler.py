"""What a broker can do with an API: the functions that each file of this folder has, in one object.

Owns their shapes, and the few things that several handlers say in the same words: leader hints, authorised operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kwire.broker.broker_state import BrokerState
from kwire.broker.exchange import RequestContext
from kwire.protocol.schema import Request, Response

R = TypeVar("R", bound=Request[Any])

# Without an authorizer everybody may do everything; a bit for each of Kafka's AclOperation codes that apply.
TOPIC_OPERATIONS = sum(1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))
GROUP_OPERATIONS = sum(1 << code for code in (3, 6, 8))
NOT_REQUESTED = -(2**31)


def no_places(broker: BrokerState, request: Request[Any]) -> Sequence[tuple[str, int]]:
    return ()


@dataclass(frozen=True, slots=True)
class Handler(Generic[R]):
    """How one API is answered.

    handle          the response; None when it comes later, or not at all, through the exchange
    refuse          the response that says this error code for everything that the request asks
    places          the (topic, partition) pairs that the request names, by which faults find it
    refuses_places  `handle` asks `exchange.refused` for every place
    refuse_applied  as `refuse`, for what was carried out all the same; None where both are answered alike
    """

    request: type[R]
    handle: Callable[[BrokerState, R, RequestContext, float], Response | None]
    refuse: Callable[[R, int, int], Response]
    places: Callable[[BrokerState, R], Sequence[tuple[str, int]]] = no_places
    refuses_places: bool = False
    refuse_applied: Callable[[R, int, int], Response] | None = None
