"""The simulated network: who listens where, who is connected, and what of that a fault may touch.

Owns addresses, dialling and the list of connections. Chance comes from one generator, so that a seed repeats a run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from random import Random
from typing import Any

from kwire.broker.simulation.connection import Address, Connection, Owner
from kwire.broker.simulation.pipe import Weather
from kwire.broker.simulation.trace import Trace
from kwire.broker.simulation.world import World

Touch = Callable[[Connection], None]


class Net:
    """`seen` counts what happened to bytes and connections, so that an idle simulation is noticed."""

    def __init__(self, world: World, random: Random, trace: Trace, weather: Weather | None = None) -> None:
        self.world = world
        self.trace = trace
        self.seen: Counter[str] = Counter()
        self.connections: dict[Connection, None] = {}  # an ordered set
        self._random = random
        self._weather = weather or Weather()
        self._listeners: dict[Address, Owner] = {}
        self._numbers = count(1)
        self._refused_until: dict[Address, float] = {}
        self._swallowed_until: dict[Address, float] = {}
        self._armed: list[tuple[str | None, Address, Touch]] = []
        self._lasting: list[tuple[float, str | None, Address, Touch]] = []

    # Listening and dialling.

    def listen(self, address: Address, selector: Owner) -> None:
        assert address not in self._listeners, f"{address} is taken"
        self._listeners[address] = selector

    def stop_listening(self, address: Address) -> None:
        del self._listeners[address]

    def dial(self, selector: Owner, node: Any, address: Address, connected: Touch, refused: Callable[[], None]) -> None:
        """Tells one of the two, later; neither, when the packets are swallowed."""
        now = self.world.now()
        if now < self._swallowed_until.get(address, 0.0):
            self.seen["dials swallowed"] += 1
            return

        def arrive(now: float) -> None:
            listener = self._listeners.get(address)
            if listener is None or now < self._refused_until.get(address, 0.0):
                self.seen["dials refused"] += 1
                self.world.at(now + self._weather.delay(self._random), lambda _: refused())
                return
            accepted = listener, listener.name_peer()
            connection = Connection(
                self, next(self._numbers), (selector, node), accepted, address, self._weather, self._random
            )
            self.seen["connections"] += 1
            self.connections[connection] = None
            self.trace.note(now, f"{connection} is accepted")
            listener.opened(connection.broker)
            connected(connection)
            self._touch(connection)

        self.world.at(now + self._weather.delay(self._random), arrive)

    def forget(self, connection: Connection) -> None:
        self.connections.pop(connection, None)

    # What faults do.

    def between(self, client: str | None, address: Address) -> Iterator[Connection]:
        """The connections of a client (None: of all) to an address that both ends have open, newest first."""
        for connection in reversed(list(self.connections)):
            if _concerns(connection, client, address) and not (
                connection.client.is_closed or connection.broker.is_closed
            ):
                yield connection

    def touch(self, client: str | None, address: Address, touch: Touch) -> None:
        """Do something to the newest such connection; to the next one that is made when there is none."""
        connection = next(self.between(client, address), None)
        if connection is not None:
            touch(connection)
        else:
            self._armed.append((client, address, touch))

    def touch_all(self, client: str | None, address: Address, touch: Touch, until: float) -> None:
        """Do something to all such connections, and to those that are made before `until`."""
        for connection in self.between(client, address):
            touch(connection)
        self._lasting.append((until, client, address, touch))

    def refuse(self, address: Address, until: float) -> None:
        self._refused_until[address] = until

    def swallow(self, address: Address, until: float) -> None:
        self._swallowed_until[address] = until

    def heal(self) -> None:
        """All faults are over. Connections that were silenced stay dead: nobody mends those but who gives them up."""
        self._armed.clear()
        self._lasting.clear()
        self._refused_until.clear()
        self._swallowed_until.clear()
        for connection in self.connections:
            for to_broker in (True, False):
                pipe = connection.pipe(to_broker=to_broker)
                pipe.cut_after = None
                pipe.release()

    def _touch(self, connection: Connection) -> None:
        now = self.world.now()
        self._lasting = [entry for entry in self._lasting if entry[0] > now]
        for _, client, address, touch in self._lasting:
            if _concerns(connection, client, address):
                touch(connection)
        for armed in self._armed:
            if _concerns(connection, armed[0], armed[1]):
                self._armed.remove(armed)
                armed[2](connection)
                break


def _concerns(connection: Connection, client: str | None, address: Address) -> bool:
    return connection.address == address and client in (None, connection.client.selector.name)
