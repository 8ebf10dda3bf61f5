"""Producer snapshots, and the text files in which a broker stores its progress.

.snapshot                 the producers of a partition: version, CRC-32C, entries
leader-epoch-checkpoint   version, count, then "epoch start-offset" a line
...-offset-checkpoint     version, count, then "topic partition offset" a line
partition.metadata        "name: value" a line; meta.properties "name=value"
quorum-state              JSON: the vote and the leader of a KRaft node
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from kwire.errors import CorruptRecordsError, DecodeError, KwireError
from kwire.protocol.messages.producer_snapshot import ProducerSnapshot
from kwire.wire.checksums import crc32c

# These files are small; a larger one is something else.
FILE_BYTES_MAX = 64 * 1024 * 1024
_VERSION_BYTES = 2
_CRC_BYTES = 4


def read_producers(data: bytes) -> Iterator[ProducerSnapshot.ProducerEntry | KwireError]:
    """Yield the entries of a producer snapshot, after its problems."""
    version = int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
    if len(data) < _VERSION_BYTES or version not in ProducerSnapshot.VERSIONS:
        yield DecodeError(f"unknown version {version} of a producer snapshot", offset=0)
        return
    try:
        snapshot = ProducerSnapshot.decode(data[_VERSION_BYTES:], version)
    except DecodeError as error:
        inside = error.where.get("offset")
        error.where["offset"] = _VERSION_BYTES + (inside if isinstance(inside, int) else 0)
        yield error
        return
    computed = crc32c(data[_VERSION_BYTES + _CRC_BYTES :])
    if computed != snapshot.crc:
        message = f"the snapshot's CRC-32C is {computed:08x}, but the file says {snapshot.crc:08x}"
        remedy = "stop the broker and delete the file: it is rebuilt from the log"
        yield CorruptRecordsError(message, offset=_VERSION_BYTES, remedy=remedy)
    yield from snapshot.producer_entries


def read_text(name: str, data: bytes) -> Iterator[dict[str, Any] | KwireError]:
    """Yield the lines of a text file, by its name, as JSON objects."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        yield DecodeError("not text", offset=error.start)
        return
    if name == "quorum-state":
        try:
            yield json.loads(text)
        except ValueError as error:
            yield DecodeError(f"not JSON: {error}", offset=0)
    elif name.endswith("-checkpoint"):
        yield from _counted(name, text)
    else:
        yield from _named(text)


def _named(text: str) -> Iterator[dict[str, Any] | KwireError]:
    fields = {}
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            name, value = re.split(r"\s*[:=]\s*", line, maxsplit=1) if re.search("[:=]", line) else (line, "")
            fields[name.strip()] = value.strip()
    yield fields


def _counted(name: str, text: str) -> Iterator[dict[str, Any] | KwireError]:
    """Yield the lines after the version and the count. The `offset` of an error is where its line begins."""
    starts, at = [], 0
    lines = text.splitlines(keepends=True)
    for line in lines:
        starts.append(at)
        at += len(line.encode())
    if not lines:
        return  # new and empty
    head = [line.strip() for line in lines[:2]]
    if len(head) < 2 or not all(re.fullmatch(r"\d+", line) for line in head):
        yield DecodeError("the first two lines are not a version and a count", offset=0)
        return
    if int(head[0]) != 0:
        yield DecodeError(f"unknown version {head[0]} of a checkpoint", offset=0)
        return
    last: tuple[int, int] | None = None
    for line, at in zip(lines[2:], starts[2:], strict=True):
        entry = _entry(name, line.split())
        if entry is None:
            yield DecodeError(f"cannot parse the line {line.strip()!r}", offset=at)
            continue
        if "epoch" in entry:
            following = (entry["epoch"], entry["start_offset"])
            if last is not None and (following[0] <= last[0] or following[1] < last[1]):
                yield CorruptRecordsError(f"epochs do not ascend: {following} after {last}", offset=at)
            last = following
        yield entry
    if int(head[1]) != len(lines) - 2:
        message = f"the file has {len(lines) - 2} lines, but its count says {head[1]}"
        yield CorruptRecordsError(message, offset=starts[1])


def _entry(name: str, words: list[str]) -> dict[str, Any] | None:
    numbers = words[-2:]
    if len(words) < 2 or not all(re.fullmatch(r"-?\d+", number) for number in numbers):
        return None
    first, second = map(int, numbers)
    if name == "leader-epoch-checkpoint":
        return {"epoch": first, "start_offset": second} if len(words) == 2 else None
    return {"topic": words[0], "partition": first, "offset": second} if len(words) == 3 else None
