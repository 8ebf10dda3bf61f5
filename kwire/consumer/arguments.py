"""Checks of the arguments of a consumer's methods, which run before anything changes.

A wrong type or shape is a TypeError that names the argument and the expected form. An invalid value (an empty topic, a
negative offset) is a ConfigurationError.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import index
from typing import Any

from kwire.cluster import is_topic_name
from kwire.consumer.offsets import AtTimestamp, SpecialOffset, StartOffset, is_start_offset, special_timestamp
from kwire.errors import ConfigurationError

TopicPartition = tuple[str, int]

_PARTITION = '(topic, partition), such as ("orders", 0)'
_START = '(topic, partition, offset), such as ("orders", 0, "earliest")'
_TIME = '(topic, partition, milliseconds since 1970), such as ("orders", 0, 1_700_000_000_000)'

# Methods of other clients, for programs that are being ported.
ELSEWHERE: Mapping[str, str] = {
    "consumer_group_metadata": "it is group_metadata() here",
    "store_offsets": 'it is mark(record) here, with commit="marks"',
    "incremental_assign": "do nothing: on_assigned only reports what was assigned",
    "incremental_unassign": "do nothing: on_revoked only reports what is taken away",
    "commit_sync": "it is commit() here",
    "getmany": "it is poll(max_records, timeout) here",
    "getone": "it is next(consumer) here, or anext(consumer)",
    "highwater": "it is lag()[topic, partition].end here",
    "consume": "it is poll(max_records, timeout) here",
    "seek_to_beginning": 'it is seek(topic, partition, "earliest") here',
    "seek_to_end": 'it is seek(topic, partition, "latest") here',
    "get_watermark_offsets": "it is beginning_offsets and end_offsets here",
    "offsets_for_times": "it is offsets_at([(topic, partition, milliseconds), ...]) here",
    "partitions_for_topic": "it is partitions(topic) here",
    "list_topics": "it is kwire.Admin.metadata here",
    "topics": "it is topics.list() of a kwire.Admin here",
    "start": "nothing to call: the first use starts it, and `close` or `with` ends it",
    "unassign": "it is assign([]) here",
    "memberid": "it is member.id here",
    "seek_to_committed": "it is seek(topic, partition, offset) here, with an offset of committed()",
    "last_stable_offset": 'it is end_offsets here, with isolation="read_committed"',
}


def check_count(max_records: object) -> None:
    """Refuse a float: `poll(1.0)` means one second in other clients, not one record."""
    try:
        count = None if isinstance(max_records, bool) else index(max_records)  # type: ignore[arg-type]
    except TypeError:
        count = None
    if count is None:
        raise TypeError(
            f"max_records is {max_records!r:.60}: give a whole number of records; the time to wait, in seconds, is "
            "poll(timeout=...)"
        )
    if count < 1:
        raise ConfigurationError(f"max_records is {max_records!r}", remedy="give a whole number above 0")


def checked_partition(topic: str, partition: int) -> TopicPartition:
    if not is_topic_name(topic):
        raise ConfigurationError(f"topic is {topic!r}", remedy="give its name")
    if not isinstance(partition, int) or isinstance(partition, bool) or not 0 <= partition < 2**31:
        raise ConfigurationError(f"partition is {partition!r}", remedy="give a whole number from 0 up")
    return topic, partition


def checked_partitions(partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    return [checked_partition(*entry) for entry in _shaped("partitions", partitions, 2, _PARTITION)]


def checked_starts(partitions: Iterable[tuple[str, int, StartOffset]]) -> dict[TopicPartition, StartOffset]:
    starts: dict[TopicPartition, StartOffset] = {}
    for topic, partition, start in _shaped("partitions", partitions, 3, _START):
        key = checked_partition(topic, partition)
        if not is_start_offset(start):
            raise no_offset(start)
        if key in starts:
            raise ConfigurationError(f"{topic}-{partition} is named twice")
        starts[key] = start
    return starts


def checked_times(times: Iterable[tuple[str, int, int | SpecialOffset]]) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for topic, partition, time in _shaped("times", times, 3, _TIME):
        special = special_timestamp(time)
        found[checked_partition(topic, partition)] = AtTimestamp(time).timestamp_ms if special is None else special
    return found


def checked_ends(ends: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
    if not isinstance(ends, Mapping):
        raise TypeError(f"ends is {ends!r:.60}: give {{(topic, partition): offset}}")
    for topic, partition in _shaped("ends", ends, 2, _PARTITION):
        end = ends[topic, partition]
        if not isinstance(end, int) or isinstance(end, bool) or end < 0:
            raise ConfigurationError(f"{end!r} is not an end of {topic}-{partition}", remedy="give an offset")
    return ends


def no_offset(offset: object) -> ConfigurationError:
    return ConfigurationError(
        f"{offset!r} is not an offset",
        remedy='give a number from 0 up, "earliest", "latest", AtTimestamp(ms), Ago(hours=1) or an Offset',
    )


def _shaped(name: str, entries: Iterable[Any], length: int, shape: str) -> list[tuple[Any, ...]]:
    """Return the entries; TypeError unless each is a tuple or a list of `length`."""
    if isinstance(entries, (str, bytes)) or not isinstance(entries, Iterable):
        raise TypeError(f"{name} is {entries!r:.60}: give a list of {shape}")
    shaped = list(entries)
    for number, entry in enumerate(shaped):
        if not isinstance(entry, (tuple, list)) or len(entry) != length:
            raise TypeError(f"{name}[{number}] is {entry!r:.60}: give {shape}")
    return shaped
