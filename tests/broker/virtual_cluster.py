"""A cluster without sockets on virtual time. Requests and responses are encoded and decoded."""

from __future__ import annotations

from typing import Any, TypeVar

from kwire.broker.broker import Broker
from kwire.broker.cluster_state import ClusterState, Node
from kwire.broker.handlers.table import HANDLERS
from kwire.broker.options import Options
from kwire.broker.request_context import Completion, Reply, RequestContext
from kwire.protocol.schema import Request, Response

R = TypeVar("R", bound=Response)
WALL_MS = 1_700_000_000_000


class SentRequest:
    """A request that a broker has, and its completions."""

    def __init__(self, request: Request[Any], version: int) -> None:
        self.request = request
        self.version = version
        self.completions: list[Completion] = []
        self.context: RequestContext

    def cancel(self) -> None:
        """Close the connection of the request."""
        self.context.cancel()

    @property
    def is_pending(self) -> bool:
        return not self.completions

    @property
    def response(self) -> Any:
        (completion,) = self.completions
        assert isinstance(completion, Reply), completion
        return type(completion.response).decode(completion.response.encode(self.version), self.version)


class VirtualCluster:
    def __init__(self, brokers: int = 3, **options: Any) -> None:
        self.options = Options(**{"seed": 0, **options})
        nodes = [Node(id, f"broker-{id}", 9092) for id in range(1, brokers + 1)]
        self.state = ClusterState(self.options, nodes, origin=(0.0, WALL_MS))
        self.brokers = {node.id: Broker(node.id, self.state, HANDLERS) for node in nodes}
        self.now = 0.0

    def send(
        self,
        node: int,
        request: Request[Any],
        version: int | None = None,
        *,
        client_id: str = "test",
        connection: int = 0,
    ) -> SentRequest:
        version = type(request).VERSIONS[-1] if version is None else version
        sent = SentRequest(request, version)
        decoded = type(request).decode(request.encode(version), version)
        context = RequestContext(
            decoded,
            version,
            client_id=client_id,
            client_host="10.0.0.1",
            connection=connection,
            on_complete=sent.completions.append,
        )
        sent.context = context
        self.brokers[node].handle(context, self.now)
        return sent

    def request(self, node: int, request: Request[R], version: int | None = None, **more: Any) -> R:
        response: R = self.send(node, request, version, **more).response
        return response

    def advance(self, seconds: float) -> None:
        """Advance the time, from one timer to the next."""
        until = self.now + seconds
        while (deadline := self.state.timers.next_at) <= until:
            self.now = max(self.now, deadline)
            self.state.timers.run(self.now)
        self.now = until

    def leader(self, topic: str, partition: int = 0) -> int:
        return self.state.partition(topic, partition).leader

    def coordinator(self, key: str) -> int:
        return self.state.coordinator_of(key)
