"""The dead letter queue of share groups: a topic for records that no member could process (KIP-1191, Kafka 4.4).

A record goes there when a member rejects it or its last delivery fails, if the group has the config
`errors.deadletterqueue.topic.name`, that name has the cluster's prefix, and the topic allows it by
`errors.deadletterqueue.group.enable`. Headers say where the record came from; its own headers are not copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kwire.broker.diagnostics import logger
from kwire.broker.group_configs import GroupConfigs, GroupSettings
from kwire.broker.options import DEAD_LETTERS_ENABLED
from kwire.broker.partition import Partition
from kwire.broker.share_partition import InFlight
from kwire.errors import BrokerError, ErrorCode, broker_error
from kwire.records import decode_batches, encode_batch

if TYPE_CHECKING:
    from kwire.broker.cluster_state import ClusterState, Topic

_Header = tuple[str, bytes | None]
_Record = tuple[int, bytes | None, bytes | None, tuple[_Header, ...]]


class DeadLetterQueue:
    """Writes records to the dead letter topics of their groups."""

    def __init__(self, cluster: ClusterState, configs: GroupConfigs) -> None:
        self._cluster = cluster
        self._configs = configs

    def add(self, group: str, source: Partition, records: InFlight, cause: str, now: float) -> None:
        """Write records that were archived. A failure is logged: the records stay archived."""
        settings = self._configs.of(group)
        if self._cluster.options.share_level < 2 or not settings.dead_letter_topic:
            return
        wall_ms = self._cluster.wall_ms(now)
        try:
            topic = self._topic(settings.dead_letter_topic)
            target = topic.partitions[source.index % len(topic.partitions)]
            made = self._records(group, settings, source, records, cause, wall_ms)
            for batch in _batches(made, topic.settings.max_message_bytes):
                target.append(list(decode_batches(batch)), all_replicas=True, now=now, wall_ms=wall_ms)
        except BrokerError as error:
            where = f"{source.topic}-{source.index}, offsets {records.first}..{records.last}"
            logger.warning("group %s: %s did not reach the dead letter queue: %s", group, where, error)

    def _topic(self, name: str) -> Topic:
        options = self._cluster.options
        topic = self._cluster.topics.get(name)
        if not name.startswith(options.dead_letter_prefix):
            why = f"its name does not start with {options.dead_letter_prefix}"
            raise broker_error(ErrorCode.POLICY_VIOLATION, why, topic=name)
        if topic is None and options.dead_letter_auto_create:
            topic = self._cluster.create_topic(name, configs={DEAD_LETTERS_ENABLED: "true"})
        if topic is None:
            raise broker_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}", topic=name)
        if not topic.settings.takes_dead_letters:
            raise broker_error(ErrorCode.POLICY_VIOLATION, f"{DEAD_LETTERS_ENABLED} is false", topic=name)
        return topic

    def _records(
        self, group: str, settings: GroupSettings, source: Partition, records: InFlight, cause: str, wall_ms: int
    ) -> list[_Record]:
        copies: dict[int, tuple[bytes | None, bytes | None]] = {}
        if settings.dead_letter_copies_record:
            copies = _read(source, records.first, records.last)
        made: list[_Record] = []
        for offset in range(records.first, records.last + 1):
            context: tuple[_Header, ...] = (
                ("__dlq.errors.topic", source.topic.encode()),
                ("__dlq.errors.partition", str(source.index).encode()),
                ("__dlq.errors.offset", str(offset).encode()),
                ("__dlq.errors.group", group.encode()),
                ("__dlq.errors.delivery.count", str(records.delivery_count).encode()),
                ("__dlq.errors.message", cause.encode()),
            )
            key, value = copies.get(offset, (None, None))
            made.append((wall_ms, key, value, context))
        return made


def _batches(records: Sequence[_Record], max_bytes: int) -> Iterator[bytes]:
    """Encode records in batches that the topic accepts; one that is too large alone is left to the log."""
    batch = encode_batch(records)
    if len(batch) <= max_bytes or len(records) == 1:
        yield batch
        return
    half = len(records) // 2
    yield from _batches(records[:half], max_bytes)
    yield from _batches(records[half:], max_bytes)


def _read(source: Partition, first: int, last: int) -> dict[int, tuple[bytes | None, bytes | None]]:
    """Return the keys and values of the records that the log still has."""
    found: dict[int, tuple[bytes | None, bytes | None]] = {}
    log = source.log
    if last < log.start_offset:
        return found
    for stored in log.read(max(first, log.start_offset), max_bytes=2**31 - 1, upper_bound=last + 1_000_000):
        if stored.base_offset > last:
            break
        if not stored.is_control:
            for record in stored.batch().records():
                if first <= record.offset <= last:
                    found[record.offset] = (record.key, record.value)
    return found
