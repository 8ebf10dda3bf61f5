"""The producer id and epoch of an idempotent producer, and when it must get new ones: a state machine.

    UNKNOWN -- ask --> ASKED -- answered --> KNOWN -- break --> BROKEN -- ask (window drained) --> ASKED
                         '-- the brokers are too old (before 0.11) --> ABSENT

After a break we ask for a fresh producer id rather than for the next epoch of the old one: it needs no newer broker,
and no broker can hold state under an id that nobody had. A transactional id keeps its producer id, and gets the next
epoch: by naming the present one the producer learns that it has been fenced, instead of fencing its successor
(KIP-360).
"""

from __future__ import annotations

from enum import Enum, auto

from kwire.errors import KwireError
from kwire.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_NAMES_ITS_EPOCH_SINCE = 3


class IdStatus(Enum):
    UNKNOWN = auto()
    ASKED = auto()
    KNOWN = auto()
    BROKEN = auto()
    ABSENT = auto()


class ProducerIdState:
    def __init__(self, is_wanted: bool, *, transactional_id: str | None = None, timeout_ms: int = 60_000) -> None:
        self.transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self.state = IdStatus.UNKNOWN if is_wanted else IdStatus.ABSENT
        self.producer_id = -1
        self.producer_epoch = -1
        self.retry_at = 0.0
        self.attempts = 0
        self.last_error: KwireError | None = None  # why there is none, or no new one

    @property
    def is_idempotent(self) -> bool:
        """Whether batches are to be sequenced."""
        return self.state is not IdStatus.ABSENT

    @property
    def is_usable(self) -> bool:
        """Whether a batch may be sequenced, or sent without one, now."""
        return self.state in (IdStatus.KNOWN, IdStatus.ABSENT)

    @property
    def is_to_be_asked(self) -> bool:
        """Whether InitProducerId is what it waits for, sooner or later."""
        return self.state in (IdStatus.UNKNOWN, IdStatus.BROKEN)

    def must_ask(self, now: float, is_drained: bool) -> bool:
        """Whether to send InitProducerId now. `is_drained`: no sequenced batch is out or of unknown fate (rule 2)."""
        if now < self.retry_at:
            return False
        return self.state is IdStatus.UNKNOWN or (self.state is IdStatus.BROKEN and is_drained)

    def ask(self) -> None:
        assert self.state in (IdStatus.UNKNOWN, IdStatus.BROKEN)
        self.state = IdStatus.ASKED

    def request(self, version: int) -> InitProducerIdRequest:
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=self._timeout_ms)
        if self.transactional_id is not None and version >= _NAMES_ITS_EPOCH_SINCE:
            request.producer_id, request.producer_epoch = self.producer_id, self.producer_epoch
        return request

    def answered(self, response: InitProducerIdResponse) -> None:
        assert self.state is IdStatus.ASKED
        self.state = IdStatus.KNOWN
        self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch
        self.attempts = 0
        self.last_error = None

    def renewed(self, producer_id: int, producer_epoch: int) -> None:
        """The end of a transaction brought a new epoch (KIP-890)."""
        self.state = IdStatus.KNOWN
        self.producer_id, self.producer_epoch = producer_id, producer_epoch

    def failed(self, retry_at: float, error: KwireError) -> None:
        assert self.state is IdStatus.ASKED
        self.state = IdStatus.UNKNOWN
        self.retry_at = retry_at
        self.last_error = error

    def require_epoch_bump(self) -> None:
        """A sequence was burnt or refused: no new batch until the window has drained and a new identity is there."""
        if self.state is IdStatus.KNOWN:
            self.state = IdStatus.BROKEN

    def give_up(self) -> None:
        """The brokers know no idempotence; go on without."""
        assert self.state is IdStatus.UNKNOWN
        self.state = IdStatus.ABSENT
