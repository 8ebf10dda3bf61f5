"""What a cluster gave out while a capture was recorded, and what it gives out now: ids, epochs, generations, sessions.

A replayed request must carry the new values. They are learned from pairs of responses, the captured one and the live
one, and put into the requests that follow, in record batches too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from struct import Struct
from typing import Any

from kwire.protocol import ApiKey
from kwire.wire.checksums import crc32c

# In a record batch of format v2: where things are, and from where on the checksum counts.
_LENGTH_AT, _MAGIC_AT, _CRC_AT, _CRC_FROM, _PRODUCER_AT, _HEADER_BYTES = 8, 16, 17, 21, 43, 61
_PRODUCER = Struct(">qh")
_V2 = 2
_LISTS_OF_TOPICS = frozenset({"topic_names", "subscribed_topic_names"})
_SESSION_APIS = frozenset({ApiKey.FETCH})


def structs_in(value: Any) -> Iterator[Any]:
    """Yield a message's struct and every struct within."""
    if isinstance(value, list):
        for item in value:
            yield from structs_in(item)
    elif hasattr(value, "FIELDS"):
        yield value
        for field in value.FIELDS:
            inner = getattr(value, field.name)
            if isinstance(inner, list) or hasattr(inner, "FIELDS"):
                yield from structs_in(inner)


class LiveValues:
    """Captured values and the live ones that stand for them. `topics` renames topics: {"orders": "orders-test"}."""

    def __init__(self, topics: Mapping[str, str] | None = None) -> None:
        self._topics = dict(topics or {})
        self._topic_names: dict[Any, str] = {}  # captured id -> name
        self._topic_ids: dict[str, Any] = {}  # name -> live id
        self._producers: dict[tuple[int, int], tuple[int, int]] = {}  # id and epoch
        self._members: dict[str, str] = {}
        self._generations: dict[tuple[str, int], int] = {}  # group, generation or epoch
        self._sessions: dict[int, int] = {}
        self.nodes: dict[tuple[str, int], int] = {}  # captured address -> node id
        self.addresses: dict[int, tuple[str, int]] = {}  # node id -> live address

    def put_into(self, request: Any) -> None:
        """Change a request from the capture into one for the live cluster."""
        group = getattr(request, "group_id", "") or getattr(request, "consumer_group_id", "") or ""
        for struct in structs_in(request):
            for field in struct.FIELDS:
                change = _CHANGES.get(field.name)
                if change is not None:
                    setattr(struct, field.name, change(self, struct, getattr(struct, field.name), group))
        if hasattr(request, "producer_epoch"):  # together with the id, which names it
            pair = (request.producer_id, request.producer_epoch)
            request.producer_id, request.producer_epoch = self._producers.get(pair, pair)

    def learn(self, key: ApiKey, request: Any, captured: Any, live: Any) -> None:
        """Learn from both responses to a request; either may be None, and `request` is the captured one."""
        if captured is None or live is None:
            return
        group = getattr(request, "group_id", "") or ""
        if key == ApiKey.INIT_PRODUCER_ID and not live.error_code:
            pair = (captured.producer_id, captured.producer_epoch)
            self._producers[pair] = (live.producer_id, live.producer_epoch)
        elif key == ApiKey.END_TXN and getattr(live, "producer_id", -1) >= 0 and captured.producer_id >= 0:
            pair = (captured.producer_id, captured.producer_epoch)  # KIP-890: each transaction has an epoch
            self._producers[pair] = (live.producer_id, live.producer_epoch)
        elif key in (ApiKey.JOIN_GROUP, ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.SHARE_GROUP_HEARTBEAT):
            if captured.member_id and live.member_id:
                self._members[captured.member_id] = live.member_id
            epochs = [getattr(one, "generation_id", getattr(one, "member_epoch", -1)) for one in (captured, live)]
            if not live.error_code and epochs[0] is not None:
                self._generations[group, epochs[0]] = epochs[1]
        elif key == ApiKey.FETCH:
            self._sessions[captured.session_id] = live.session_id
        elif key == ApiKey.METADATA:
            self._learn_metadata(captured, live)
        elif key == ApiKey.CREATE_TOPICS:
            self._learn_topics(captured.topics, live.topics)

    def _learn_metadata(self, captured: Any, live: Any) -> None:
        for broker in captured.brokers:
            self.nodes[broker.host, broker.port] = broker.node_id
        for broker in live.brokers:
            self.addresses[broker.node_id] = (broker.host, broker.port)
        self._learn_topics(captured.topics, live.topics)

    def _learn_topics(self, captured: list[Any], live: list[Any]) -> None:
        for topic in captured:
            if topic.name:
                self._topic_names[topic.topic_id] = topic.name
        for topic in live:
            if topic.name:
                self._topic_ids[topic.name] = topic.topic_id

    # One value each: from a struct of a request, its value there, and the request's group.

    def _topic(self, struct: Any, value: Any, group: str) -> Any:
        is_topic = "Topic" in type(struct).__name__
        return self._topics.get(value, value) if is_topic or hasattr(struct, "partitions") else value

    def _topic_list(self, struct: Any, value: Any, group: str) -> Any:
        return [self._topics.get(name, name) for name in value] if value else value

    def _topic_id(self, struct: Any, value: Any, group: str) -> Any:
        name = self._topic_names.get(value)
        return value if name is None else self._topic_ids.get(self._topics.get(name, name), value)

    def _member(self, struct: Any, value: Any, group: str) -> Any:
        return self._members.get(value, value)

    def _generation(self, struct: Any, value: Any, group: str) -> Any:
        return self._generations.get((group, value), value) if value is not None and value > 0 else value

    def _session(self, struct: Any, value: Any, group: str) -> Any:
        return self._sessions.get(value, value) if getattr(type(struct), "API_KEY", None) in _SESSION_APIS else value

    def _leader_epoch(self, struct: Any, value: Any, group: str) -> Any:
        return -1  # the epochs of other leaders: any

    def _records(self, struct: Any, value: Any, group: str) -> Any:
        return with_producers(value, self._producers) if value is not None else value


_CHANGES: dict[str, Callable[[LiveValues, Any, Any, str], Any]] = {
    "name": LiveValues._topic, "topic": LiveValues._topic, "topic_id": LiveValues._topic_id,
    "member_id": LiveValues._member, "generation_id": LiveValues._generation,
    "generation_id_or_member_epoch": LiveValues._generation, "member_epoch": LiveValues._generation,
    "session_id": LiveValues._session, "current_leader_epoch": LiveValues._leader_epoch,
    "records": LiveValues._records, **dict.fromkeys(_LISTS_OF_TOPICS, LiveValues._topic_list),
}  # fmt: skip


def with_producers(records: Any, producers: Mapping[tuple[int, int], tuple[int, int]]) -> bytes:
    """Return record batches with other producer ids and epochs, and checksums that fit."""
    data = bytearray(records)
    pos = 0
    while pos + _HEADER_BYTES <= len(data) and data[pos + _MAGIC_AT] == _V2:
        end = pos + _LENGTH_AT + 4 + int.from_bytes(data[pos + _LENGTH_AT : pos + _LENGTH_AT + 4], "big")
        pair = _PRODUCER.unpack_from(data, pos + _PRODUCER_AT)
        if pair in producers and end <= len(data):
            _PRODUCER.pack_into(data, pos + _PRODUCER_AT, *producers[pair])
            data[pos + _CRC_AT : pos + _CRC_FROM] = crc32c(bytes(data[pos + _CRC_FROM : end])).to_bytes(4, "big")
        pos = max(end, pos + 1)
    return bytes(data)
