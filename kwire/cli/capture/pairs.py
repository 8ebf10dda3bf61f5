"""Requests and responses as pairs, each as soon as it is whole.

A request waits for its response. Bounded: of all that wait HELD_BYTES_MAX or HELD_MAX are kept; the eldest is then
handed on alone, and so will be its response, should it still come.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kwire.cli.capture.exchange import CapturedFrame, Connection, Found, Remark, Unanswered

HELD_BYTES_MAX = 16 * 1024 * 1024
HELD_MAX = 20_000


@dataclass(frozen=True, slots=True)
class Pair:
    """A request and the response to it; one of them may not be in the capture."""

    connection: Connection
    request: CapturedFrame | None
    response: CapturedFrame | None

    @property
    def frame(self) -> CapturedFrame:
        """The one that says more: of which API and version, and when it began."""
        frame = self.request or self.response
        assert frame is not None
        return frame

    @property
    def latency_ms(self) -> float | None:
        """From the request's last byte to the response's."""
        if self.response is None or self.response.latency_ns is None:
            return None
        return self.response.latency_ns / 1_000_000


def pair_up(found: Iterable[Found]) -> Iterator[Pair | Remark]:
    """Pairs, in the order in which they became whole, with the remarks where they were made."""
    held: OrderedDict[tuple[int, int], CapturedFrame] = OrderedDict()
    held_bytes = 0
    for one in found:
        if isinstance(one, Remark):
            yield one
            continue
        key = (one.connection.number, one.request)
        if isinstance(one, CapturedFrame) and one.kind == "request" and one.awaits_answer:
            held[key] = one
            held_bytes += len(one.data)
            while held_bytes > HELD_BYTES_MAX or len(held) > HELD_MAX:
                _, eldest = held.popitem(last=False)
                held_bytes -= len(eldest.data)
                yield Pair(eldest.connection, eldest, None)
            continue
        request = held.pop(key, None)
        held_bytes -= len(request.data) if request else 0
        if isinstance(one, Unanswered):
            if request is not None:
                yield Pair(one.connection, request, None)
        elif one.kind == "request":
            yield Pair(one.connection, one, None)
        else:
            yield Pair(one.connection, request, one)
    for request in held.values():
        yield Pair(request.connection, request, None)
