"""What clients asked the brokers: API, version, client, principal, size and latency of the last requests.

ApiVersions and the SASL requests are not in it: the session answers them before there is a principal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from kwire.protocol import ApiKey


@dataclass(slots=True)
class RequestRecord:
    """One request. `latency_ms` is None and `outcome` "pending" until it is complete, for ever if a fault mutes it."""

    number: int  # from 1 on, in order of arrival
    time_ms: int  # wall time of the start
    api: ApiKey
    version: int
    node: int
    connection: int
    listener: str
    client_id: str
    software: str  # the name and version of the client's library, if it told them
    host: str
    principal: str
    size_bytes: int  # of the request's frame, without its size field
    correlation_id: int
    latency_ms: float | None = None
    outcome: str = "pending"  # then "response", "no response", "closed" or "cut"

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON has them; the API by its name."""
        return {**asdict(self), "api": self.api.api_name}


class RequestLog:
    """The last `size` requests. `listener(record)` is called when one is complete."""

    def __init__(self, size: int) -> None:
        self._records: deque[RequestRecord] = deque(maxlen=size)
        self._count = 0
        self.listener: Callable[[RequestRecord], None] | None = None

    def __iter__(self) -> Iterator[RequestRecord]:
        return iter(self._records)

    def begin(self, **fields: Any) -> RequestRecord:
        """Add a request that starts now."""
        self._count += 1
        record = RequestRecord(number=self._count, **fields)
        self._records.append(record)
        return record

    def end(self, record: RequestRecord, outcome: str, latency_ms: float) -> None:
        """Complete a request."""
        record.outcome, record.latency_ms = outcome, round(latency_ms, 3)
        if self.listener is not None:
            self.listener(record)

    def clear(self) -> None:
        self._records.clear()
