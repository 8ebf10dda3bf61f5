"""Sockets, TLS and time: `KafkaSelector`, its arguments and its results.

No other room touches sockets or clocks. This one moves frames and knows no message: a program with messages of its own
can embed a `KafkaSelector` in its own loop, and needs nothing else of kwire.

    selector = kwire.KafkaSelector(connect_timeout_ms=5_000)
    selector.connect(1, "db", 9092)
    while True:
        for node, frame in selector.poll(sends, timeout=1.0):
            ...  # a frame of `node`, without its size
        for node, cause, unsent, is_idle in selector.disconnected:
            ...  # connect again, or stop
        if 1 in selector.connected:
            ...  # send the first frame

**Lists.** `connect` and `poll` never raise a network error. Each poll fills lists with what happened: `connected`,
`disconnected`, `completed_sends` and `completed_receives`; for a listener also `accepted` and `rejected`. The next poll
replaces them.

**A loop that waits for a connection must check `disconnected`.** Where nothing listens, the node is in that list, with
a ConnectError as its `cause`, after `connect_timeout_ms` at the latest; nothing more happens until the next `connect`.
`cause` is a NodeError of `kwire.errors`: ResolveError, ConnectError, TlsError, NotKafkaError or DisconnectedError. It
can be raised, and `is_retriable` says whether another attempt may succeed. `unsent` is the number of frames that the
peer cannot have read whole. A connection that `disconnect` closed is in no list.

**Time limits.** `poll(timeout=)` limits one wait, in seconds. `connect_timeout_ms` limits one attempt: name, addresses
and TLS handshake together. `idle_timeout_ms` closes unused connections. The selector does not limit the wait for a
response, because it does not know which frames have one; `kwire.session` does.

**Back-off.** The selector does not connect again by itself. `connect` may be called at once after a failure; the
attempt then begins after `reconnect_backoff_ms`, which doubles with each failure in a row up to
`reconnect_backoff_ms_max`, with jitter. `next_attempt_at` returns that time. A frame from the node ends its back-off.
`disconnect(node, failed=True)` counts as a failure, for a caller that finds the node faulty.

**TLS.** `KafkaSelector(tls=Tls(...))` is for all connections, `connect(..., tls=...)` for one. Both load the files, and
raise ConfigurationError for a file that is missing or wrong. An error of the peer is a TlsError in `disconnected`.

**Threads.** One thread uses a selector; other threads may call `wakeup`, which ends the running poll. Clock, random
numbers and resolver are arguments: with a `VirtualClock` a test of a ten-second timeout takes no time.

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
