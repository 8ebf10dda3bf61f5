"""Metadata requests that create no topic, and the snapshot in their response."""

from __future__ import annotations

from collections.abc import Sequence

from kwire.cluster import Snapshot
from kwire.errors import broker_error
from kwire.protocol.messages.metadata import MetadataRequest, MetadataResponse

_NONE_IS_ALL_SINCE = 1
_AUTO_CREATION_SINCE = 4


def snapshot_of(response: MetadataResponse, now: float) -> Snapshot:
    if response.error_code:
        raise broker_error(response.error_code, api="Metadata")
    return Snapshot().updated(response, now)


def metadata_request(topics: Sequence[str] | None, version: int) -> MetadataRequest:
    """Return a request that creates no topic. Brokers before 0.11 have no field for it, and may create topics."""
    requested = None if topics is None else [MetadataRequest.Topic(name=name) for name in topics]
    if requested is None and version < _NONE_IS_ALL_SINCE:
        requested = []
    if version < _AUTO_CREATION_SINCE:
        return MetadataRequest(topics=requested)
    return MetadataRequest(topics=requested, allow_auto_topic_creation=False)
