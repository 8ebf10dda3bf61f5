"""Which broker coordinates a group or a transactional id: a memory of FindCoordinator's answers.

The memory holds until a coordinator says that it is not one (`forget`) or its broker is gone; then the key is looked up
again. It refuses to send: it answers the lookups that are wanted, and takes their outcomes.
"""

from __future__ import annotations

from kwire.cluster.requests import CoordinatorKind, ToCoordinator
from kwire.errors import broker_error
from kwire.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

_KINDS: dict[CoordinatorKind, int] = {"group": 0, "transaction": 1}
_BATCHED_SINCE = 4  # v4 (KIP-699) asks for several keys at once and answers a list


class Coordinators:
    def __init__(self) -> None:
        self._nodes: dict[ToCoordinator, int] = {}
        self._looking: set[ToCoordinator] = set()

    def node(self, route: ToCoordinator) -> int | None:
        return self._nodes.get(route)

    def forget(self, route: ToCoordinator) -> None:
        self._nodes.pop(route, None)

    def start(self, route: ToCoordinator) -> bool:
        """True when a lookup is to be sent now: the key is unknown and nobody is asking yet."""
        if route in self._nodes or route in self._looking:
            return False
        self._looking.add(route)
        return True

    def request(self, route: ToCoordinator, version: int) -> FindCoordinatorRequest:
        kind = _KINDS[route.kind]
        if version >= _BATCHED_SINCE:
            return FindCoordinatorRequest(key_type=kind, coordinator_keys=[route.key])
        return FindCoordinatorRequest(key=route.key, key_type=kind)

    def handle_response(self, route: ToCoordinator, response: FindCoordinatorResponse) -> None:
        """Remember the answer; raises the BrokerError that it carries instead."""
        self._looking.discard(route)
        answer = response.coordinators[0] if response.coordinators else response
        if answer.error_code:
            raise broker_error(answer.error_code, answer.error_message, api="FindCoordinator", group=route.key)
        self._nodes[route] = answer.node_id

    def failed(self, route: ToCoordinator) -> None:
        self._looking.discard(route)
