"""The producer id and epoch of an idempotent producer, and when it needs new ones.

    UNKNOWN -- request --> REQUESTED -- response --> KNOWN -- require_epoch_bump --> NEEDS_BUMP
                            |     ^                                                      |
                            |     '-------- request, once the window has drained --------'
                            '-- no broker gives ids (before 0.11) --> DISABLED

For a bump we request a fresh producer id rather than the next epoch of the old one: that works with older brokers, and
no broker can hold state under an id that nobody had. A transactional id keeps its producer id and gets the next
epoch: the request names the present one, so that the producer learns that it was fenced, instead of fencing its
successor (KIP-360).
"""

from __future__ import annotations

from enum import Enum, auto

from kwire.errors import KwireError
from kwire.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_NAMES_ITS_EPOCH_SINCE = 3


class IdStatus(Enum):
    UNKNOWN = auto()
    REQUESTED = auto()
    KNOWN = auto()
    NEEDS_BUMP = auto()
    DISABLED = auto()


class ProducerIdState:
    """`is_idempotent`: batches get sequences. `is_usable`: a batch may be sequenced, or sent without one, now."""

    def __init__(self, is_wanted: bool, *, transactional_id: str | None = None, timeout_ms: int = 60_000) -> None:
        self.transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._become(IdStatus.UNKNOWN if is_wanted else IdStatus.DISABLED)
        self.producer_id = -1
        self.producer_epoch = -1
        self.retry_at = 0.0
        self.attempts = 0
        self.last_error: KwireError | None = None  # why there is none, or no new one

    def _become(self, state: IdStatus) -> None:
        self.state = state
        self.is_idempotent = state is not IdStatus.DISABLED
        self.is_usable = state in (IdStatus.KNOWN, IdStatus.DISABLED)

    @property
    def needs_request(self) -> bool:
        """Return whether it needs an InitProducerId request, now or later."""
        return self.state in (IdStatus.UNKNOWN, IdStatus.NEEDS_BUMP)

    def should_request(self, now: float, is_drained: bool) -> bool:
        """Return whether to send InitProducerId now.

        `is_drained`: no sequenced batch is in flight or possibly persisted (rule 2).
        """
        if now < self.retry_at:
            return False
        return self.state is IdStatus.UNKNOWN or (self.state is IdStatus.NEEDS_BUMP and is_drained)

    def mark_requested(self) -> None:
        assert self.state in (IdStatus.UNKNOWN, IdStatus.NEEDS_BUMP)
        self._become(IdStatus.REQUESTED)

    def request(self, version: int) -> InitProducerIdRequest:
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=self._timeout_ms)
        if self.transactional_id is not None and version >= _NAMES_ITS_EPOCH_SINCE:
            request.producer_id, request.producer_epoch = self.producer_id, self.producer_epoch
        return request

    def update(self, response: InitProducerIdResponse) -> None:
        assert self.state is IdStatus.REQUESTED
        self._become(IdStatus.KNOWN)
        self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch
        self.attempts = 0
        self.last_error = None

    def bump(self, producer_id: int, producer_epoch: int) -> None:
        """Adopt the epoch that the end of a transaction returned (KIP-890)."""
        self._become(IdStatus.KNOWN)
        self.producer_id, self.producer_epoch = producer_id, producer_epoch

    def request_failed(self, retry_at: float, error: KwireError) -> None:
        assert self.state is IdStatus.REQUESTED
        self._become(IdStatus.UNKNOWN)
        self.retry_at = retry_at
        self.last_error = error

    def require_epoch_bump(self) -> None:
        """Hold back new batches until the window has drained and there is a new id: a sequence was lost or refused."""
        if self.state is IdStatus.KNOWN:
            self._become(IdStatus.NEEDS_BUMP)

    def disable(self) -> None:
        """Go on without idempotence: no broker gives ids."""
        assert self.state is IdStatus.UNKNOWN
        self._become(IdStatus.DISABLED)
