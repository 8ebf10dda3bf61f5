"""Random operations from a seed, applied to the accumulator in Python and to the one in C.

Each step does the same to both sides and returns what can be seen of it; the caller compares.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from random import Random
from types import ModuleType
from typing import Any

from kwire.producer.accumulator import ManyColumns
from kwire.producer.message import to_bytes, to_headers
from kwire.records.rows import record_bytes_max

NOW = 1_700_000_000_000
TOPICS = ["a", "b", "unknown"]
_RECORD_MAX = 2_000
_ERRORS = [None, None, ValueError("refused"), KeyError("lost")]


class Side:
    """One implementation's accumulator, with its builders and futures in order."""

    def __init__(self, made: ModuleType | Any, options: dict[str, Any]) -> None:
        self.made = made
        self.wakes = 0
        self.log: list[Any] = []
        self.builders: list[Any] = []
        self.futures: dict[int, Any] = {}  # futures that the test keeps, by their order
        self.accumulator = made.RecordAccumulator(
            future_class=made.RecordFuture,
            dispatch=None,
            record_bytes_max=_RECORD_MAX,
            may_share=lambda one, other: one == other,
            time_ms=lambda: NOW,
            wakeup=self._wake,
            slow_path=self._slow_path,
            by_system=False,
            sums=True,
            **options,
        )
        self.accumulator.is_open = True
        self.callbacks: list[Callable[[Any], object] | None] = [None, self._first, self._second, self._fail]

    def _wake(self) -> None:
        self.wakes += 1

    def _first(self, future: Any) -> None:
        self.log.append(("first", future._builder.outcome(future._number), future.exception()))

    def _second(self, future: Any) -> None:
        self.log.append(("second", future.done(), future))  # it keeps the future

    def _fail(self, future: Any) -> None:
        raise ArithmeticError

    def _slow_path(self, topic: str, value: Any = None, key: Any = None, headers: Any = None, partition: Any = None,
               timestamp_ms: Any = None, on_delivery: Any = None) -> Any:  # fmt: skip
        """Handle the slow path as a producer does."""
        row = to_bytes(key, "key"), to_bytes(value, "value"), to_headers(headers)
        if not 0 <= (partition or 0) < 1 << 31 or not 0 <= (timestamp_ms or 0) < 1 << 63:
            raise ValueError
        size = record_bytes_max(*row)
        if size > _RECORD_MAX:
            return "too large"
        placed = self.accumulator.append(
            topic, partition, NOW if timestamp_ms is None else timestamp_ms, *row, size, None
        )
        if placed is None:
            return "full"
        future = self.made.RecordFuture(*placed)
        if on_delivery is not None and not placed[0].report(placed[1], future, on_delivery):
            placed[0].add_waiter(placed[1], future, on_delivery, None)
        return future

    def resolve(self, builder: Any, start: int, end: int, offset: int, append_time: int, error: Any) -> Any:
        """Resolve records as the producer does."""
        reports, late = builder.resolve(start, end, offset, append_time, error)
        if late is None:
            if reports is not None:
                reports.run(lambda error, _: self.log.append(type(error)))
            return None
        calls = [*([] if reports is None else reports.all()), *(one[:3] for one in late)]
        for _, future, call in sorted(calls, key=lambda call: call[0]):
            try:
                call(future)
            except ArithmeticError as raised:
                self.log.append(type(raised))
        return None

    def seen(self) -> Any:
        """Return the state to compare, without object identities."""
        log = [one if isinstance(one, type) else (*one[:-1], _outcome(one[-1])) for one in self.log]
        futures = {number: _outcome(future) for number, future in self.futures.items()}
        return (
            log,
            futures,
            self.wakes,
            self._memory(),
            self.accumulator.untaken(),
            [_state(builder) for builder in self.builders],
        )

    def _memory(self) -> Any:
        return (
            self.accumulator.used_bytes,
            [self.accumulator.held(topic) for topic in TOPICS],
            self.accumulator.largest()[1],
        )


def _outcome(future: Any) -> Any:
    if future is None or isinstance(future, (str, BaseException)):
        return future
    return future.done(), future._builder.outcome(future._number)


def _state(builder: Any) -> Any:
    return (
        builder.topic,
        builder.partition,
        len(builder),
        builder.terms,
        builder.since,
        builder.is_closed,
        builder.has_headers,
        builder.size_bytes,
        builder.buffered_bytes,
        builder.base_timestamp,
        builder.max_timestamp,
    )


class Story:
    """The same operations on both implementations, `made`."""

    def __init__(self, seed: int, made: tuple[Any, Any]) -> None:
        self._chance = chance = Random(seed)
        options = {
            "batch_bytes": chance.choice([1, 200, 1_000, 100_000]),
            "bytes_max": chance.choice([500, 10_000, 1 << 20]),
            "key_hash": chance.choice(["murmur2", "crc32", "", None]),
        }
        self.sides = [Side(each, options) for each in made]
        self._count = 0
        self._resolved: dict[int, int] = {}  # up to which record, by builder taken
        self._waiting: list[int] = []  # builders that are not routed

    def go(self, steps: int) -> None:
        todo = [*[self._send] * 12, self._append, self._append_many, self._await, *[self._take] * 2, self._route,
                *[self._resolve] * 3, self._let_go, self._look, self._late, self._settle]  # fmt: skip
        for _ in range(steps):
            self._both(*self._chance.choice(todo)())
        one, other = (side.seen() for side in self.sides)
        assert one == other

    def _both(self, act: Callable[..., Any], *args: Any) -> None:
        """Do it on both sides; both must return or raise the same."""
        seen = []
        for side in self.sides:
            try:
                seen.append(act(side, *args))
            except (TypeError, ValueError):
                seen.append("refused")  # with several errors, each side may find another one first
        assert seen[0] == seen[1], act

    def _data(self) -> Any:
        size = self._chance.choice([0, 1, 5, 60, 63, 64, 300, 3_000])
        data = self._chance.randbytes(size)
        buffers = [bytearray(data), memoryview(data), memoryview(data)[::2]]
        return self._chance.choice([None, data, data, data, data, *buffers, "text", "\N{SNOWMAN}", "\udcff", 5])

    def _headers(self) -> Any:
        if self._chance.random() < 0.7:
            return None
        names = self._chance.choices(["", "name", "\N{SNOWMAN}"], k=self._chance.randrange(3))
        pairs = [(name, self._data()) for name in names]
        return self._chance.choice([pairs, tuple(pairs), dict(pairs), [list(pair) for pair in pairs], [5], 5])

    def _send(self) -> Any:
        chance, number = self._chance, self._count
        self._count += 1
        key = chance.choice([None, b"k", b"%d" % chance.randrange(9), self._data()])
        partition = chance.choice([None, None, 0, 1, 3, 60_000, -1])
        timestamp_ms = chance.choice([None, None, number, 0, 1 << 62, -1, 1 << 63])
        given = chance.choice(TOPICS), self._data(), key, self._headers(), partition, timestamp_ms
        which, is_kept = chance.randrange(4), chance.random() < 0.4

        def act(side: Side) -> Any:
            callback = side.callbacks[which]
            if callback is None:
                future = side.accumulator.send(*given)
            else:
                future = side.accumulator.send(*given, on_delivery=callback)
            if is_kept and not isinstance(future, str):
                side.futures[number] = future
            return future if isinstance(future, str) else None

        return (act,)

    def _append(self) -> Any:
        topic, terms, key = self._chance.choice(TOPICS), self._chance.choice([None, "x", "y"]), b"%d" % self._count
        size = record_bytes_max(key, b"v")
        return (lambda side: side.accumulator.append(topic, None, NOW, key, b"v", (), size, terms) is None,)

    def _append_many(self) -> Any:
        chance = self._chance
        topic, count = chance.choice(TOPICS), chance.randint(1, 40)
        values: list[bytes | None] = [bytes(chance.choice([0, 10, 200])) for _ in range(count)]
        keys: list[bytes | None] = [b"%d" % (number % 5) for number in range(count)]
        each = array("i", [chance.choice([-1, 0, 1, 700]) for _ in range(count)])
        columns = ManyColumns(values, chance.choice([None, keys]), None, NOW, chance.choice([None, 1, each]))

        def act(side: Side) -> Any:
            after, too_large, stretches, order = side.accumulator.append_many(topic, columns, 0, count)
            return after, too_large, [(first, size) for _, first, size in stretches], order

        return (act,)

    def _await(self) -> Any:
        topic = self._chance.choice(TOPICS)
        is_awaited, is_short = self._chance.random() < 0.3, self._chance.random() < 0.3

        def act(side: Side) -> None:
            side.accumulator.set_awaited(topic, is_awaited)
            side.accumulator.is_short = is_short

        return (act,)

    def _take(self) -> Any:
        gathers = self._chance.random() < 0.3
        first = len(self.sides[0].builders)

        def act(side: Side) -> Any:
            side.builders += side.accumulator.take()
            if gathers:
                side.accumulator.gather()
            for number in range(first, len(side.builders)):
                if side.builders[number].partition == -2:
                    side.builders[number].since = float(number)
                    if side is self.sides[0]:
                        self._waiting.append(number)
            return [_state(builder) for builder in side.builders[first:]]

        return (act,)

    def _route(self) -> Any:
        chance = self._chance
        topic, count = chance.choice(TOPICS[:2]), chance.choice([0, 1, 2, 4, 9])
        ring = sorted(chance.sample(range(count), chance.randint(1, count))) if count else []
        apart, limit = chance.random() < 0.3, chance.choice([1, 300, 1_000])
        waiting = [number for number in self._waiting if self.sides[0].builders[number].topic == topic] if count else []
        self._waiting = [number for number in self._waiting if number not in waiting]
        self._resolved |= dict.fromkeys(waiting, 1 << 30)

        def act(side: Side) -> None:
            side.accumulator.route(topic, count, ring, [side.builders[number] for number in waiting], apart)
            side.accumulator.limit(topic, limit)

        return (act,)

    def _resolve(self) -> Any:
        chance, builders = self._chance, self.sides[0].builders
        ready = [number for number, builder in enumerate(builders)
                 if number not in self._waiting and self._resolved.get(number, 0) < len(builder)]  # fmt: skip
        if not ready:
            return (lambda side: None,)
        number, whole = chance.choice(ready), chance.random() < 0.6
        start, size = self._resolved.get(number, 0), len(builders[number])
        end = size if whole else chance.randint(start + 1, size)
        self._resolved[number] = end
        outcome = chance.choice([-1, 5]), chance.choice([-1, 99]), chance.choice(_ERRORS)

        def act(side: Side) -> Any:
            builder = side.builders[number]
            builder.close()
            seen = [bytes(builder.body()), bytes(builder.batch(0, 5, 1, 2)), builder.rows(start, end), len(builder)]
            side.resolve(builder, start, end, *outcome)
            builder.drop(end - start)
            if end == size:
                side.accumulator.release(builder.topic, builder.buffered_bytes)
            return seen

        if size != end or start:
            return (lambda side: act(side) if not start else self._rest(side, number, start, end, outcome),)
        return (act,)

    def _rest(self, side: Side, number: int, start: int, end: int, outcome: Any) -> Any:
        builder = side.builders[number]
        side.resolve(builder, start, end, *outcome)
        builder.drop(end - start)
        if end == len(builder):
            side.accumulator.release(builder.topic, builder.buffered_bytes)
        return builder.outcomes(0, end)

    def _let_go(self) -> Any:
        kept = sorted(self.sides[0].futures)
        gone = [number for number in kept if self._chance.random() < 0.5]

        def act(side: Side) -> None:
            for number in gone:
                del side.futures[number]
            side.log = [one for one in side.log if isinstance(one, type) or one[0] != "second"]

        return (act,)

    def _look(self) -> Any:
        return (lambda side: side.seen(),)

    def _late(self) -> Any:
        kept = sorted(self.sides[0].futures)
        if not kept:
            return (lambda side: None,)
        number, which = self._chance.choice(kept), self._chance.randint(1, 3)

        def act(side: Side) -> Any:
            future = side.futures[number]
            return future._builder.add_waiter(future._number, future, side.callbacks[which], None)

        return (act,)

    def _settle(self) -> Any:
        """Close the accumulator, or open it again."""
        is_open = self._chance.random() < 0.8

        def act(side: Side) -> None:
            side.accumulator.is_open = is_open

        return (act,)
