"""One broker: takes requests, finds the handler, carries faults out.

Owns the way of a request from its decoded form to its outcome (Kafka's KafkaApis), nothing of what it means: that is
`handlers`. No socket, no clock.
"""

from __future__ import annotations

from typing import Any

from kwire.broker.broker_state import BrokerState
from kwire.broker.exchange import CloseConnection, CutAnswer, Outcome, Reply, RequestContext
from kwire.broker.faults import ApplyLate, Cut, Delay, Disconnect, Fault, Mute, Refuse
from kwire.broker.handlers.handler import Handler
from kwire.broker.handlers.table import HANDLERS
from kwire.protocol import ApiKey


class Broker(BrokerState):
    """The broker `id` of a cluster."""

    def handle(self, exchange: RequestContext, now: float) -> None:
        """`exchange` is finished now, later (by a timer or a change of the cluster's state) or, by a fault, never."""
        api = ApiKey(exchange.request.API_KEY)
        handler = HANDLERS[api]
        self.cluster.requests[api] += 1
        faults = self.cluster.faults
        fault = None
        if faults:
            places = handler.places(self, exchange.request)
            fault = faults.match(api, self.id, exchange.client_id, places)
        if fault is None:
            self._run(handler, exchange, now)
        else:
            self._run_with(fault, handler, exchange, now)

    def _run(self, handler: Handler[Any], exchange: RequestContext, now: float) -> None:
        if not self.node.is_up:  # it was stopped while a fault held the request back
            return
        response = handler.handle(self, exchange.request, exchange, now)
        if response is not None:
            exchange.answer(response)

    def _apply(self, handler: Handler[Any], exchange: RequestContext, now: float) -> None:
        """Carry out and tell nobody."""
        self._run(handler, exchange.shadow(_tell_nobody), now)

    def _run_with(self, fault: Fault, handler: Handler[Any], exchange: RequestContext, now: float) -> None:
        match fault.effect:
            case Refuse(code, applied):
                self._refuse(fault, handler, exchange, code, applied, now)
            case Disconnect(applied):
                if applied:
                    self._apply(handler, exchange, now)
                exchange.finish(CloseConnection())
            case Cut(keep_bytes):
                self._run(handler, exchange.shadow(lambda outcome: exchange.finish(_cut(outcome, keep_bytes))), now)
            case Delay(ms, applied):
                self._delay(handler, exchange, now + ms / 1000, applied, now)
            case Mute(applied):
                if applied:
                    self._apply(handler, exchange, now)
            case ApplyLate(ms):
                self.cluster.timers.at(now + ms / 1000, lambda now: self._apply(handler, exchange, now))
                exchange.finish(CloseConnection())

    def _refuse(
        self, fault: Fault, handler: Handler[Any], exchange: RequestContext, code: int, applied: bool, now: float
    ) -> None:
        refuse = handler.refuse
        if applied:
            self._apply(handler, exchange, now)
            refuse = handler.refuse_applied or refuse
        elif fault.has_place and handler.refuses_places:
            exchange.refusal = fault.refusal
            self._run(handler, exchange, now)
            return
        exchange.answer(refuse(exchange.request, code, exchange.version))

    def _delay(self, handler: Handler[Any], exchange: RequestContext, until: float, applied: bool, now: float) -> None:
        timers = self.cluster.timers
        if not applied:
            timers.at(until, lambda now: self._run(handler, exchange, now))
            return

        def finish(outcome: Outcome) -> None:
            timers.at(until, lambda _: exchange.finish(outcome))

        self._run(handler, exchange.shadow(finish), now)


def _tell_nobody(outcome: Outcome) -> None:
    pass


def _cut(outcome: Outcome, keep_bytes: int) -> Outcome:
    return CutAnswer(outcome.response, keep_bytes) if isinstance(outcome, Reply) else outcome
