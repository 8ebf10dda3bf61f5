"""What the interceptors of producers and those of consumers share: which methods they have, and their end."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

log = logging.getLogger("kwire.interceptors")


class Closable(Protocol):
    """An interceptor of any client."""

    def close(self) -> None: ...


InterceptorT = TypeVar("InterceptorT", bound=Closable)


class Interceptors(Generic[InterceptorT]):
    """The interceptors of one client, called in their order. What they raise is logged and changes nothing."""

    def __init__(self, interceptors: Sequence[InterceptorT]) -> None:
        self._all = tuple(interceptors)
        self._is_closed = False

    def _overriding(self, base: type[Any], method: str) -> list[InterceptorT]:
        """Return those that have their own version of a method of `base`; the others need not be called."""
        return [one for one in self._all if getattr(type(one), method) is not getattr(base, method)]

    def close(self) -> None:
        """Close each interceptor, once."""
        if self._is_closed:
            return
        self._is_closed = True
        for interceptor in self._all:
            try:
                interceptor.close()
            except Exception:
                log.exception("%s.close raised", type(interceptor).__name__)
