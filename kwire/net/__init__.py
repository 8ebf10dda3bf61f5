"""Sockets, TLS and time: `KafkaSelector`, and what it is given and gives.

The only room that touches sockets and clocks. It moves frames and knows no message, so a program that brings its own
messages needs nothing above it: a `KafkaSelector` can be embedded in a loop of one's own.

    selector = kwire.KafkaSelector(connect_timeout_ms=5_000)
    selector.connect(1, "db", 9092)
    while True:
        for node, frame in selector.poll(sends, timeout=1.0):
            ...  # a frame of `node`, without its size
        for node, cause, unsent, is_idle in selector.disconnected:
            ...  # connect again, or give up
        if 1 in selector.connected:
            ...  # send the first frame

**Lists.** `connect` and `poll` never raise what the network does. What happened is in the lists of the poll that found
it: `connected`, `disconnected`, `completed_sends`, `completed_receives`; for a listener `accepted` and `rejected`. The
next poll empties them.

**A loop that waits for a connection must look at `disconnected`.** Where nothing listens, the node is there with a
ConnectError as its `cause`, after `connect_timeout_ms` at the latest, and nothing more happens until the next
`connect`. `cause` is a NodeError of `kwire.errors`: ResolveError, ConnectError, TlsError, NotKafkaError or
DisconnectedError. It can be raised, and its `is_retriable` says whether another attempt may help. `unsent` counts the
frames that the peer cannot have read whole. A connection that `disconnect` closed is in no list.

**Time limits.** `poll(timeout=)` bounds one wait, in seconds. `connect_timeout_ms` bounds one attempt: name, addresses
and TLS handshake together. `idle_timeout_ms` closes what is not used. Nothing bounds the wait for a response, because
the selector does not know which frames have one: `kwire.session` does, and has deadlines.

**Back-off.** The selector does not connect again by itself. A `connect` after a failure waits first:
`reconnect_backoff_ms`, doubled with each failure in a row up to `reconnect_backoff_ms_max`, with jitter. `connect` may
be called at once; `next_attempt_at` says when the attempt begins. A frame from the node ends its back-off, and
`disconnect(node, failed=True)` prolongs it, for a caller that finds the node faulty.

**TLS.** `KafkaSelector(tls=Tls(...))` for all connections, `connect(..., tls=...)` for one. Both load the files, and
raise ConfigurationError for one that is missing or wrong. What the peer gets wrong is a TlsError in `disconnected`.

**Threads.** One thread uses a selector; others may call `wakeup`, which ends the running poll. Clock, chance and
resolver are arguments: on a `VirtualClock` a test of a ten-second timeout takes no time.

Imports: wire.
"""

from kwire.net.clock import Clock, SystemClock, VirtualClock
from kwire.net.dial import Address, Resolver, ThreadResolver, show_address
from kwire.net.selector import Disconnection, KafkaSelector, Node, Receive, Sent
from kwire.net.tls import Tls

__all__ = [
    "Address",
    "Clock",
    "Disconnection",
    "KafkaSelector",
    "Node",
    "Receive",
    "Resolver",
    "Sent",
    "SystemClock",
    "ThreadResolver",
    "Tls",
    "VirtualClock",
    "show_address",
]
