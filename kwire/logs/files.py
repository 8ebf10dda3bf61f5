"""Which file of a log directory is what, by its name: 00000000000000000042.timeindex, quorum-state, ..."""

from __future__ import annotations

import re
from pathlib import PurePath

# A broker appends these to files that it will replace or remove.
_TEMPORARY_SUFFIX = re.compile(r"\.(deleted|cleaned|swap)$")
KINDS = {
    ".log": "log", ".checkpoint": "log", ".index": "index", ".timeindex": "timeindex", ".txnindex": "txnindex",
    ".snapshot": "producers",
}  # fmt: skip
TEXTS = ("partition.metadata", "meta.properties", "quorum-state")
# topic-partition, with a suffix while the log is moved (-future), deleted (-delete) or unassigned (-stray).
_FOLDER = re.compile(r"(?P<topic>[\w.-]+?)-(?P<partition>\d+)(?P<state>\.[0-9a-f]{32}-(?:future|delete|stray))?")
_METADATA = "__cluster_metadata"


def kind_of(path: PurePath) -> str | None:
    """Return the kind of a file: log, index, timeindex, txnindex, producers, text; None for any other name."""
    bare = PurePath(_TEMPORARY_SUFFIX.sub("", path.name))
    if bare.name in TEXTS or bare.name.endswith("-checkpoint"):
        return "text"
    return KINDS.get(bare.suffix)


def is_segment(path: PurePath) -> bool:
    """Return whether a name in a folder is that of a segment, and not of a server.log that holds no records."""
    return kind_of(path) == "log" and (path.suffix == ".checkpoint" or path.name.partition(".")[0].isdigit())


def is_live_segment(path: PurePath) -> bool:
    """Return whether a segment is part of a log that the broker serves.

    Others are copies of such records, or will be removed: .deleted, .cleaned, .swap, and the folders -future, -delete
    and -stray.
    """
    folder = _FOLDER.fullmatch(path.parent.name)
    is_passing = _TEMPORARY_SUFFIX.search(path.name) is not None or (folder is not None and folder["state"] is not None)
    return is_segment(path) and not is_passing


def base_offset_of(path: PurePath) -> int:
    """Return the first offset that a file's name promises; 0 if it promises none, as a KRaft snapshot."""
    bare = _TEMPORARY_SUFFIX.sub("", path.name)
    first = bare.partition(".")[0]
    return int(first) if first.isdigit() and not bare.endswith(".checkpoint") else 0


def topic_partition_of(path: PurePath) -> tuple[str | None, int | None]:
    """Return the topic and partition that the folder of a file names. New snapshots of the metadata have no own."""
    found = _FOLDER.fullmatch(path.parent.name)
    if found is not None:
        return found["topic"], int(found["partition"])
    return (_METADATA, 0) if path.suffix == ".checkpoint" else (None, None)
