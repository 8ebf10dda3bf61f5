"""Broker addresses in responses, replaced by those where the tap listens.

Metadata, FindCoordinator and DescribeCluster always name brokers; Produce, Fetch, ShareFetch and ShareAcknowledge may
name the new leader's, DescribeQuorum the controllers'. Of these APIs a broker may have newer versions than kwire: the
ApiVersions response is then cut to those that the tap can read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kwire.errors import KwireError
from kwire.protocol import ApiKey, api
from kwire.protocol.headers import decode_response, encode_response

Frame = bytes | bytearray | memoryview
# (host, port) of a broker -> (host, port) of the tap's listener for it.
Translate = Callable[[str, int], tuple[str, int]]

# API -> the first version whose responses name brokers.
NAMING: dict[int, int] = {
    ApiKey.METADATA: 0,
    ApiKey.FIND_COORDINATOR: 0,
    ApiKey.DESCRIBE_CLUSTER: 0,
    ApiKey.PRODUCE: 10,
    ApiKey.FETCH: 16,
    ApiKey.SHARE_FETCH: 0,
    ApiKey.SHARE_ACKNOWLEDGE: 0,
}
_LISTS = ("brokers", "node_endpoints", "coordinators")


def may_name_brokers(key: int, version: int) -> bool:
    """Return whether a response may need `rewritten`."""
    first = NAMING.get(key)
    return key == ApiKey.API_VERSIONS or (first is not None and version >= first)


def rewritten(frame: Frame, key: int, version: int, translate: Translate) -> bytes | None:
    """Return the response with the tap's addresses, or None if nothing in it changes.

    Raises DecodeError for a response that kwire cannot read: a client that got it unchanged would bypass the tap.
    """
    correlation_id, response = decode_response(frame, api(key).request, version)
    changes = _limit_versions(response) if key == ApiKey.API_VERSIONS else _translate(response, translate)
    if not changes:
        return None
    return b"".join(encode_response(response, version, correlation_id))


def _translate(response: Any, translate: Translate) -> bool:
    changed = False
    for node in _nodes(response):
        if node.host and node.port > 0:
            host, port = translate(node.host, node.port)
            changed |= (host, port) != (node.host, node.port)
            node.host, node.port = host, port
    return changed


def _nodes(response: Any) -> Iterator[Any]:
    for name in _LISTS:
        yield from getattr(response, name, None) or ()
    if hasattr(response, "host"):  # FindCoordinator before version 4
        yield response


def _limit_versions(response: Any) -> bool:
    changed = False
    for one in response.api_keys:
        if one.api_key in NAMING:
            known = api(one.api_key).versions.stop - 1
            if one.max_version > known:
                one.max_version = known
                changed = True
    return changed


def version_of_response(key: int, version: int, frame: Frame) -> int:
    """Return the version of a response: to an unknown version of ApiVersions a broker responds in version 0."""
    is_refused = key == ApiKey.API_VERSIONS and bytes(frame[4:6]) == _UNSUPPORTED_VERSION
    return 0 if is_refused else version


_UNSUPPORTED_VERSION = (35).to_bytes(2, "big")


def request_key(frame: Frame) -> tuple[int, int, int] | None:
    """Return API key, version and correlation id of a request, or None if it has no such header."""
    if len(frame) < 8:
        return None
    key, version = (int.from_bytes(frame[at : at + 2], "big", signed=True) for at in (0, 2))
    try:
        api(key)
    except KwireError:
        return None
    return key, version, int.from_bytes(frame[4:8], "big", signed=True)
