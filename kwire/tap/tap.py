"""`Tap`: a proxy that shows and records what clients and brokers say, on a thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from os import PathLike
from pathlib import Path

from kwire.capture import Exchange
from kwire.capture.filters import Filter
from kwire.capture.secrets import MASKED, Redaction
from kwire.cluster.config import parse_bootstrap
from kwire.errors import ConfigurationError
from kwire.net import SystemClock, Tls
from kwire.session import Sasl
from kwire.tap.background import BackgroundServer
from kwire.tap.chaos import Chaos, Rule
from kwire.tap.proxy import Proxy
from kwire.tap.recorder import CaptureFiles, Recorder

# How often `wait_for_clients` looks.
_LOOK_SECONDS = 0.01


class Tap(BackgroundServer):
    """A proxy between clients and the brokers of a cluster. It runs until `close`, or the end of its `with` block.

    A client that uses `address` as its bootstrap reaches every broker through the tap: the tap listens for each broker
    that a response names, and replaces the address there.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        listen: tuple[str, int] = ("127.0.0.1", 0),
        advertise: str | None = None,
        record: str | PathLike[str] | None = None,
        rotate_bytes: int | None = None,
        keep: int | None = None,
        on_exchange: Callable[[Exchange], object] | None = None,
        where: Filter | str | None = None,
        redaction: Redaction = MASKED,
        tls: Tls | bool | None = None,
        sasl: Sasl | None = None,
        tls_in: Tls | None = None,
        chaos: Sequence[Rule] = (),
        seed: int = 0,
        on_remark: Callable[[str], object] = lambda text: None,
        tick_seconds: float = inf,
        on_tick: Callable[[int], object] = lambda at_ns: None,
    ) -> None:
        """Begin to listen.

        bootstrap      the brokers, as for a client
        listen         address and port for the clients; port 0 takes a free one. Listeners for other brokers get free
                       ports on the same address
        advertise      the host that clients use for the tap, if not that of `listen`
        record         a pcapng file for all frames; it is readable at any time
        rotate_bytes   begin a new file at this size: FILE.pcapng becomes FILE.1.pcapng, then FILE.2.pcapng, ...
        keep           how many of these to keep
        on_exchange    gets each exchange for which `where` is true, on the tap's thread
        redaction      what is masked in exchanges and in the file
        tls, sasl      security towards the brokers. With `sasl` the tap authenticates, and clients must not
        tls_in         certificate and key for TLS towards clients
        chaos, seed    rules that disturb the traffic, and the seed of their chances
        on_remark      gets news of listeners, and why connections failed
        tick_seconds   call `on_tick` with the time (ns since 1970) at the start and at each such time, on the tap's
                       thread

        Raises ConnectError if the address is not available, and ConfigurationError for options that make no sense.
        """
        if rotate_bytes is not None and record is None:
            raise ConfigurationError("rotate_bytes needs a file", remedy="give record")
        if keep is not None and rotate_bytes is None:
            raise ConfigurationError("keep needs rotate_bytes")
        if isinstance(where, str):
            where = Filter(where)
        brokers = parse_bootstrap(bootstrap)
        self._clock = clock = SystemClock()
        self._recorder = Recorder(on_exchange, where, redaction)
        self._proxy = Proxy(
            brokers, self._recorder, clock, listen=listen, advertise=advertise, tls=tls, sasl=sasl, tls_in=tls_in,
            chaos=Chaos(chaos, seed) if chaos else None, on_remark=on_remark,
            tick_seconds=tick_seconds, on_tick=on_tick,
        )  # fmt: skip
        if record is not None:
            try:  # only now: a tap that cannot listen must leave an earlier capture as it is
                files = CaptureFiles(Path(record), redaction, rotate_bytes=rotate_bytes, keep=keep)
            except BaseException:
                self._proxy.close()
                raise
            self._recorder.record_in(files)
        super().__init__("kwire tap")
        self._start()

    @property
    def brokers(self) -> dict[tuple[str, int], tuple[str, int]]:
        """Return where the tap listens for each broker that was named so far."""
        return self._proxy.brokers

    @property
    def exchanges(self) -> int:
        """Return the number of exchanges so far."""
        return self._recorder.exchanges

    def wait_for_clients(self, seconds: float) -> bool:
        """Wait until no client is connected and what each sent last has reached its broker; return whether that is so.

        Waits for at most `seconds`. `close` ends connections without looking for what their clients sent just now.
        """
        end = self._clock.now() + seconds
        while self._proxy.has_clients and self._clock.now() < end and not self.wait(_LOOK_SECONDS):
            pass
        return not self._proxy.has_clients

    def _listener(self) -> tuple[str, int]:
        return self._proxy.address

    def _turn(self) -> None:
        self._proxy.turn()

    def _wakeup(self) -> None:
        self._proxy.wakeup()

    def _release(self) -> None:
        self._proxy.close()
