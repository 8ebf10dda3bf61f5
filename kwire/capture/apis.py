"""The APIs whose messages kwire has, and their versions as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kwire.errors import UnsupportedVersionError
from kwire.protocol import Api, ApiKey, api


def known_apis() -> Iterator[Api]:
    """Yield every API whose messages kwire has, by key. Imports all of their modules."""
    for key in ApiKey:
        try:
            yield api(key)
        except UnsupportedVersionError:
            continue


def range_text(versions: range) -> str:
    """Return a range of versions as text: 0-13, 0 for a single version, - for none."""
    if not versions:
        return "-"
    first, last = versions[0], versions[-1]
    return str(first) if first == last else f"{first}-{last}"


def message_classes(found: Api) -> list[tuple[str, Any]]:
    """Return ("request", class) and ("response", class). Any, because each class has its own fields."""
    return [("request", found.request), ("response", found.response)]
