"""`KafkaSelector`: frames to and from many nodes, on one thread, over the standard `selectors`.

The selector handles each connection from `connect` to its end: back-off, name resolution, dialling, TLS handshake,
reading, writing and the idle timeout; and the listeners of a broker. It knows frames and no message. The interface is
that of Kafka's own Selector: `connect`, `disconnect`, and a `poll` after which lists say what happened. Read
`kwire.net` first.

`Wakeup` wakes it from another thread.
"""

from __future__ import annotations

import logging
import os
import selectors
import socket
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import count
from math import inf
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from kwire.errors import ClosedError, ConfigurationError, DisconnectedError, NodeError
from kwire.net.backoff import Backoff, ReconnectBackoff
from kwire.net.channel import READ, WRITE, Channel, SendQueue, receive_into, send_pieces
from kwire.net.clock import Clock, SystemClock
from kwire.net.dial import Dial, Outcome, Resolver, Stage, ThreadResolver, show_address
from kwire.net.listener import Listener
from kwire.net.timers import Timer, Timers
from kwire.net.tls import ClientContexts, Tls
from kwire.wire.frame import MAX_FRAME_BYTES, BytesLike, Frame, FrameReader

if TYPE_CHECKING:
    from kwire.net.tls_filter import TlsContext, TlsFilter

# The caller's name for a connection: a broker id, or any other hashable value. It is Any, so that type checkers give
# it back as the type that went in.
Node: TypeAlias = Any


class Receive(NamedTuple):
    """A whole frame without its size field: bytes, or with `reuse_buffers` sometimes a memoryview."""

    node: Node
    frame: BytesLike


class Sent(NamedTuple):
    """A frame that the kernel has taken whole: the object that was given to `poll`."""

    node: Node
    frame: Frame


class Disconnection(NamedTuple):
    """A connection, or an attempt at one, that ended without a call of `disconnect`.

    `cause` is the error, which may be raised. `unsent` counts the frames that were not written whole, so that the peer
    cannot have acted on them. `is_idle` is true where nothing is wrong: the selector closed an unused connection.
    """

    node: Node
    cause: NodeError
    unsent: int = 0
    is_idle: bool = False


_log = logging.getLogger("kwire.net")

_Link: TypeAlias = Dial | Channel
_BUFFER_BYTES = 256 * 1024
# The longest wait of one select: epoll takes no more than 24 days. A poll that waits longer returns early.
_WAIT_SECONDS_MAX = 24 * 60 * 60.0
# Back-offs are swept when they are more than this and twice as many as after the last sweep.
_BACKOFFS_KEPT = 1024
# The pause of a listener after the process has run out of file descriptors: until then it would be ready all the time.
_ACCEPT_PAUSE_SECONDS = 0.1


class KafkaSelector:
    """Many connections on one thread; only `poll` waits.

    `connect` begins a connection and `poll` takes frames to send. Each poll replaces these lists with what happened:

    - `connected`: the nodes whose connection is ready, TLS handshake included
    - `completed_receives`: `Receive(node, frame)` for each frame received, in order per node; `poll` returns this list
    - `completed_sends`: `Sent(node, frame)` for each frame that the kernel has taken whole, in order per node
    - `disconnected`: `Disconnection(node, cause, unsent, is_idle)` for each connection or attempt that ended by itself.
      Frames received in the same poll came before the end. A failed attempt is here and never in `connected`
    - `accepted`: the nodes of new connections of a listener, named by the selector
    - `rejected`: a `Disconnection` for each accepted connection whose TLS handshake failed; it is in no other list

    Use a selector from one thread; other threads may call only `wakeup`. A forked child must make its own. Methods
    raise ClosedError after `close` and in a forked child, and TypeError for an argument of a wrong type.

    >>> broker, client = KafkaSelector(), KafkaSelector()
    >>> host, port = broker.listen("127.0.0.1", 0)
    >>> client.connect(1, host, port)
    >>> while not broker.completed_receives:  # the frame waits for the connection
    ...     _ = client.poll([(1, b"ping")] if 1 not in client.connected else [], 0.01)
    ...     _ = broker.poll([], 0.01)
    >>> sender, frame = broker.completed_receives[0]
    >>> frame
    b'ping'
    >>> _ = broker.poll([(sender, b"po" + frame[2:]), (sender, [b"in two", b" parts"])], 0)
    >>> client.poll([], 10)
    [Receive(node=1, frame=b'pong'), Receive(node=1, frame=b'in two parts')]
    >>> client.close(), broker.close()
    (None, None)
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        random: Random | None = None,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        connect_timeout_ms: float = 10_000,
        idle_timeout_ms: float = 540_000,
        reconnect_backoff_ms: float = 50,
        reconnect_backoff_ms_max: float = 1_000,
        read_bytes_per_poll: int = 4 * 1024 * 1024,
        reuse_buffers: bool = False,
        tls: Tls | bool | None = None,
        resolver: Resolver | None = None,
    ) -> None:
        """Make a selector. Times are milliseconds, sizes are bytes.

        clock, random            the clock and the random numbers, for tests: see `VirtualClock`
        max_frame_bytes          a larger frame ends its connection
        connect_timeout_ms       the limit of one attempt: name resolution, all addresses and TLS handshake together
        idle_timeout_ms          a connection that was not used for this time is closed; `is_idle` is then true, except
                                 in the middle of a frame, where the peer is at fault
        reconnect_backoff_ms     the wait before the first attempt after a failure. It doubles with each failure, with
                                 20 % jitter, up to reconnect_backoff_ms_max, and ends when the node sends a frame
        read_bytes_per_poll      the most that one poll reads from one node, so that a fast node does not starve others
        reuse_buffers            a large frame may be a read-only view of memory that is used again once nothing refers
                                 to the view: faster for callers that decode a frame and drop it
        tls                      a `Tls`, or True for its defaults, for connections that do not set their own
        resolver                 a resolver of host names in place of the system's; the caller closes it

        Raises ConfigurationError for a wrong option, and for a TLS file that cannot be loaded. The files of a `Tls` are
        read once: a renewed certificate needs a new selector.
        """
        for name, value in [
            ("connect_timeout_ms", connect_timeout_ms),
            ("idle_timeout_ms", idle_timeout_ms),
            ("reconnect_backoff_ms", reconnect_backoff_ms),
            ("reconnect_backoff_ms_max", reconnect_backoff_ms_max),
        ]:
            if not isinstance(value, (int, float)) or isinstance(value, bool) or not value >= 0:
                raise ConfigurationError(f"{name} is {value!r}", remedy="give milliseconds, 0 or more")
        for name, size in [("max_frame_bytes", max_frame_bytes), ("read_bytes_per_poll", read_bytes_per_poll)]:
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                raise ConfigurationError(f"{name} is {size!r}", remedy="give a whole number of bytes above 0")
        self._clock = clock or SystemClock()
        self._random = random or Random()
        self._new_reader = partial(FrameReader, max_frame_bytes, reuse_buffers=reuse_buffers)
        self._connect_timeout = connect_timeout_ms / 1000
        self._idle_timeout = idle_timeout_ms / 1000
        self._backoff = Backoff(reconnect_backoff_ms, reconnect_backoff_ms_max)
        self._read_bytes = read_bytes_per_poll
        self._tls = _chosen_tls(tls)
        self._contexts = ClientContexts()
        if self._tls is not None:
            self._contexts.of(self._tls)
        self._resolver = resolver or ThreadResolver()
        self._owns_resolver = resolver is None
        self._resolved: deque[tuple[Dial, Outcome]] = deque()  # appended to by resolver threads
        self._selector = selectors.DefaultSelector()
        self._wakeup = Wakeup()
        self._selector.register(self._wakeup, READ, self._wakeup.drain)  # the data of a key is its handler
        self._is_woken = False
        self._now = self._clock.now()  # of the running poll: when it began, then when its wait ended
        self._links: dict[Node, _Link] = {}
        self._nodes: dict[Channel, Node] = {}
        self._timers = Timers()
        self._link_timers: dict[_Link, Timer] = {}
        self._backoffs: dict[Node, ReconnectBackoff] = {}
        self._backoffs_swept_at = _BACKOFFS_KEPT  # so many
        self._listeners: dict[tuple[str, int], Listener] = {}
        self._buffer = bytearray(_BUFFER_BYTES)
        self._peers = count(1)
        self._pid = os.getpid()
        self._is_closed = False
        self._clear_results()

    def __repr__(self) -> str:
        """Such as <KafkaSelector: 2 connected, 1 connecting, listening on 127.0.0.1:9092>."""
        if self._is_closed:
            return "<KafkaSelector: closed>"
        connected = sum(map(self.is_connected, self._links))
        parts = [f"{connected} connected", f"{len(self._links) - connected} connecting"]
        if self._listeners:
            parts.append(f"listening on {', '.join(show_address(*address) for address in self._listeners)}")
        return f"<KafkaSelector: {', '.join(parts)}>"

    # Connections

    def connect(self, node: Node, host: str, port: int, *, tls: Tls | bool | None = None) -> None:
        """Begin to connect. A later poll has the node in `connected` or in `disconnected`.

        `node` is the caller's name for the connection: a broker id, or any hashable value. The attempt begins when the
        node's back-off is over (`next_attempt_at`). The selector never connects again by itself. `tls` is a `Tls`, True
        for its defaults, False for plaintext, or None for what the selector was made with.

        Raises TypeError for an argument of a wrong type, ValueError if the node has a connection or an attempt, and
        ConfigurationError if TLS files cannot be loaded.
        """
        self._check_usable()
        _check_address(host, port)
        try:
            is_taken = node in self._links
        except TypeError:
            raise TypeError(f"node is {node!r:.60}: give a hashable value, such as a broker id") from None
        if is_taken:
            raise ValueError(f"node {node} is connected, or connecting, already")
        chosen = self._tls if tls is None else _chosen_tls(tls)
        dial = Dial(
            node, host, port,
            tls=self._contexts.of(chosen) if chosen is not None else None,
            server_name=(chosen.server_name or host) if chosen is not None else None,
        )  # fmt: skip
        self._links[node] = dial
        self._set_timer(dial, max(self._clock.now(), self.next_attempt_at(node)), partial(self._resolve, dial))

    def disconnect(self, node: Node, *, failed: bool = False) -> None:
        """Close the connection, or end the attempt, now. Frames not yet written are dropped. No list names the node.

        With `failed` the node is at fault (it refused the credentials, or sent what cannot be decoded), and the next
        `connect` waits for the back-off. Does nothing for a node that has no connection.
        """
        self._check_usable()
        link = self._links.get(node)
        if link is None:
            return
        self._drop(node)
        if failed and not link.is_accepted:
            self._backoff_of(node).failed(self._clock.now())

    def reset(self, node: Node) -> None:
        """Close the connection with a TCP reset (RST), as `disconnect` does otherwise."""
        self._channel(node).reset_on_close()
        self.disconnect(node)

    def listen(self, host: str, port: int, *, tls: Tls | None = None) -> tuple[str, int]:
        """Accept connections on a local address; port 0 takes a free port. Return the address and the port.

        `host` is resolved before this returns. The selector names accepted connections; the names are in `accepted`,
        and `sockname(node)` is the address of the listener. Raises ConnectError if the address is not available, and
        ConfigurationError if TLS files cannot be loaded.
        """
        self._check_usable()
        _check_address(host, port)
        if tls is not None and not isinstance(tls, Tls):
            raise TypeError(f"tls is {tls!r:.60}: give a kwire.Tls with cert_file and key_file, or None")
        listener = Listener(host, port, tls.server_context() if tls is not None else None)
        self._listeners[listener.address] = listener
        self._selector.register(listener, READ, partial(self._accept, listener))
        return listener.address

    def stop_listening(self, address: tuple[str, int]) -> None:
        """Close a listener; its connections stay. Raises ValueError if there is no listener on this address."""
        self._check_usable()
        listener = self._listeners.pop(address, None)
        if listener is None:
            raise ValueError(f"no listener has the address {address!r:.60}: give what `listen` returned")
        self._unregister(listener)
        listener.close()

    def send_raw(self, node: Node, data: bytes) -> None:
        """Queue bytes without a size field, for tests that break the framing on purpose, such as with half a frame.

        Raises ValueError if the node is not connected.
        """
        channel = self._channel(node)
        channel.push_raw(data)
        self._flush(channel)

    def pause(self, node: Node) -> None:
        """Read nothing from a node until `resume`: back-pressure for a caller whose queue is full."""
        channel = self._channel(node)
        channel.pause(True)
        self._watch(channel)

    def resume(self, node: Node) -> None:
        """Read from a paused node again."""
        channel = self._channel(node)
        channel.pause(False)
        self._watch(channel)

    def wakeup(self) -> None:
        """Make the running poll, or else the next one, return early. May be called from any thread at any time."""
        self._is_woken = True
        self._wakeup.notify()

    def close(self) -> None:
        """Close all connections, attempts and listeners. A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._owns_resolver:
            self._resolver.close()
        is_forked = os.getpid() != self._pid
        for node in list(self._links):
            if is_forked:  # the parent uses the same epoll instance and sockets: close only this process's descriptors
                self._links.pop(node).abandon()
            else:
                self._drop(node)
        for listener in self._listeners.values():
            listener.close()
        self._selector.close()
        self._wakeup.close()

    # Queries

    @property
    def nodes(self) -> list[Node]:
        """Return all nodes that have a connection or an attempt."""
        return list(self._links)

    def is_connected(self, node: Node) -> bool:
        """Return whether frames can be written to the node now."""
        link = self._links.get(node)
        return isinstance(link, Channel) and link.is_established

    def next_attempt_at(self, node: Node) -> float:
        """Return the time (of the clock, in seconds) at which the node's back-off ends; 0.0 if it has none."""
        backoff = self._backoffs.get(node)
        return backoff.ready_at if backoff is not None else 0.0

    def bytes_queued(self, node: Node) -> int:
        """Return the number of bytes that are not yet written to the node; 0 if it is not connected."""
        link = self._links.get(node)
        return link.bytes_queued if isinstance(link, Channel) else 0

    def peername(self, node: Node) -> tuple[str, int]:
        """Return the address and port of the peer. Raises ValueError if the node is not connected (any more)."""
        try:
            return self._channel(node).peername()
        except OSError as error:  # the peer reset the connection, and no poll has seen it yet
            raise ValueError(f"node {node} is not connected any more: {error.strerror}") from error

    def sockname(self, node: Node) -> tuple[str, int]:
        """Return the local address and port. Raises ValueError if the node is not connected."""
        return self._channel(node).sockname()

    def peer_certificate(self, node: Node) -> bytes | None:
        """Return the certificate that the peer showed, in DER, or None. Raises ValueError if it is not connected."""
        return self._channel(node).peer_certificate()

    # The poll

    def poll(
        self, sends: Iterable[tuple[Node, Frame]] = (), timeout: float | None = None, *, until_sent: bool = True
    ) -> list[Receive]:
        """Queue frames to send, write and read, and return the frames received.

        `sends` are pairs (node, frame). A frame is bytes, or a list of pieces that are written one after the other. The
        selector adds the size field. The bytes must not change before the frame is in `completed_sends`. Frames for a
        node that is connecting wait for the connection. Frames for a node without a connection or an attempt are not
        sent: `disconnected` names the node once, and `unsent` is their number.

        Returns when a list has an entry (with `until_sent=False`: a list other than `completed_sends`), when `wakeup`
        is called, or after `timeout` seconds (None: no limit; 0: at once). It may also return early with empty lists.
        Raises EncodeError for a frame of 2 GiB or more, which the size field cannot hold.
        """
        self._check_usable()
        try:
            now = self._clock.now()
            until = inf if timeout is None else now + timeout
        except TypeError:
            raise TypeError(f"timeout is {timeout!r:.60}: give seconds, or None for no limit") from None
        if until != until:  # NaN is before no time, so that the poll would never end
            raise ValueError(f"timeout is {timeout!r}: give seconds, or None for no limit")
        self._now = now
        self._clear_results()
        if sends:
            self._queue(sends)
        timers = self._timers
        if timers.next_at <= now:
            timers.run(now)
        if self._has_news(until_sent):
            until = now  # read what has arrived, but wait for nothing
        while True:
            wake_at = min(until, timers.next_at)
            wait = None if wake_at == inf else min(max(0.0, wake_at - now), _WAIT_SECONDS_MAX)
            ready = self._clock.wait(self._selector.select, wait)
            now = self._now = self._clock.now()
            for key, mask in ready:
                key.data(mask)
            if self._resolved:
                self._take_resolutions()
            if timers.next_at <= now:
                timers.run(now)
            if self._is_woken or now >= until or self._has_news(until_sent):
                break
            if not ready and now < wake_at < inf:  # a virtual clock stands still
                break
        self._is_woken = False
        return self.completed_receives

    def _clear_results(self) -> None:
        self.connected: list[Node] = []
        self.disconnected: list[Disconnection] = []
        self.completed_sends: list[Sent] = []
        self.completed_receives: list[Receive] = []
        self.accepted: list[Node] = []
        self.rejected: list[Disconnection] = []

    def _has_news(self, until_sent: bool) -> bool:
        return bool(
            self.completed_receives or self.connected or self.disconnected or self.accepted or self.rejected
            or (until_sent and self.completed_sends)
        )  # fmt: skip

    def _queue(self, sends: Iterable[tuple[Node, Frame]]) -> None:
        touched: dict[Channel, Node] = {}
        lost: dict[Node, int] = {}
        pairs = _as_list(sends)
        try:
            for node, frame in pairs:
                link = self._links.get(node)
                if isinstance(link, Channel):
                    link.push(frame)
                    touched[link] = node
                    continue
                _check_frame(frame)
                if link is not None:
                    link.frames.append(frame)
                else:
                    lost[node] = lost.get(node, 0) + 1
        except (TypeError, ValueError) as error:
            raise _wrong_send(pairs, error) from None
        finally:  # a wrong frame raises, but the frames before it are sent
            for channel in touched:  # once per node, so that its frames share a system call
                self._flush(channel)
        for node, unsent in lost.items():
            cause = DisconnectedError("there is no connection", broker=str(node), remedy="connect to the node first")
            self.disconnected.append(Disconnection(node, cause, unsent))

    # Dialling

    def _resolve(self, dial: Dial, now: float) -> None:
        """Begin the attempt: the back-off is over."""
        dial.move(Stage.RESOLVING)
        dial.deadline = now + self._connect_timeout
        if not dial.is_addressable:
            self._fail(dial.node, dial.unaddressable())
            return
        self._set_timer(dial, dial.deadline, partial(self._dial_late, dial))
        self._resolver.resolve(dial.host, dial.port, partial(self._on_resolved, dial))

    def _on_resolved(self, dial: Dial, outcome: Outcome) -> None:
        """Leave the addresses for the poll. Called on a thread of the resolver, or on this one."""
        self._resolved.append((dial, outcome))
        self._wakeup.notify()

    def _take_resolutions(self) -> None:
        while self._resolved:
            dial, outcome = self._resolved.popleft()
            if dial.stage is not Stage.RESOLVING:
                continue  # the attempt has ended
            if isinstance(outcome, OSError):
                self._fail(dial.node, dial.unresolved(outcome.strerror or str(outcome)))
            elif not outcome:
                self._fail(dial.node, dial.unresolved("the name server knows none"))
            else:
                if dial.deadline <= self._now:  # the addresses came in time, and the poll comes late
                    dial.deadline = self._now + self._connect_timeout
                dial.resolved(outcome)
                self._dial_next(dial)

    def _dial_next(self, dial: Dial) -> None:
        if not dial.dial_next():
            self._fail(dial.node, dial.unconnected())
            return
        assert dial.sock is not None
        self._selector.register(dial.sock, WRITE, partial(self._dialled, dial))
        self._set_timer(dial, dial.next_deadline(self._clock.now()), partial(self._dial_late, dial))

    def _dial_late(self, dial: Dial, now: float) -> None:
        if dial.stage is Stage.RESOLVING:
            self._take_resolutions()
            if dial.stage is Stage.RESOLVING:
                reason = f"no response from the name server in {self._connect_timeout:g} s"
                self._fail(dial.node, dial.unresolved(reason))
            return
        assert dial.sock is not None
        if any(key.fileobj is dial.sock for key, _ in self._selector.select(0)):  # it came in time, this poll is late
            dial.deadline = max(dial.deadline, now + self._connect_timeout)
            self._dialled(dial, WRITE)
            return
        self._selector.unregister(dial.sock)
        dial.timed_out()
        self._dial_next(dial)

    def _dialled(self, dial: Dial, mask: int) -> None:
        assert dial.sock is not None
        self._selector.unregister(dial.sock)
        if not dial.check():
            self._dial_next(dial)
            return
        try:
            tls = _filter(dial.tls, is_server=False, host=dial.server_name) if dial.tls is not None else None
        except NodeError as error:
            self._fail(dial.node, error.at(broker=dial.broker))
            return
        channel = Channel(
            dial.give_socket(), broker=dial.broker, now=self._clock.now(), reader=self._new_reader(),
            tls=tls, is_accepted=False,
        )  # fmt: skip
        for frame in dial.frames:
            channel.push(frame)
        self._cancel_timer(dial)
        self._open(dial.node, channel, dial.deadline)

    # Accepting

    def _accept(self, listener: Listener, mask: int) -> None:
        try:
            accepted = listener.accept()
        except OSError as error:
            self._unregister(listener)
            if not listener.is_starved:
                listener.is_starved = True
                where = show_address(*listener.address)
                _log.warning("%s takes no new connections: %s: raise the limit on open files (ulimit -n)", where, error)
            self._timers.at(self._clock.now() + _ACCEPT_PAUSE_SECONDS, partial(self._accept_again, listener))
            return
        listener.is_starved = False
        for sock, peer in accepted:
            node = next(name for name in (f"peer-{n}" for n in self._peers) if name not in self._links)
            tls = _filter(listener.tls, is_server=True) if listener.tls is not None else None
            now = self._clock.now()
            channel = Channel(
                sock, broker=f"{node} at {show_address(peer[0], peer[1])}", now=now,
                reader=self._new_reader(), tls=tls, is_accepted=True,
            )  # fmt: skip
            self._open(node, channel, now + self._connect_timeout)

    def _accept_again(self, listener: Listener, now: float) -> None:
        if self._listeners.get(listener.address) is listener:
            self._selector.register(listener, READ, partial(self._accept, listener))

    # Open connections

    def _open(self, node: Node, channel: Channel, deadline: float) -> None:
        """Take over a connected socket. `deadline` is that of the TLS handshake, if there is one."""
        self._links[node] = channel
        self._nodes[channel] = node
        if channel.is_established:
            self._established(node, channel)
            self._flush(channel)
        else:
            self._set_timer(channel, deadline, partial(self._handshake_late, channel))
            channel.start(self._clock.now())
            self._watch(channel)

    def _established(self, node: Node, channel: Channel) -> None:
        (self.accepted if channel.is_accepted else self.connected).append(node)
        self._set_timer(channel, channel.last_active + self._idle_timeout, partial(self._idle, channel))

    def _serve(self, channel: Channel, mask: int) -> None:
        """Write and read a channel whose socket is ready."""
        if mask & WRITE:
            self._flush(channel)
        if not mask & READ:
            return
        node = self._nodes[channel]
        was_established = channel.is_established
        frames, cause = channel.read(self._buffer, self._read_bytes, self._now)
        if not was_established and channel.is_established:
            self._established(node, channel)
            self._flush(channel)  # what waited for the handshake
        for frame in frames:
            self.completed_receives.append(Receive(node, frame))
        if frames and node in self._backoffs and channel.frames_read == len(frames):
            self._backoffs[node].recovered(self._now)
        if cause is not None:
            self._fail(node, cause)
        elif channel.wants != channel.mask:
            self._watch(channel)

    def _flush(self, channel: Channel) -> None:
        node = self._nodes[channel]
        for frame in channel.flush(self._now):
            self.completed_sends.append(Sent(node, frame))
        if channel.wants != channel.mask:
            self._watch(channel)

    def _watch(self, channel: Channel) -> None:
        """Register the socket for the events that the channel waits for."""
        mask = channel.wants
        if mask == channel.mask:
            return
        if not channel.mask:
            self._selector.register(channel, mask, partial(self._serve, channel))
        elif not mask:
            self._selector.unregister(channel)
        else:
            self._selector.modify(channel, mask, partial(self._serve, channel))
        channel.mask = mask

    def _handshake_late(self, channel: Channel, now: float) -> None:
        self._read_late(channel)
        if channel in self._nodes and not channel.is_established:
            self._fail(self._nodes[channel], channel.timeout_error())

    def _idle(self, channel: Channel, now: float) -> None:
        """Close the channel if it is idle, else set the timer again: traffic does not move it."""
        if now >= channel.last_active + self._idle_timeout:
            self._read_late(channel)
            if channel not in self._nodes:
                return
        idle_at = channel.last_active + self._idle_timeout
        if now < idle_at or channel.frames_queued:
            later = idle_at if now < idle_at else now + self._idle_timeout / 2
            self._set_timer(channel, later, partial(self._idle, channel))
            return
        node = self._nodes[channel]
        stalled = channel.stalled(self._idle_timeout)
        if stalled is not None:
            self._fail(node, stalled)
            return
        cause = DisconnectedError(f"closed here, unused for {self._idle_timeout:g} s", broker=channel.broker)
        self._drop(node)
        self.disconnected.append(Disconnection(node, cause, is_idle=True))

    def _read_late(self, channel: Channel) -> None:
        """Read what has arrived before a time limit ends the channel.

        The poll may come late, or the socket may wait for more of a large frame (see `Channel`).
        """
        if channel.wants & READ:
            self._serve(channel, READ)

    # Ends

    def _fail(self, node: Node, cause: NodeError) -> None:
        link = self._links[node]
        unsent = link.frames_queued
        self._drop(node)
        disconnection = Disconnection(node, cause, unsent)
        if isinstance(link, Channel) and link.is_accepted:
            (self.disconnected if link.is_established else self.rejected).append(disconnection)
            return
        self._backoff_of(node).failed(self._clock.now())
        self.disconnected.append(disconnection)

    def _drop(self, node: Node) -> None:
        link = self._links.pop(node)
        self._cancel_timer(link)
        if isinstance(link, Channel):
            del self._nodes[link]
            if link.mask:
                self._selector.unregister(link)
                link.mask = 0
            link.close()
        else:
            if link.sock is not None:
                self._unregister(link.sock)
            link.cancel()

    def _backoff_of(self, node: Node) -> ReconnectBackoff:
        if node not in self._backoffs:
            if len(self._backoffs) >= self._backoffs_swept_at:
                self._sweep_backoffs(self._clock.now())
            self._backoffs[node] = ReconnectBackoff(self._backoff, self._random)
        return self._backoffs[node]

    def _sweep_backoffs(self, now: float) -> None:
        """Forget nodes that nobody has tried for long: a program may name each of its attempts anew."""
        recent = now - self._backoff.max_ms / 1000
        for node in [node for node, backoff in self._backoffs.items() if backoff.ready_at <= recent]:
            if node not in self._links:
                del self._backoffs[node]
        self._backoffs_swept_at = max(_BACKOFFS_KEPT, 2 * len(self._backoffs))

    def _channel(self, node: Node) -> Channel:
        self._check_usable()
        link = self._links.get(node)
        if not isinstance(link, Channel):
            raise ValueError(f"node {node} is not connected")
        return link

    def _set_timer(self, link: _Link, at: float, action: Callable[[float], None]) -> None:
        self._cancel_timer(link)
        self._link_timers[link] = self._timers.at(at, action)

    def _cancel_timer(self, link: _Link) -> None:
        timer = self._link_timers.pop(link, None)
        if timer is not None:
            timer.cancel()

    def _unregister(self, source: socket.socket | Listener) -> None:
        if source in self._selector.get_map():
            self._selector.unregister(source)

    def _check_usable(self) -> None:
        if self._is_closed:
            raise ClosedError("the selector is closed")
        if os.getpid() != self._pid:
            raise ClosedError("the selector belongs to the process that made it", remedy="make a new one after a fork")


def _filter(context: TlsContext, *, is_server: bool, host: str | None = None) -> TlsFilter:
    from kwire.net.tls_filter import TlsFilter  # only those who need it pay for OpenSSL

    return TlsFilter(context, is_server=is_server, host=host)


def _chosen_tls(tls: Tls | bool | None) -> Tls | None:
    if tls is not None and not isinstance(tls, (bool, Tls)):
        raise TypeError(f"tls is {tls!r:.60}: give a kwire.Tls, True, False or None")
    return tls if isinstance(tls, Tls) else Tls() if tls else None


def _check_address(host: object, port: object) -> None:
    if not isinstance(host, str):
        raise TypeError(f"host is {host!r:.60}: give a name or an address as str")
    if not isinstance(port, int) or isinstance(port, bool):
        raise TypeError(f"port is {port!r:.60}: give an int")


def _as_list(sends: Iterable[tuple[Node, Frame]]) -> Sequence[tuple[Node, Frame]]:
    try:
        return sends if isinstance(sends, list) else list(sends)
    except TypeError:
        raise TypeError(f"sends is {sends!r:.60}: give (node, frame) pairs") from None


def _check_frame(frame: Frame) -> None:
    """Raise for a frame that cannot be written, such as one that waits for its connection."""
    SendQueue().push(frame)


def _wrong_send(sends: Sequence[object], cause: Exception) -> Exception:
    """Return the error for the first of the sends that is wrong, with its index."""
    for index, send in enumerate(sends):
        if not isinstance(send, (tuple, list)) or len(send) != 2:
            return TypeError(f"sends[{index}] is {send!r:.60}: give (node, frame)")
        try:
            hash(send[0])
        except TypeError:
            return TypeError(f"sends[{index}]: node is {send[0]!r:.60}, which is not hashable")
        try:
            _check_frame(send[1])
        except TypeError:
            return TypeError(
                f"sends[{index}]: frame is {send[1]!r:.60}: give bytes, or a list of them; memoryviews are contiguous"
            )
    return cause


_BYTE = (b"\0",)
_DRAIN_BYTES = 64


class Wakeup:
    """A socket that `notify` makes readable, from any thread, and `drain` empties, on the selector's thread.

    `_is_notified` saves the system call while a notification is pending. That is safe because of the order in `drain`:
    it empties the socket, then clears the flag, and only then does the selector read what other threads left for it. A
    `notify` between the two steps writes nothing, but its thread left its work before, so the selector finds that work.
    In the other order the byte of such a `notify` would be lost while the flag stays set, and no later one would wake
    the selector. An interrupt (Ctrl-C) at any point clears the flag, which costs at most one more system call.
    """

    __slots__ = ("_buffer", "_is_notified", "_reader", "_writer")

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._buffer = bytearray(_DRAIN_BYTES)
        self._is_notified = False

    def fileno(self) -> int:
        return self._reader.fileno()

    def notify(self) -> None:
        if self._is_notified:
            return
        try:
            self._is_notified = True
            send_pieces(self._writer, _BYTE)
        except OSError:  # the buffer is full, so the selector will wake; or the selector is closed
            pass
        except BaseException:
            self._is_notified = False
            raise

    def drain(self, _: int = 0) -> None:
        """Empty the socket. The argument is the event mask that the selector gives to all handlers."""
        try:
            while receive_into(self._reader, self._buffer) == _DRAIN_BYTES:  # fewer: there was no more
                pass
        except BlockingIOError:
            pass
        finally:
            self._is_notified = False

    def close(self) -> None:
        self._is_notified = True
        self._reader.close()
        self._writer.close()
