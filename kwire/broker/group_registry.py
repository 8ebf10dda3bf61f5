"""All groups by id, whatever their type: an id belongs to one group, classic, consumer, streams or share.

Each type has a coordinator of its own. What is the same for all types is declared in `AnyGroup`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar, TypeVar

G = TypeVar("G", bound="AnyGroup")


class AnyGroup(ABC):
    """A group of any type. Subclasses are dataclasses with these fields.

    TYPE           the name in ListGroups (KIP-848): "classic", "consumer", "streams" or "share"
    EXPIRES        whether an empty group without offsets is deleted after the retention time
    empty_since    when the last member left, in seconds; None for a group that never had one
    """

    TYPE: ClassVar[str]
    EXPIRES: ClassVar[bool] = True
    id: str
    empty_since: float | None

    @property
    @abstractmethod
    def state_name(self) -> str:
        """Return the state as ListGroups shows it."""

    @property
    @abstractmethod
    def shown_protocol_type(self) -> str:
        """Return the protocol type in ListGroups, "" if there is none."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Return whether the group has no members. Only such a group can be deleted."""

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether a member subscribes to a topic: its offsets neither expire nor can be deleted."""

    def dispose(self) -> None:  # noqa: B027
        """Stop the group's timers: it is deleted."""

    def offset_used_at(self, committed_at: float) -> float | None:
        """Return since when an offset is unused, None if it does not expire in the present state."""
        return committed_at


class GroupRegistry:
    """The groups of the cluster, at most `limit`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._groups: dict[str, AnyGroup] = {}

    def __iter__(self) -> Iterator[AnyGroup]:
        return iter(tuple(self._groups.values()))

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._groups

    @property
    def is_full(self) -> bool:
        return len(self._groups) >= self._limit

    def get(self, group_id: str) -> AnyGroup | None:
        """Return a group of any type, None if there is none."""
        return self._groups.get(group_id)

    def find(self, group_id: str, type: type[G]) -> G | None:
        """Return a group of this type, None if there is none."""
        group = self._groups.get(group_id)
        return group if isinstance(group, type) else None

    def put(self, group: AnyGroup) -> None:
        """Add a group, in the place of the one that has its id."""
        self._groups[group.id] = group

    def delete(self, group: AnyGroup) -> None:
        """Delete a group."""
        group.dispose()
        self._groups.pop(group.id, None)
