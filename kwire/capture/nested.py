"""Messages within byte fields: what members of a classic group tell each other through the coordinator.

Subscriptions and assignments of consumers, with the user data of the sticky assignors, and those of Kafka Connect.
"""

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Any

from kwire.errors import KwireError
from kwire.protocol import ApiKey
from kwire.protocol.diagnose import decode_prefix
from kwire.protocol.fields import int32, string
from kwire.protocol.schema import Message, since
from kwire.protocol.schema import Struct as Fields

# Path, name of the message, the message as JSON.
Nested = tuple[str, str, dict[str, Any]]
Bytes = bytes | memoryview | None

_INT16 = Struct(">h")
_INT32 = Struct(">i")


class StickyUserData(Message, versions=(0, 1), flexible=None):
    class Topic(Fields):
        topic: string
        partitions: list[int32]

    topics: list[Topic]
    generation: int32 = since(1, default=-1)


def nested_messages(api: int, kind: str, body: Any) -> Iterator[Nested]:
    """Yield the messages within the byte fields of a message. What cannot be read stays bytes."""
    find = _PLACES.get((api, kind))
    if find is None:
        return
    for path, data, protocol_type, is_subscription in find(body):
        if not data:
            continue
        try:
            if protocol_type == "connect":
                found: Nested = (path, *_connect(bytes(data), is_subscription))
            else:
                found = (path, *_consumer(bytes(data), is_subscription))
        except (KwireError, IndexError, ValueError):
            continue
        yield found


Place = tuple[str, Bytes, str | None, bool]


def _join_request(body: Any) -> Iterator[Place]:
    for index, one in enumerate(body.protocols):
        yield f"protocols[{index}].metadata", one.metadata, body.protocol_type, True


def _join_response(body: Any) -> Iterator[Place]:
    for index, one in enumerate(body.members):
        yield f"members[{index}].metadata", one.metadata, body.protocol_type, True


def _sync_request(body: Any) -> Iterator[Place]:
    for index, one in enumerate(body.assignments):
        yield f"assignments[{index}].assignment", one.assignment, body.protocol_type, False


def _sync_response(body: Any) -> Iterator[Place]:
    yield "assignment", body.assignment, body.protocol_type, False


def _describe_response(body: Any) -> Iterator[Place]:
    for index, group in enumerate(body.groups):
        for number, member in enumerate(group.members):
            path = f"groups[{index}].members[{number}]"
            yield f"{path}.memberMetadata", member.member_metadata, group.protocol_type, True
            yield f"{path}.memberAssignment", member.member_assignment, group.protocol_type, False


_PLACES: dict[tuple[int, str], Callable[[Any], Iterator[Place]]] = {
    (ApiKey.JOIN_GROUP, "request"): _join_request,
    (ApiKey.JOIN_GROUP, "response"): _join_response,
    (ApiKey.SYNC_GROUP, "request"): _sync_request,
    (ApiKey.SYNC_GROUP, "response"): _sync_response,
    (ApiKey.DESCRIBE_GROUPS, "response"): _describe_response,
}


def _consumer(data: bytes, is_subscription: bool) -> tuple[str, dict[str, Any]]:
    from kwire.protocol.messages.consumer_protocol import (  # only frames of groups pay for it
        ConsumerProtocolAssignment,
        ConsumerProtocolSubscription,
        decode_versioned,
    )

    cls: Any = ConsumerProtocolSubscription if is_subscription else ConsumerProtocolAssignment
    version, message = decode_versioned(cls, data)
    json = {"version": version, **message.to_json(min(version, cls.VERSIONS.stop - 1))}
    user_data = _user_data(message.user_data) if is_subscription else None
    if user_data is not None:
        json["userData"] = user_data
    return cls.__name__, json


def _user_data(data: Bytes) -> dict[str, Any] | None:
    """Return the user data of the sticky assignors, or None for any other."""
    if not data:
        return None
    raw = bytes(data)
    if len(raw) == _INT32.size:  # of the cooperative assignor
        return {"generation": _INT32.unpack(raw)[0]}
    for version in (1, 0):
        try:
            message, end = decode_prefix(StickyUserData, raw, version)
        except KwireError:
            continue
        if end == len(raw):
            json: dict[str, Any] = message.to_json(version)
            return json
    return None


class _Reader:
    """Reads what Connect writes. Raises IndexError where bytes are missing."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._pos = 0

    def take(self, size: int) -> bytes:
        end = self._pos + size
        if size < 0 or end > len(self._data):
            raise IndexError
        data, self._pos = self._data[self._pos : end], end
        return data

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big", signed=True)

    def string(self) -> str | None:
        size = self.number(2)
        return None if size < 0 else self.take(size).decode()

    def assignments(self) -> list[dict[str, Any]]:
        found = []
        for _ in range(self.number(4)):
            connector = self.string()
            tasks = [self.number(4) for _ in range(self.number(4))]
            found.append({"connector": connector, "tasks": tasks})
        return found


def _connect(data: bytes, is_subscription: bool) -> tuple[str, dict[str, Any]]:
    """Return what a worker of Kafka Connect says of itself, or what it is assigned; a task -1 is the connector."""
    reader = _Reader(data)
    version = reader.number(2)
    json: dict[str, Any] = {"version": version}
    if is_subscription:
        json |= {"url": reader.string(), "configOffset": reader.number(8)}
        return "ConnectSubscription", json
    json |= {
        "error": reader.number(2), "leader": reader.string(), "leaderUrl": reader.string(),
        "configOffset": reader.number(8), "assigned": reader.assignments(),
    }  # fmt: skip
    if version >= 1:
        json |= {"revoked": reader.assignments(), "delayMs": reader.number(4)}
    return "ConnectAssignment", json
