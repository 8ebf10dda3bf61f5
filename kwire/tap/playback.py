"""Serve the responses of a capture to clients: `Playback`. `kwire replay --serve` is its face.

A request gets the response of a captured request of its API that is equal, byte for byte behind the header; else of one
that is equal but for what differs from run to run: ids that brokers give out, sequences, sessions, records, times. Of
several they come in the order of the capture, and the last one again and again. Unless `strict`, any other request
gets the response to the captured one that has the most fields in common. Broker addresses become the playback's.
A Fetch gets what was recorded from its offset on: see `playback_log`.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from kwire.capture import Exchange
from kwire.errors import ConfigurationError, KwireError
from kwire.net import Clock, KafkaSelector, SystemClock, Tls
from kwire.protocol import Api, ApiKey, api
from kwire.protocol.headers import decode_request, encode_response
from kwire.protocol.messages.api_versions import ApiVersionsResponse
from kwire.protocol.messages.fetch import FetchRequest
from kwire.tap.addresses import request_key, rewritten
from kwire.tap.background import BackgroundServer
from kwire.tap.playback_log import PlaybackLog

_IDLE_MS = 7 * 86_400_000
# A response with no records, at once, again and again, would keep the client and this process busy.
_DELAYED = frozenset({ApiKey.SHARE_FETCH})
_DELAY_SECONDS_MAX = 0.5
_UNSUPPORTED_VERSION = 35
# Fields that differ from run to run, by their JSON names.
_VOLATILE = frozenset(
    {
        "producerId", "producerEpoch", "v3AndBelowProducerId", "v3AndBelowProducerEpoch", "memberId", "generationId",
        "generationIdOrMemberEpoch", "memberEpoch", "sessionId", "sessionEpoch", "shareSessionEpoch", "records",
        "topicId", "currentLeaderEpoch", "lastFetchedEpoch", "clientSoftwareName", "clientSoftwareVersion", "metadata",
        "assignment", "assignments", "timeoutMs", "maxWaitMs", "minBytes", "maxBytes", "partitionMaxBytes", "replicaId",
        "committedLeaderEpoch", "clusterId", "clientInstanceId", "metrics", "highWatermark", "committedOffset",
    }
)  # fmt: skip


@dataclass(slots=True)
class _Recorded:
    """A captured exchange, as its response is looked for."""

    exchange: Exchange
    version: int
    body: bytes
    fields: dict[str, Any]
    response: Any


@dataclass(slots=True)
class _Choices:
    """The exchanges with the same key: each once, then the last one for ever."""

    recorded: deque[_Recorded] = field(default_factory=deque)

    def next(self) -> _Recorded:
        return self.recorded.popleft() if len(self.recorded) > 1 else self.recorded[0]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request got: `how` is equal, alike, nearest, by offset or none; `text` what differs, or why none."""

    api_name: str
    version: int
    how: str
    text: str = ""


class Library:
    """The responses of a capture, by request."""

    def __init__(self, exchanges: Iterable[Exchange]) -> None:
        self._equal: dict[Any, _Choices] = defaultdict(_Choices)
        self._alike: dict[Any, _Choices] = defaultdict(_Choices)
        self._by_api: dict[ApiKey, list[_Recorded]] = defaultdict(list)
        self.log = PlaybackLog()
        self.size = 0
        for exchange in exchanges:
            if exchange.request is None or exchange.response is None or exchange.api is None:
                continue
            request, response = exchange.request.body, exchange.response.body
            if request is None or response is None:
                continue
            key, version = exchange.api.key, exchange.version
            if key == ApiKey.FETCH:
                self.log.add(exchange)
            fields = stable_fields(request.to_json(version))
            one = _Recorded(exchange, exchange.response.version, request.encode(version), fields, response)
            self._equal[key, version, one.body].recorded.append(one)
            self._alike[key, _text(fields)].recorded.append(one)
            self._by_api[key].append(one)
            self.size += 1

    def find(self, found: Api, version: int, request: Any, *, strict: bool) -> tuple[_Recorded | None, Answer]:
        """Return what was recorded for a request, and how it was found."""
        equal = self._equal.get((found.key, version, request.encode(version)))
        if equal is not None:
            one = equal.next()
            self._forget(one, found.key)
            return one, Answer(found.name, version, "equal")
        fields = stable_fields(request.to_json(version))
        alike = self._alike.get((found.key, _text(fields)))
        if alike is not None:
            return alike.next(), Answer(found.name, version, "alike")
        near = max(self._by_api[found.key], key=lambda one: _likeness(one.fields, fields), default=None)
        if near is None:
            return None, Answer(found.name, version, "none", f"the capture has no {found.name}")
        text = f"the nearest is packet {near.exchange.packets[0]}: {differences(near.fields, fields)}"
        if strict:
            return None, Answer(found.name, version, "none", text)
        return near, Answer(found.name, version, "nearest", text)

    def _forget(self, one: _Recorded, key: ApiKey) -> None:
        """Remove a response that was given from the responses to alike requests, which are given in order."""
        alike = self._alike[key, _text(one.fields)].recorded
        if len(alike) > 1 and one in alike:
            alike.remove(one)


def stable_fields(value: Any) -> Any:
    """Return a message's JSON without what differs from run to run."""
    if isinstance(value, dict):
        return {name: stable_fields(inner) for name, inner in value.items() if name not in _VOLATILE}
    if isinstance(value, list):
        return [stable_fields(inner) for inner in value]
    return value


def _text(fields: Any) -> str:
    return repr(fields)


def _leaves(value: Any, path: str = "") -> Iterable[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _leaves(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and value:
        for index, inner in enumerate(value):
            yield from _leaves(inner, f"{path}[{index}]")
    else:
        yield path, value


def _likeness(a: dict[str, Any], b: dict[str, Any]) -> int:
    first, second = dict(_leaves(a)), dict(_leaves(b))
    equal: int = sum(name in second and second[name] == value for name, value in first.items())
    return 2 * equal - len(first) - len(second)


def differences(captured: dict[str, Any], asked: dict[str, Any]) -> str:
    """Return the fields that differ: `topics[0].name is x, not y`."""
    before, now = dict(_leaves(captured)), dict(_leaves(asked))
    found = [
        f"{name} is {now.get(name, 'left out')!r:.60}, not {before.get(name, 'left out')!r:.60}"
        for name in dict.fromkeys([*before, *now])
        if name not in before or name not in now or before[name] != now[name]
    ]
    return "; ".join(found[:3]) + (f"; and {len(found) - 3} more" if len(found) > 3 else "") or "only its version"


class Playback(BackgroundServer):
    """A broker that only knows a capture. It runs until `close`, or the end of its `with` block.

    exchanges    of the capture
    listen       where clients connect; port 0 takes a free one. Listeners for other brokers get free ports
    strict       give no response to a request that is neither equal nor alike: its connection ends
    on_answer    gets an `Answer` for each request, on the playback's thread
    tls          certificate and key for TLS

    Raises ConfigurationError if the capture has nothing to serve, ConnectError if the address is not available.
    """

    def __init__(
        self, exchanges: Iterable[Exchange], *, listen: tuple[str, int] = ("127.0.0.1", 0), strict: bool = False,
        on_answer: Callable[[Answer], object] = lambda answer: None, tls: Tls | None = None, clock: Clock | None = None,
    ) -> None:  # fmt: skip
        self._library = Library(exchanges)
        if not self._library.size:
            raise ConfigurationError("the capture has no exchange whose response could be served")
        self._clock = clock or SystemClock()
        self._strict = strict
        self._on_answer = on_answer
        self._tls = tls
        self._host = listen[0]
        self._selector = KafkaSelector(clock=self._clock, idle_timeout_ms=_IDLE_MS)
        self._listeners: dict[tuple[str, int], tuple[str, int]] = {}
        try:
            port = self._selector.listen(*listen, tls=tls)[1]
        except KwireError:
            self._selector.close()
            raise
        self._first = (self._host, port)
        self._queues: dict[Any, deque[tuple[float, bytes]]] = {}  # of a connection: when, response
        self.answers = 0
        self.unknown = 0
        self._sends: list[tuple[Any, bytes]] = []
        super().__init__("kwire replay")
        self._start()

    def _listener(self) -> tuple[str, int]:
        return self._first

    def _turn(self) -> None:
        due = [queue[0][0] for queue in self._queues.values() if queue]
        timeout = max(0.0, min(due) - self._clock.now()) if due else None
        self._selector.poll(self._sends, timeout, until_sent=False)
        for node in self._selector.accepted:
            self._queues[node] = deque()
        for node, frame in list(self._selector.completed_receives):
            self._take(node, bytes(frame))
        for gone in self._selector.disconnected:
            self._queues.pop(gone.node, None)
        self._sends = self._due()

    def _wakeup(self) -> None:
        self._selector.wakeup()

    def _release(self) -> None:
        self._selector.close()

    def _due(self) -> list[tuple[Any, bytes]]:
        """Return the responses whose time has come, of each connection in their order."""
        now, found = self._clock.now(), []
        for node, queue in self._queues.items():
            while queue and queue[0][0] <= now:
                found.append((node, queue.popleft()[1]))
        return found

    def _take(self, node: Any, frame: bytes) -> None:
        queue = self._queues.get(node)
        if queue is None:
            return
        response, delay = self._answer(frame)
        if response is None:
            del self._queues[node]
            self._selector.disconnect(node)
        elif response:
            queue.append((self._clock.now() + delay, response))

    def _answer(self, frame: bytes) -> tuple[bytes | None, float]:
        """Return the response to a request and its delay: None ends the connection, empty bytes are no response."""
        head = request_key(frame)
        if head is None:
            self._tell(Answer("(unknown)", -1, "none", "these are no bytes of a Kafka request"))
            return None, 0.0
        found, version, correlation_id = api(head[0]), head[1], head[2]
        if version not in found.versions:
            if found.key == ApiKey.API_VERSIONS:
                return self._versions(correlation_id), 0.0
            self._tell(Answer(found.name, version, "none", f"kwire does not know version {version}"))
            return None, 0.0
        try:
            _, request = decode_request(frame)
        except KwireError as error:
            self._tell(Answer(found.name, version, "none", str(error)))
            return None, 0.0
        if found.key == ApiKey.PRODUCE and getattr(request, "acks", -1) == 0:
            return b"", 0.0
        if isinstance(request, FetchRequest):
            return self._fetched(request, version, correlation_id)
        one, answer = self._library.find(found, version, request, strict=self._strict)
        self._tell(answer)
        if one is None:
            return None, 0.0
        try:
            return self._encoded(one, found, version, correlation_id), self._delay(one, found.key)
        except KwireError as error:
            self._tell(Answer(found.name, version, "none", f"its response does not fit version {version}: {error}"))
            return None, 0.0

    def _fetched(self, request: FetchRequest, version: int, correlation_id: int) -> tuple[bytes, float]:
        response, has_news = self._library.log.fetch(request)
        self._tell(Answer("Fetch", version, "by offset"))
        delay = 0.0 if has_news else min(request.max_wait_ms / 1000, _DELAY_SECONDS_MAX)
        return b"".join(bytes(part) for part in encode_response(response, version, correlation_id)), delay

    def _encoded(self, one: _Recorded, found: Api, version: int, correlation_id: int) -> bytes:
        # A broker refuses a version of ApiVersions with a response of version 0.
        used = one.version if found.key == ApiKey.API_VERSIONS and one.response.error_code else version
        frame = b"".join(bytes(part) for part in encode_response(one.response, used, correlation_id))
        return rewritten(frame, found.key, used, self._translate) or frame

    def _versions(self, correlation_id: int) -> bytes:
        response = ApiVersionsResponse(error_code=_UNSUPPORTED_VERSION, api_keys=[])
        return b"".join(bytes(part) for part in encode_response(response, 0, correlation_id))

    def _delay(self, one: _Recorded, key: ApiKey) -> float:
        return min((one.exchange.latency_ms or 0.0) / 1000, _DELAY_SECONDS_MAX) if key in _DELAYED else 0.0

    def _tell(self, answer: Answer) -> None:
        self.answers += 1
        self.unknown += answer.how == "none"
        self._on_answer(answer)

    def _translate(self, host: str, port: int) -> tuple[str, int]:
        """Return where clients find a broker of the capture: the first one that is named, at the bootstrap address."""
        address = self._listeners.get((host, port))
        if address is None:
            address = self._first
            if self._listeners:
                address = (self._host, self._selector.listen(self._host, 0, tls=self._tls)[1])
            self._listeners[host, port] = address
        return address
