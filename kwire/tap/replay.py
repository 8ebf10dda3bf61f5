"""Replay the requests of a capture to a broker: `replay`. `kwire replay --to` is its face.

Each captured connection gets one of its own, to the broker with the same node id if the live cluster has one, else to
the bootstrap broker. A request waits until every response that came before it in the capture has come now, so a request
that depended on a response still follows it; requests that were in flight together are so again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal

from kwire.capture import Exchange
from kwire.capture.json import response_errors
from kwire.cluster.config import parse_bootstrap
from kwire.errors import ConnectError, KwireError, RequestTimeoutError, error_name
from kwire.net import Clock, KafkaSelector, SystemClock, Tls
from kwire.protocol import ApiKey
from kwire.protocol.headers import decode_response, encode_request
from kwire.session import Sasl, Session
from kwire.tap.live_values import LiveValues

Outcome = Literal["same", "differs", "unanswered", "skipped"]

# What changes nothing. Metadata is sent with allow_auto_topic_creation false unless writes are allowed.
READS = frozenset(
    {
        ApiKey.METADATA, ApiKey.API_VERSIONS, ApiKey.FIND_COORDINATOR, ApiKey.LIST_OFFSETS, ApiKey.FETCH,
        ApiKey.OFFSET_FETCH, ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.DESCRIBE_CLUSTER, ApiKey.DESCRIBE_CONFIGS,
        ApiKey.DESCRIBE_GROUPS, ApiKey.LIST_GROUPS, ApiKey.CONSUMER_GROUP_DESCRIBE, ApiKey.SHARE_GROUP_DESCRIBE,
        ApiKey.DESCRIBE_ACLS, ApiKey.DESCRIBE_LOG_DIRS, ApiKey.DESCRIBE_PRODUCERS, ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_TOPIC_PARTITIONS, ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_QUORUM, ApiKey.LIST_PARTITION_REASSIGNMENTS, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    }
)  # fmt: skip
# A capture has no secrets to send, and another connection must not log in as it did.
_NEVER = frozenset(
    {
        ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.ALTER_USER_SCRAM_CREDENTIALS, ApiKey.ENVELOPE,
        ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN,
    }
)  # fmt: skip
_CLIENT_ID = "kwire-replay"
WRITES = "it writes"  # why it is skipped


@dataclass(slots=True)
class Replayed:
    """What became of an exchange: `text` says why it was skipped, or how the response differs."""

    exchange: Exchange
    outcome: Outcome
    text: str = ""
    latency_ms: float | None = None
    response: Any = None


@dataclass(eq=False, slots=True)
class _Waiting:
    """A request in flight."""

    exchange: Exchange
    connection: int
    correlation_id: int
    sent_at: float
    answered_ns: int | None  # when the capture has the response


@dataclass(eq=False, slots=True)
class _Line:
    """A live connection."""

    node: int
    session: Session | None = None
    queued: list[bytes] = field(default_factory=list)  # until the session is ready
    error: str = ""


class _Replay:
    def __init__(
        self, bootstrap: str, clock: Clock, *, tls: Tls | bool | None, sasl: Sasl | None, topics: Mapping[str, str],
        writes: bool, speed: float | None, timeout: float,
    ) -> None:  # fmt: skip
        self._bootstrap = parse_bootstrap(bootstrap)[0]
        self._clock = clock
        self._sasl = sasl
        self._writes = writes
        self._speed = speed
        self._timeout = timeout
        self._selector = KafkaSelector(clock=clock, tls=tls, connect_timeout_ms=timeout * 1000)
        self._values = LiveValues(topics)
        self._lines: dict[int, _Line] = {}
        self._waiting: dict[tuple[int, int], _Waiting] = {}
        self._sends: list[tuple[Any, bytes]] = []
        self._correlation_ids = count(1)
        self._done: list[Replayed] = []

    def run(self, exchanges: Iterable[Exchange]) -> Iterator[Replayed]:
        began, first_ns = self._clock.now(), None
        for exchange in exchanges:
            if first_ns is None:
                first_ns = exchange.at_ns
            reason = self._why_not(exchange)
            if reason:
                yield Replayed(exchange, "skipped", reason)
                continue
            at_ns = exchange.at_ns
            self._turn_until(
                lambda at_ns=at_ns: (
                    not any(  # type: ignore[misc]
                        one.answered_ns is not None and one.answered_ns <= at_ns for one in self._waiting.values()
                    )
                )
            )
            if self._speed is not None:
                due = began + (at_ns - first_ns) / 1e9 / self._speed
                while self._clock.now() < due:
                    self._turn(due - self._clock.now())
            self._send(exchange)
            yield from self._take_done()
        self._turn_until(lambda: not self._waiting)
        yield from self._take_done()

    def close(self) -> None:
        self._selector.close()

    def _take_done(self) -> list[Replayed]:
        done, self._done = self._done, []
        return done

    def _why_not(self, exchange: Exchange) -> str:
        body = exchange.request.body if exchange.request is not None else None
        if body is None or exchange.api is None:
            return "its request is not in the capture, or cannot be read"
        if exchange.api.key in _NEVER:
            return "a capture has no secrets to send"
        if not self._writes and exchange.api.key not in READS:
            return WRITES
        return ""

    def _send(self, exchange: Exchange) -> None:
        assert exchange.request is not None
        assert exchange.api is not None
        number = exchange.connection.number
        line = self._lines.get(number) or self._open(exchange)
        if line.error:
            self._done.append(Replayed(exchange, "unanswered", line.error))
            return
        body: Any = exchange.request.body
        request = type(body).decode(body.encode(exchange.version), exchange.version)  # the exchange keeps its own
        self._values.put_into(request)
        if exchange.api.key == ApiKey.METADATA and not self._writes:
            request.allow_auto_topic_creation = False
        correlation_id = next(self._correlation_ids)
        parts = encode_request(request, exchange.version, correlation_id, exchange.client_id or _CLIENT_ID)
        frame = b"".join(bytes(part) for part in parts)
        if exchange.pair.frame.expects_response:
            latency_ns = exchange.pair.response.latency_ns if exchange.pair.response is not None else None
            answered_ns = None if latency_ns is None else exchange.at_ns + latency_ns
            self._waiting[number, correlation_id] = _Waiting(
                exchange, number, correlation_id, self._clock.now(), answered_ns
            )
        else:
            self._done.append(Replayed(exchange, "same", "no response is expected"))
        if line.session is not None and not line.session.is_ready:
            line.queued.append(frame)
        else:
            self._sends.append((number, frame))

    def _open(self, exchange: Exchange) -> _Line:
        number = exchange.connection.number
        host, _, port = exchange.connection.broker.rpartition(":")
        node = self._values.nodes.get((host.strip("[]"), int(port)), -1)
        address = self._values.addresses.get(node, self._bootstrap)
        line = self._lines[number] = _Line(node)
        if self._sasl is not None:
            line.session = Session.client(f"{address[0]}:{address[1]}", sasl=self._sasl)
        self._selector.connect(number, *address)
        return line

    # Network

    def _turn_until(self, is_done: Callable[[], bool]) -> None:
        """Turn until a condition holds. What is in flight for longer than the time limit is given up."""
        while not is_done():
            now = self._clock.now()
            for one in [one for one in self._waiting.values() if now - one.sent_at >= self._timeout]:
                self._give_up(one, str(RequestTimeoutError(f"no response within {self._timeout:g} s")))
            if not is_done():
                self._turn(0.2)

    def _turn(self, timeout: float) -> None:
        sends, self._sends = self._sends, []
        self._selector.poll(sends, max(0.0, timeout), until_sent=False)
        for number in self._selector.connected:
            line = self._lines[number]
            if line.session is not None:
                self._advance(number, line, line.session.start(self._clock.now()))
        for number, frame in list(self._selector.completed_receives):
            line = self._lines[number]
            if line.session is not None:
                self._advance(number, line, line.session.receive(bytes(frame), self._clock.now()))
            else:
                self._receive(number, bytes(frame))
        for gone in self._selector.disconnected:
            self._lost(gone.node, str(gone.cause))

    def _advance(self, number: int, line: _Line, events: Iterable[Any]) -> None:
        """Go on with the handshake; send what has waited for it."""
        session = line.session
        assert session is not None
        self._sends += [(number, b"".join(bytes(part) for part in parts)) for parts in session.frames()]
        for event in events:
            cause = getattr(event, "cause", None) or getattr(event, "error", None)
            if isinstance(cause, KwireError):
                self._lost(number, str(cause))
                return
        if session.is_ready and not session.has_frames:
            line.session = None
            self._sends += [(number, frame) for frame in line.queued]
            line.queued.clear()

    def _lost(self, number: int, error: str) -> None:
        """Give up what is in flight on a connection. The next request on it dials again."""
        line = self._lines.get(number)
        if line is None:
            return
        if line.session is not None or not any(one.connection == number for one in self._waiting.values()):
            line.error = error
        else:
            del self._lines[number]
        for one in [one for one in self._waiting.values() if one.connection == number]:
            self._give_up(one, error)

    def _give_up(self, one: _Waiting, error: str) -> None:
        del self._waiting[one.connection, one.correlation_id]
        self._done.append(Replayed(one.exchange, "unanswered", error))

    def _receive(self, number: int, frame: bytes) -> None:
        waiting = self._waiting.pop((number, int.from_bytes(frame[:4], "big", signed=True)), None)
        if waiting is None:
            return
        exchange = waiting.exchange
        assert exchange.api is not None
        assert exchange.request is not None
        latency_ms = (self._clock.now() - waiting.sent_at) * 1000
        try:
            _, live = decode_response(frame, exchange.api.request, exchange.version)
        except KwireError as error:
            self._done.append(Replayed(exchange, "differs", f"cannot be read: {error}", latency_ms))
            return
        captured = exchange.response.body if exchange.response is not None else None
        self._values.learn(exchange.api.key, exchange.request.body, captured, live)
        text = _difference(exchange, live)
        self._done.append(Replayed(exchange, "differs" if text else "same", text, latency_ms, live))


def _difference(exchange: Exchange, live: Any) -> str:
    """Return how the error codes of both responses differ; empty if they do not."""
    if exchange.response is None or exchange.response.body is None:
        return ""
    before = sorted({error.code for error in exchange.errors})
    now = sorted({error.code for error in response_errors(live.to_json(exchange.version))})
    if before == now:
        return ""
    then, found = ([error_name(code) for code in codes] or ["no error"] for codes in (before, now))
    return f"{', '.join(found)}; in the capture {', '.join(then)}"


def replay(
    exchanges: Iterable[Exchange], bootstrap: str, *, tls: Tls | bool | None = None, sasl: Sasl | None = None,
    topics: Mapping[str, str] | None = None, writes: bool = False, speed: float | None = None, timeout: float = 10.0,
    clock: Clock | None = None,
) -> Iterator[Replayed]:  # fmt: skip
    """Send the requests of a capture to a broker, and yield what became of each.

    exchanges   in the order of their requests, with their secrets: read_exchanges(path, redaction=Redaction(False))
    topics      topics under other names: {"orders": "orders-test"}
    writes      also send what changes the cluster; else it is skipped
    speed       1 keeps the capture's pace, 10 is ten times as fast; None waits only for responses
    timeout     seconds for each response

    Raises ConnectError if no request could be sent at all.
    """
    run = _Replay(
        bootstrap, clock or SystemClock(), tls=tls, sasl=sasl, topics=topics or {}, writes=writes, speed=speed,
        timeout=timeout,
    )  # fmt: skip
    failed, answered = "", False
    try:
        for one in run.run(sorted(exchanges, key=lambda exchange: exchange.at_ns)):
            answered |= one.outcome in ("same", "differs")
            failed = failed or (one.text if one.outcome == "unanswered" else "")
            yield one
    finally:
        run.close()
    if failed and not answered:
        raise ConnectError(f"nothing could be replayed to {bootstrap}: {failed}")
