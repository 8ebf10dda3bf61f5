"""Which broker coordinates a group or a transactional id, as FindCoordinator said.

An entry is valid until a coordinator says that it is not one (`forget`) or its broker is gone.
"""

from __future__ import annotations

from kwire.cluster.requests import CoordinatorKind, ToCoordinator
from kwire.errors import KwireError, broker_error
from kwire.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

_KINDS: dict[CoordinatorKind, int] = {"group": 0, "transaction": 1}
_BATCHED_SINCE = 4  # v4 (KIP-699) has lists of keys and coordinators


class Coordinators:
    """The known coordinators, and the lookups under way. The event loop sends the requests."""

    def __init__(self) -> None:
        self._nodes: dict[ToCoordinator, int] = {}
        self._lookups: set[ToCoordinator] = set()
        self.failures: dict[ToCoordinator, KwireError] = {}  # of the last lookup, until one succeeds

    def node(self, route: ToCoordinator) -> int | None:
        return self._nodes.get(route)

    def forget(self, route: ToCoordinator) -> None:
        self._nodes.pop(route, None)

    def forget_all(self) -> None:
        self._nodes.clear()

    def start(self, route: ToCoordinator) -> bool:
        """Return whether to send a lookup now: the key is unknown and no lookup is under way."""
        if route in self._nodes or route in self._lookups:
            return False
        self._lookups.add(route)
        return True

    def request(self, route: ToCoordinator, version: int) -> FindCoordinatorRequest:
        kind = _KINDS[route.kind]
        if version >= _BATCHED_SINCE:
            return FindCoordinatorRequest(key_type=kind, coordinator_keys=[route.key])
        return FindCoordinatorRequest(key=route.key, key_type=kind)

    def handle_response(self, route: ToCoordinator, response: FindCoordinatorResponse) -> None:
        """Store the coordinator, or raise the BrokerError of the response."""
        self._lookups.discard(route)
        found = response.coordinators[0] if response.coordinators else response
        if found.error_code:
            raise broker_error(found.error_code, found.error_message, api="FindCoordinator", group=route.key)
        self._nodes[route] = found.node_id
        self.failures.pop(route, None)

    def failed(self, route: ToCoordinator, error: KwireError) -> None:
        self._lookups.discard(route)
        self.failures[route] = error
