"""Producer ids and epochs: who gets which, and who is fenced by whom.

Owns the answers to InitProducerId. A transactional id keeps its producer id and gets a higher epoch each time; a
producer without one gets a new id whatever it says that it has, as Kafka's coordinator does it.
"""
from __future__ import annotations

from dataclasses import dataclass

from kwire.broker.options import Options
from kwire.errors import ErrorCode, broker_error

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
EPOCH_MAX = 2**15 - 1


@dataclass(slots=True)
class Identity:
    producer_id: int
    epoch: int


class ProducerIds:
    def __init__(self, options: Options) -> None:
        self._options = options
        self._next_id = 0
        self._transactional: dict[str, Identity] = {}

    def init(
        self,
        transactional_id: str | None,
        *,
        timeout_ms: int,
        producer_id: int = NO_PRODUCER_ID,
        epoch: int = NO_PRODUCER_EPOCH,
    ) -> Identity:
        """Raises BrokerError. `producer_id` and `epoch` are those that the producer has, if it has any."""
        if transactional_id is None:
            return self._new()
        if not transactional_id:
            raise broker_error(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        if not 0 < timeout_ms <= self._options.max_transaction_timeout_ms:
            raise broker_error(ErrorCode.INVALID_TRANSACTION_TIMEOUT, f"{timeout_ms} ms")
        known = self._transactional.get(transactional_id)
        if known is None:
            made = self._new()
        else:
            if producer_id >= 0 and (producer_id, epoch) != (known.producer_id, known.epoch):
                raise broker_error(ErrorCode.PRODUCER_FENCED, f"a newer producer uses {transactional_id}")
            made = self._bump(known)
        self._transactional[transactional_id] = made
        return made

    def _new(self) -> Identity:
        made = Identity(self._next_id, 0)
        self._next_id += 1
        return made

    def _bump(self, known: Identity) -> Identity:
        """The last epoch but one is the end: 32767 is kept for the coordinator's own fencing."""
        if known.epoch >= EPOCH_MAX - 1:
            return self._new()
        return Identity(known.producer_id, known.epoch + 1)
