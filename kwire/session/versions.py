"""Which version of an API to use, and the versions of brokers before ApiVersions (0.10.0, KIP-35)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from kwire.errors import ConfigurationError, UnsupportedVersionError
from kwire.protocol import ApiKey, api

# By API key. Any, because to a type checker a Mapping of ApiKey is not a Mapping of int.
VersionRanges: TypeAlias = Mapping[Any, range]

_ONLY_V0 = range(1)
# Only what a client may use. 0.8.2 had drafts of JoinGroup and Heartbeat, which 0.9 replaced.
_0_8_2: dict[int, range] = {
    ApiKey.PRODUCE: _ONLY_V0,
    ApiKey.FETCH: _ONLY_V0,
    ApiKey.LIST_OFFSETS: _ONLY_V0,
    ApiKey.METADATA: _ONLY_V0,
    ApiKey.OFFSET_COMMIT: range(2),
    ApiKey.OFFSET_FETCH: range(2),
    ApiKey.FIND_COORDINATOR: _ONLY_V0,
}
_0_9: dict[int, range] = {
    **_0_8_2,
    ApiKey.PRODUCE: range(2),
    ApiKey.FETCH: range(2),
    ApiKey.OFFSET_COMMIT: range(3),
    ApiKey.JOIN_GROUP: _ONLY_V0,
    ApiKey.HEARTBEAT: _ONLY_V0,
    ApiKey.LEAVE_GROUP: _ONLY_V0,
    ApiKey.SYNC_GROUP: _ONLY_V0,
    ApiKey.DESCRIBE_GROUPS: _ONLY_V0,
    ApiKey.LIST_GROUPS: _ONLY_V0,
}


def check_ranges(option: str, ranges: object) -> None:
    """Raise ConfigurationError unless they map API keys to ranges of versions."""
    if not isinstance(ranges, Mapping):
        raise ConfigurationError(f"{option} is {ranges!r:.60}", remedy="give {ApiKey.METADATA: range(0, 13)}")
    for key, versions in ranges.items():
        if not isinstance(key, int) or not isinstance(versions, range):
            raise ConfigurationError(
                f"{option} has {key!r:.60}: {versions!r:.60}", remedy="give an ApiKey and a range of versions"
            )


BROKERS_BEFORE_API_VERSIONS: Mapping[str, VersionRanges] = MappingProxyType({"0.8.2": _0_8_2, "0.9": _0_9})


def common(ours: range, theirs: range) -> range:
    """Return the versions in both ranges; an empty range if there are none, or if `theirs` runs backwards.

    >>> common(range(6), range(2, 10))
    range(2, 6)
    >>> bool(common(range(4, 6), range(0, 3)))
    False
    """
    return range(max(ours.start, theirs.start), min(ours.stop, theirs.stop))


def highest_common(
    key: int, ours: range, offered: VersionRanges, *, at_most: int | None = None, broker: str | None = None
) -> int:
    """Return the version to use. Raises UnsupportedVersionError that names the range of each side."""
    name = api(key).name
    if key not in offered:
        raise UnsupportedVersionError(
            "the broker does not have this API", api=name, broker=broker, remedy=_who_has(key)
        )
    if at_most is not None:
        ours = range(ours.start, min(ours.stop, at_most + 1))
    both = common(ours, offered[key])
    if not both:
        raise UnsupportedVersionError(
            f"no version in common: the broker has {show(offered[key])}, we can use {show(ours)}",
            api=name,
            broker=broker,
        )
    return both[-1]


def _who_has(key: int) -> str:
    """Return which release of Kafka has an API."""
    from kwire.protocol.releases import kept_since  # only errors need the history

    since = kept_since(key)
    return f"it needs Kafka {since}" if since is not None else "the newest releases of Kafka do not have it"


def show(versions: range) -> str:
    """Return a range as text.

    >>> show(range(0, 4)), show(range(7, 8)), show(range(0))
    ('v0 to v3', 'v7', 'none')
    """
    if not versions:
        return "none"
    return f"v{versions[0]}" if len(versions) == 1 else f"v{versions[0]} to v{versions[-1]}"
