"""The features of a cluster and their levels (KIP-584): what the brokers support, and what is finalized.

The level of `metadata.version` may change, as it decides nothing here. The levels of the other features are options of
the cluster, which are fixed.
"""

from __future__ import annotations

from collections.abc import Mapping

from kwire.broker.options import GROUP_VERSIONS, SHARE_VERSIONS, TRANSACTION_VERSIONS, Options
from kwire.errors import BrokerError, ErrorCode, broker_error

METADATA_VERSION = "metadata.version"
# The newest level that the brokers of a release have, and the oldest.
_METADATA_VERSIONS: Mapping[str, int] = {
    "3.0": 1, "3.1": 2, "3.2": 3, "3.3": 7, "3.4": 8, "3.5": 11, "3.6": 14, "3.7": 19, "3.8": 20, "3.9": 21,
    "4.0": 25, "4.1": 27, "4.2": 29, "4.3": 30,
}  # fmt: skip
_OLDEST_METADATA_VERSION, _OLDEST_SINCE_4 = 1, 7
_NEWEST = 30


class Features:
    def __init__(self, options: Options) -> None:
        self._supported: dict[str, tuple[int, int]] = {"transaction.version": (0, TRANSACTION_VERSIONS[-1])}
        self.levels: dict[str, int] = {"transaction.version": options.transaction_version}
        if options.is_at_least("3.0"):
            newest = _NEWEST if options.version is None else _METADATA_VERSIONS.get(options.version, _NEWEST)
            oldest = _OLDEST_SINCE_4 if options.is_at_least("4.0") else _OLDEST_METADATA_VERSION
            self._add(METADATA_VERSION, newest, newest, oldest)
        if options.is_at_least("4.0"):
            self._add("group.version", options.group_version, GROUP_VERSIONS[-1])
        if options.is_at_least("4.2"):
            newest = SHARE_VERSIONS[-1 if options.is_at_least("4.4") else 1]
            self._add("share.version", options.share_level, newest)
            self._add("streams.version", 1, 1)

    def _add(self, name: str, level: int, newest: int, oldest: int = 0) -> None:
        self._supported[name] = (oldest, newest)
        self.levels[name] = level

    def shown(self) -> dict[str, tuple[int, int]]:
        """Return the level and the newest level of each feature."""
        return {name: (level, self._supported[name][1]) for name, level in self.levels.items()}

    def update(self, changes: Mapping[str, int], *, validate_only: bool) -> None:
        """Change levels, all or none. Raises INVALID_UPDATE_VERSION."""
        for name, level in changes.items():
            if name not in self._supported:
                raise _invalid(name, level, "Local controller does not support this feature.")
            oldest, newest = self._supported[name]
            if not oldest <= level <= newest:
                raise _invalid(name, level, f"Local controller only supports versions {oldest}-{newest}")
        if validate_only:
            return
        for name, level in changes.items():
            if name != METADATA_VERSION and level != self.levels[name]:
                option = name.replace(".", "_")
                raise _invalid(name, level, f"It is fixed in an embedded cluster: see the option {option}.")
        self.levels |= changes


def _invalid(name: str, level: int, why: str) -> BrokerError:
    prefix = "The update failed for all features since the following feature had an error: "
    message = f"{prefix}Invalid update version {level} for feature {name}. {why}"
    return broker_error(ErrorCode.INVALID_UPDATE_VERSION, message)
