"""What a message carries beside its payload, in headers of its record: kwire-mq-id and the others.

The payload stays as it is, and so do the headers of the user. All times are the brokers': of the record's append time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from uuid import uuid4

from kwire.queue.markers import FIRST_AT, ID, PREFIX, Headers

DELIVERIES = "kwire-mq-deliveries"
EXPIRES_IN = "kwire-mq-expires-in"
DELAY = "kwire-mq-delay"
TIMEOUT = "kwire-mq-timeout"
REASON = "kwire-mq-reason"
FROM = "kwire-mq-from"
REDRIVEN = "kwire-mq-redriven"  # of a note in the dead letter topic: the offset of what was sent back

_DIGITS_MAX = 18  # more may not fit 64 bits


@dataclass(slots=True)
class Envelope:
    """The headers of a message, read. `deliveries` are those before; times and durations are milliseconds.

    `expires_at` is no header: seconds of the clock of the consumer's loop, once a consumer has the message.
    """

    id: str = ""
    first_at: int = 0  # 0: this record is the first
    deliveries: int = 0
    expires_in: int = 0  # 0: never
    delay: int = 0
    timeout: int = 0  # 0: the service's
    user: Headers = ()
    expires_at: float = inf

    @classmethod
    def read(cls, headers: Headers) -> Envelope:
        """Return the envelope in these headers. What is unreadable counts as absent."""
        found = cls()
        user = []
        for name, value in headers:
            if not name.startswith(PREFIX):
                user.append((name, value))
            elif name == ID:
                found.id = (value or b"").decode(errors="replace")
            elif name in _NUMBERS and (number := read_number(value)) is not None:
                setattr(found, _NUMBERS[name], number)
        found.user = tuple(user)
        return found

    def headers(self) -> Headers:
        """Return the headers of a record with this envelope."""
        numbers = ((name, getattr(self, field)) for name, field in _NUMBERS.items())
        own = [(name, b"%d" % number) for name, number in numbers if number]
        return (*self.user, (ID, self.id.encode()), *own)


_NUMBERS = {
    FIRST_AT: "first_at",
    DELIVERIES: "deliveries",
    EXPIRES_IN: "expires_in",
    DELAY: "delay",
    TIMEOUT: "timeout",
}


def read_number(value: bytes | None) -> int | None:
    """Return the number in a header; None for what is no number, or too large for one."""
    return int(value) if value is not None and value.isdigit() and len(value) <= _DIGITS_MAX else None


def new_id() -> str:
    """Return an id for a message without one."""
    return uuid4().hex


def dead_letter_headers(
    headers: Headers, reason: str, source: Iterable[object], deliveries: int | None = None
) -> Headers:
    """Return the headers of a dead letter: those of the message, why it is one, and the place of its last record.

    `deliveries` is how often it was delivered; None: as the headers say.
    """
    replaced = {REASON, FROM} if deliveries is None else {REASON, FROM, DELIVERIES}
    kept = tuple(pair for pair in headers if pair[0] not in replaced)
    if deliveries:
        kept = (*kept, (DELIVERIES, b"%d" % deliveries))
    return (*kept, (REASON, reason.encode()), (FROM, ":".join(map(str, source)).encode()))


def redelivery_headers(headers: Headers, *, is_uncounted: bool) -> Headers:
    """Return the headers of the record that delivers a message again."""
    envelope = Envelope.read(headers)
    envelope.delay = 0
    envelope.deliveries += not is_uncounted
    return envelope.headers()
