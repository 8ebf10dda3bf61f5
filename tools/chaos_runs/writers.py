"""Produce numbered records from several threads with one producer, and note the result of each.

The threads spread their records over the length of the scenario, in bursts, so that some are always in flight, and send
more until the scenario is over. Records that a full buffer delayed are sent as soon as there is room.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from chaos_runs.proof import Failure
from chaos_runs.sequence import Number, key_of, value_of
from kwire import Producer, ProduceResponse
from kwire.errors import DeliveryError, KwireError

SENDERS = 4
# Small batches and a small buffer: many requests are in flight, and the loss of a leader blocks the threads soon.
_OPTIONS: dict[str, Any] = {
    "batch_bytes": 4_096,
    "max_buffered_bytes": 8 * 1024 * 1024,
    "request_timeout_ms": 10_000,  # requests to a broker that pauses for 20 s time out, with unknown results
    "max_block_ms": 180_000,
}
_BURST = 25
_FLUSH_S = 180.0
_POLL_S = 0.01


class Writers:
    """Send `records` in all senders together over `seconds`; use it as a context manager, then read the results."""

    def __init__(self, bootstrap: str, topic: str, records: int, seconds: float, *, delivery_timeout_ms: int) -> None:
        self._topic = topic
        self._share = -(-records // SENDERS)
        self._rate = self._share / seconds if seconds else float("inf")  # per sender and second
        self._is_over = threading.Event()
        self._responses: list[list[ProduceResponse]] = [[] for _ in range(SENDERS)]
        self._threads = [
            threading.Thread(target=self._send_all, args=(sender,), name=f"sender {sender}", daemon=True)
            for sender in range(SENDERS)
        ]
        self._errors: list[BaseException] = []
        self._acknowledged = 0
        self._began_at = self._last_at = time.monotonic()
        self.longest_stall = 0.0
        self.producer = Producer(bootstrap, client_id="chaos", delivery_timeout_ms=delivery_timeout_ms, **_OPTIONS)

    def __enter__(self) -> Writers:
        self._began_at = self._last_at = time.monotonic()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._is_over.set()
        self.producer.close(0)
        for thread in self._threads:
            thread.join()

    @property
    def acknowledged(self) -> int:
        """Return the number of records with a result."""
        return self._acknowledged

    @property
    def seconds(self) -> float:
        """Return the seconds from the first record to the last result."""
        return self._last_at - self._began_at

    def finish(self) -> None:
        """Send the rest at full speed after the scenario, and wait for all results."""
        self._is_over.set()
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise self._errors[0]
        self.producer.flush(_FLUSH_S)

    def sent(self) -> dict[int, int]:
        return {sender: len(responses) for sender, responses in enumerate(self._responses)}

    def outcomes(self) -> tuple[dict[Number, tuple[int, int]], dict[Number, Failure]]:
        """Return the (partition, offset) of each acknowledged record and the errors of the others, after `finish`."""
        places: dict[Number, tuple[int, int]] = {}
        failed: dict[Number, Failure] = {}
        for sender, responses in enumerate(self._responses):
            for serial, response in enumerate(responses):
                number = Number(sender, serial)
                try:
                    place = response.result(0)
                    places[number] = place.partition, place.offset
                except KwireError as error:
                    in_doubt = isinstance(error, DeliveryError) and error.possibly_persisted
                    failed[number] = Failure(str(error), in_doubt)
        return places, failed

    def _send_all(self, sender: int) -> None:
        responses = self._responses[sender]
        try:
            while len(responses) < self._share or not self._is_over.is_set():
                for _ in range(_BURST):
                    number = Number(sender, len(responses))
                    value, key = value_of(number), key_of(number)
                    responses.append(self.producer.send(self._topic, value, key=key, on_delivery=self._on_delivery))
                    if len(responses) == self._share and self._is_over.is_set():
                        return
                self._wait_until(self._began_at + len(responses) / self._rate)
        except BaseException as error:
            self._errors.append(error)

    def _wait_until(self, moment: float) -> None:
        self._is_over.wait(max(_POLL_S, moment - time.monotonic()))

    def _on_delivery(self, response: ProduceResponse) -> None:
        """Note a response, on the producer's one thread for callbacks."""
        now = time.monotonic()
        self.longest_stall = max(self.longest_stall, now - self._last_at)
        self._last_at = now
        self._acknowledged += 1
