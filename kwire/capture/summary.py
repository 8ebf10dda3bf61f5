"""An exchange on one line: `orders[0] 100 records 9.8 kB lz4, acks all -> offset 4711`.

APIs that carry records, and those of groups and transactions, have a line of their own; of the others the line names
topics, groups and what else their fields name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kwire.capture.exchange import Exchange
from kwire.capture.names import TOPIC_ID, names_in
from kwire.errors import ErrorCode
from kwire.protocol import ApiKey
from kwire.protocol.json import uuid_text

_NAMES_SHOWN_MAX = 3
_ERRORS_SHOWN_MAX = 3

# Errors by which brokers steer clients in normal operation.
_ROUTINE = frozenset(
    {
        ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    }
)  # fmt: skip


def is_routine(exchange: Exchange) -> bool:
    """Return whether all errors of a response belong to normal operation.

    So does UNSUPPORTED_VERSION of ApiVersions: the broker names the versions that it has.
    """
    is_negotiation = exchange.api is not None and exchange.api.key == ApiKey.API_VERSIONS
    return bool(exchange.errors) and all(
        error.code in _ROUTINE or (is_negotiation and error.code == ErrorCode.UNSUPPORTED_VERSION)
        for error in exchange.errors
    )


def summary(exchange: Exchange) -> str:
    """Return what matters of an exchange on one line: errors first."""
    parts = []
    for error in exchange.errors[:_ERRORS_SHOWN_MAX]:
        parts.append(f"{error.name} at {error.path.rpartition('.')[0] or 'the top'}")
    if len(exchange.errors) > _ERRORS_SHOWN_MAX:
        parts.append(f"and {len(exchange.errors) - _ERRORS_SHOWN_MAX} more errors")
    if exchange.is_guess:
        parts.append("(a guess: its request is not in the capture)")
    parts.extend(_facts(exchange))
    return "  ".join(part for part in parts if part)


def _facts(exchange: Exchange) -> Iterator[str]:
    request = exchange.request.body if exchange.request else None
    response = exchange.response.body if exchange.response else None
    key = exchange.api.key if exchange.api else None
    special = _LINES.get(key) if key is not None else None
    if special is None or (request is None and response is None):
        yield from _named(exchange, request)
        return
    yield from special(exchange, request, response)
    throttle = getattr(response, "throttle_time_ms", 0)
    if throttle:
        yield f"throttled {throttle} ms"


def _named(exchange: Exchange, request: Any) -> Iterator[str]:
    """Yield what the request names: topic orders, group g."""
    found: dict[str, dict[str, None]] = {}
    message = exchange.request.message if exchange.request and request is not None else None
    for kind, name in names_in(message):
        if kind == TOPIC_ID and name in exchange.topic_names:
            kind, name = "topic", exchange.topic_names[name]
        found.setdefault(kind, {})[name] = None
    for kind, names in sorted(found.items(), key=lambda one: one[0] == TOPIC_ID):
        yield f"{kind} {_listed(names)}"


def _listed(names: Iterable[str]) -> str:
    listed = list(names)
    more = f",... ({len(listed)})" if len(listed) > _NAMES_SHOWN_MAX else ""
    return ",".join(listed[:_NAMES_SHOWN_MAX]) + more


def size_text(size: int) -> str:
    """Return a number of bytes with its unit: 512 B, 9.8 kB, 1.2 MB."""
    if size < 1000:
        return f"{size} B"
    for unit in ("kB", "MB", "GB"):
        size_in_unit = size / 1000 ** (("kB", "MB", "GB").index(unit) + 1)
        if size_in_unit < 999.95 or unit == "GB":
            return f"{size_in_unit:.1f} {unit}"
    raise AssertionError("unreachable")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _topic(exchange: Exchange, topic: Any) -> str:
    """Return the topic's name; for an id the name that was learned, or else the id."""
    name = getattr(topic, "name", "") or getattr(topic, "topic", "")
    if name:
        return str(name)
    id = uuid_text(topic.topic_id)
    return exchange.topic_names.get(id, id)


def _places(exchange: Exchange, topics: Iterable[Any], partitions: str, index: str) -> str:
    """Return the partitions of some topics: orders[0,1], payments[3]."""
    listed = []
    for topic in topics:
        numbers = [one if isinstance(one, int) else getattr(one, index) for one in getattr(topic, partitions)]
        shown = ",".join(map(str, numbers[:_NAMES_SHOWN_MAX])) + (",..." if len(numbers) > _NAMES_SHOWN_MAX else "")
        listed.append(f"{_topic(exchange, topic)}[{shown}]")
    more = f" and {len(listed) - _NAMES_SHOWN_MAX} more topics" if len(listed) > _NAMES_SHOWN_MAX else ""
    return " ".join(listed[:_NAMES_SHOWN_MAX]) + more


def _batches(decoded: Any) -> str:
    """Return the records of a message: 100 records 9.8 kB lz4."""
    records = size = 0
    codecs: dict[str, None] = {}
    is_transactional = False
    for _, batch in decoded.record_batches():
        records += batch.count
        size += batch.size_bytes
        codecs[batch.compression.name.lower()] = None
        is_transactional |= batch.is_transactional
    if not size:
        return "no records"
    codec = ",".join(name for name in codecs if name != "none")
    return " ".join(
        filter(None, (_count(records, "record"), size_text(size), codec, "transactional" if is_transactional else ""))
    )


def _produce(exchange: Exchange, request: Any, response: Any) -> Iterator[str]:
    if request is not None and exchange.request is not None:
        acks = {-1: "all"}.get(request.acks, request.acks)
        places = _places(exchange, request.topic_data, "partition_data", "index")
        yield f"{places} {_batches(exchange.request)}, acks {acks}"
        first = next((batch for _, batch in exchange.request.record_batches()), None)
        if first is not None and first.base_sequence >= 0:
            yield f"sequence {first.base_sequence}"
        if request.transactional_id:
            yield f"transaction {request.transactional_id}"
    if response is not None:
        offsets = [
            str(one.base_offset) for topic in response.responses for one in topic.partition_responses
            if not one.error_code
        ]  # fmt: skip
        if offsets:
            yield f"-> offset {_listed(offsets)}"
        yield from _leaders(
            (_topic(exchange, topic), one.index, one.current_leader)
            for topic in response.responses
            for one in topic.partition_responses
            if one.error_code
        )


def _leaders(found: Iterable[tuple[str, int, Any]]) -> Iterator[str]:
    for topic, partition, leader in found:
        if leader is not None and leader.leader_id >= 0:
            yield f"(leader of {topic}[{partition}] is {leader.leader_id})"
            return


def _fetch(exchange: Exchange, request: Any, response: Any) -> Iterator[str]:
    if request is not None:
        offsets = [
            f"{_topic(exchange, topic)}[{one.partition}]@{one.fetch_offset}"
            for topic in request.topics
            for one in topic.partitions
        ]
        if offsets:
            yield _listed(offsets)
        if request.session_id or request.session_epoch > 0:
            yield f"session {request.session_id}"
        yield f"max wait {request.max_wait_ms} ms"
    if response is not None and exchange.response is not None:
        yield f"-> {_batches(exchange.response)}"
        partitions = [(topic, one) for topic in response.responses for one in topic.partitions]
        if len(partitions) == 1 and partitions[0][1].high_watermark >= 0:
            yield f"high watermark {partitions[0][1].high_watermark}"
        yield from _leaders(
            (_topic(exchange, topic), one.partition_index, one.current_leader) for topic, one in partitions
            if one.error_code
        )  # fmt: skip


def _share_fetch(exchange: Exchange, request: Any, response: Any) -> Iterator[str]:
    if request is not None:
        yield f"group {request.group_id}"
        yield _places(exchange, request.topics, "partitions", "partition_index")
        yield f"session epoch {request.share_session_epoch}"
        yield from _acknowledged(request)
    if response is not None and exchange.response is not None:
        acquired = sum(
            batch.last_offset - batch.first_offset + 1
            for topic in response.responses for one in topic.partitions for batch in one.acquired_records
        )  # fmt: skip
        yield f"-> {_batches(exchange.response)}, {acquired} acquired"


def _acknowledged(request: Any) -> Iterator[str]:
    number = sum(
        batch.last_offset - batch.first_offset + 1
        for topic in request.topics for one in topic.partitions for batch in one.acknowledgement_batches
    )  # fmt: skip
    if number:
        yield f"{number} acknowledged"


def _share_acknowledge(exchange: Exchange, request: Any, response: Any) -> Iterator[str]:
    if request is not None:
        yield f"group {request.group_id}"
        yield _places(exchange, request.topics, "partitions", "partition_index")
        yield from _acknowledged(request)


def _list_offsets(exchange: Exchange, request: Any, response: Any) -> Iterator[str]:
    if request is not None:
        times = {-1: "latest", -2: "earliest", -3: "max timestamp", -4: "earliest local", -5: "latest tiered"}
        wanted = {one.timestamp: None for topic in request.topics for one in topic.partitions}
        yield _places(exchange, request.topics, "partitions", "partition_index")
        yield ",".join(str(times.get(time, time)) for time in wanted)
    if response is not None:
        offsets = [str(one.offset) for topic in response.topics for one in topic.partitions if not one.error_code]
        if offsets:
            yield f"-> {_listed(offsets)}"


def _offset_commit(exchange: Exchange, request: Any, response: Any) -> Iterator[str]:
    if request is not None:
        if getattr(request, "transactional_id", None):
            yield f"transaction {request.transactional_id}"
        yield f"group {request.group_id}"
        offsets = [
            f"{_topic(exchange, topic)}[{one.partition_index}]={one.committed_offset}"
            for topic in request.topics
            for one in topic.partitions
        ]
        yield _listed(offsets)
        if request.generation_id_or_member_epoch >= 0:
            yield f"generation {request.generation_id_or_member_epoch}"


def _join_group(exchange: Exchange, request: Any, response: Any) -> Iterator[str]:
    if request is not None:
        yield f"group {request.group_id}"
        if request.member_id:
            yield f"member {request.member_id}"
        if request.group_instance_id:
            yield f"instance {request.group_instance_id}"
        yield ",".join(one.name for one in request.protocols)
        yield f"session {request.session_timeout_ms} ms"
        if request.reason:
            yield f'"{request.reason}"'
    if response is not None and not response.error_code:
        leads = f", leader of {_count(len(response.members), 'member')}" if response.members else ""
        yield f"-> generation {response.generation_id} {response.protocol_name or ''}{leads}"


def _sync_group(exchange: Exchange, request: Any, response: Any) -> Iterator[str]:
    if request is not None:
        yield f"group {request.group_id}"
        yield f"generation {request.generation_id}"
        yield f"member {request.member_id}"
        if request.assignments:
            yield f"assigns {_count(len(request.assignments), 'member')}"
    nested = exchange.response.nested() if exchange.response is not None else []
    for _, _, message in nested:
        places = [f"{one['topic']}{one['partitions']}" for one in message.get("assignedPartitions", ())]
        yield f"-> {_listed(places) or 'no partitions'}"


def _heartbeat(exchange: Exchange, request: Any, response: Any) -> Iterator[str]:
    if request is not None:
        yield f"group {request.group_id}"
        yield f"generation {request.generation_id}"
        yield f"member {request.member_id}"


def _group_heartbeat(exchange: Exchange, request: Any, response: Any) -> Iterator[str]:
    if request is not None:
        yield f"group {request.group_id}"
        if request.member_id:
            yield f"member {request.member_id}"
        yield {0: "joins", -1: "leaves", -2: "leaves for a while"}.get(
            request.member_epoch, f"epoch {request.member_epoch}"
        )
        if request.subscribed_topic_names:
            yield f"topics {_listed(request.subscribed_topic_names)}"
        if getattr(request, "topic_partitions", None):
            yield f"owns {_places(exchange, request.topic_partitions, 'partitions', '')}"
    if response is not None and not response.error_code:
        if request is None or response.member_epoch != request.member_epoch:
            yield f"-> epoch {response.member_epoch}"
        if response.assignment is not None:
            assigned = _places(exchange, response.assignment.topic_partitions, "partitions", "")
            yield f"-> assigned {assigned or 'nothing'}"


def _find_coordinator(exchange: Exchange, request: Any, response: Any) -> Iterator[str]:
    if request is not None:
        kinds = {0: "group", 1: "transaction", 2: "share partition"}
        keys = request.coordinator_keys or [request.key]
        yield f"{kinds.get(request.key_type, f'type {request.key_type}')} {_listed(keys)}"
    if response is not None:
        nodes = {one.node_id for one in response.coordinators if not one.error_code} or (
            {response.node_id} if not response.error_code and not response.coordinators else set()
        )
        if nodes:
            yield f"-> broker {','.join(map(str, sorted(nodes)))}"


def _metadata(exchange: Exchange, request: Any, response: Any) -> Iterator[str]:
    if request is not None:
        if request.topics is None:
            yield "all topics"
        elif request.topics:
            yield f"topic {_listed(topic.name or _topic(exchange, topic) for topic in request.topics)}"
        else:
            yield "no topics"
    if response is not None:
        yield f"-> {_count(len(response.brokers), 'broker')}, {_count(len(response.topics), 'topic')}"


def _init_producer_id(exchange: Exchange, request: Any, response: Any) -> Iterator[str]:
    if request is not None:
        yield f"transaction {request.transactional_id}" if request.transactional_id else "idempotent"
    if response is not None and not response.error_code:
        yield f"-> producer {response.producer_id} epoch {response.producer_epoch}"


def _add_partitions(exchange: Exchange, request: Any, response: Any) -> Iterator[str]:
    if request is None:
        return
    for one in request.transactions:
        yield f"transaction {one.transactional_id}"
        yield _places(exchange, one.topics, "partitions", "")
    if request.v3_and_below_transactional_id:
        yield f"transaction {request.v3_and_below_transactional_id}"
        yield _places(exchange, request.v3_and_below_topics, "partitions", "")


def _end_txn(exchange: Exchange, request: Any, response: Any) -> Iterator[str]:
    if request is not None:
        yield f"{'commit' if request.committed else 'abort'} of transaction {request.transactional_id}"
        yield f"producer {request.producer_id} epoch {request.producer_epoch}"


def _api_versions(exchange: Exchange, request: Any, response: Any) -> Iterator[str]:
    if exchange.software:
        yield exchange.software
    if response is not None and not response.error_code:
        yield f"-> {len(response.api_keys)} APIs"


_LINES: dict[int, Callable[[Exchange, Any, Any], Iterator[str]]] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _fetch,
    ApiKey.SHARE_FETCH: _share_fetch,
    ApiKey.SHARE_ACKNOWLEDGE: _share_acknowledge,
    ApiKey.LIST_OFFSETS: _list_offsets,
    ApiKey.OFFSET_COMMIT: _offset_commit,
    ApiKey.TXN_OFFSET_COMMIT: _offset_commit,
    ApiKey.JOIN_GROUP: _join_group,
    ApiKey.SYNC_GROUP: _sync_group,
    ApiKey.HEARTBEAT: _heartbeat,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _group_heartbeat,
    ApiKey.SHARE_GROUP_HEARTBEAT: _group_heartbeat,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.METADATA: _metadata,
    ApiKey.INIT_PRODUCER_ID: _init_producer_id,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions,
    ApiKey.END_TXN: _end_txn,
    ApiKey.API_VERSIONS: _api_versions,
}
