"""The tracker's state by itself, and against a model that searches everything."""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest

from kwire.queue.markers import NO_TOPIC_ID, Identity, Marker, MarkerType
from kwire.queue.tracker_state import TrackerState

START, END, KEEP_ALIVE, RELEASE, TICK = MarkerType


def identity(number: int, topic: int = 0) -> Identity:
    return Identity(UUID(int=topic), 0, number)


class Log:
    """Appends markers to a state, at the times that the test says."""

    def __init__(self, *, position: int = 0, barrier: int | None = 0) -> None:
        self.state = TrackerState(position)
        self.next = position
        if barrier is not None:
            self.state.begin(barrier)
            if barrier == 0:
                self(TICK, -1, at=0)

    def __call__(self, kind: MarkerType, number: int, *, at: int, after: int = 0, now: float | None = None) -> None:
        marker = Marker(kind, identity(number), after, b"jobs", b"%d" % number)
        self.state.apply(self.next, at, marker, at / 1000 if now is None else now)
        self.next += 1

    def due(self) -> list[int]:
        return [entry.identity.offset for entry in self.state.due(100)]


def test_q34_q39_a_started_message_is_due_at_its_deadline_with_what_is_needed_to_send_it_again() -> None:
    log = Log()
    log(START, 7, at=1_000, after=10_000)
    log(TICK, -1, at=10_999)
    assert log.due() == []
    log(TICK, -1, at=11_000)
    (entry,) = log.state.due(100)
    assert (entry.key, entry.value, entry.identity, entry.offset) == (b"jobs", b"7", identity(7), 1)


def test_q35_an_ended_message_is_forgotten() -> None:
    log = Log()
    log(START, 7, at=1_000, after=10_000)
    log(END, 7, at=2_000)
    log(TICK, -1, at=60_000)
    assert (log.due(), len(log.state), log.state.in_progress_bytes) == ([], 0, 0)


def test_q36_a_keep_alive_moves_the_deadline() -> None:
    log = Log()
    log(START, 7, at=0, after=10_000)
    log(KEEP_ALIVE, 7, at=9_000, after=10_000)
    log(TICK, -1, at=18_999)
    assert log.due() == []
    log(TICK, -1, at=19_000)
    assert log.due() == [7]


def test_q37_a_second_start_moves_the_deadline_and_keeps_the_offset_and_unknown_messages_are_ignored() -> None:
    log = Log()
    log(START, 7, at=0, after=10_000)
    log(START, 7, at=5_000, after=10_000)
    log(KEEP_ALIVE, 8, at=5_000, after=1)
    log(END, 9, at=5_000)
    assert (log.state.commit_offset(), len(log.state)) == (1, 1)
    log(TICK, -1, at=14_999)
    assert log.due() == []
    log(TICK, -1, at=15_000)
    assert log.due() == [7]


def test_q38_f22_the_first_start_in_progress_is_committed_else_the_position() -> None:
    log = Log()
    for number in range(3):
        log(START, number, at=0, after=10_000)
    assert log.state.commit_offset() == 1
    log(END, 1, at=1)
    assert log.state.commit_offset() == 1
    log(END, 0, at=1)
    assert log.state.commit_offset() == 3
    assert log.state.commit_offset(frozenset({identity(2)})) == 6
    assert log.state.commit_offset() == 3  # it was only a question
    log(END, 2, at=1)
    assert log.state.commit_offset() == 7


def test_f1_the_clock_is_the_greatest_append_time() -> None:
    log = Log()
    log(START, 7, at=50_000, after=1_000)
    log(KEEP_ALIVE, 9, at=49_000, now=50.0)
    assert log.state.clock_ms == 50_000


@pytest.mark.parametrize("jump_ms", [3_600_000, -3_600_000])
def test_q68_a_leader_whose_clock_is_an_hour_off_makes_nothing_due_early_or_late(jump_ms: int) -> None:
    log = Log()
    log(START, 7, at=1_000, after=10_000, now=1.0)
    log(START, 8, at=2_000 + jump_ms, after=10_000, now=2.0)
    assert (log.due(), log.state.clock_jumps) == ([], 1)
    log(TICK, -1, at=11_000 + jump_ms, now=11.0)
    assert log.due() == [7]
    log.state.end(identity(7), log.next)
    log(END, 7, at=11_000 + jump_ms, now=11.0)
    log(TICK, -1, at=12_000 + jump_ms, now=12.0)
    assert (log.due(), log.state.clock_jumps) == ([8], 1)


def test_f2_nothing_is_due_before_the_barrier_is_read() -> None:
    log = Log(barrier=3)
    log(START, 7, at=0, after=10)
    log(START, 8, at=0, after=10)
    log(END, 7, at=100_000)
    assert log.due() == []
    assert log.state.tick_due(1e9) is None
    log(TICK, -1, at=200_000)
    assert log.due() == [8]


def test_f2_without_a_barrier_nothing_is_ever_due() -> None:
    log = Log(barrier=None)
    log(START, 7, at=0, after=10)
    log(TICK, -1, at=100_000)
    assert log.due() == []


def test_q40_a_successor_that_reads_from_the_committed_offset_has_the_same_messages() -> None:
    random = Random(5)
    markers = [(random.choice([START, END, KEEP_ALIVE]), random.randrange(30)) for _ in range(300)]
    first = Log()
    for at, (kind, number) in enumerate(markers):
        first(kind, number, at=at, after=100_000)
    second = Log(position=first.state.commit_offset(), barrier=len(markers))
    for at, (kind, number) in list(enumerate(markers))[second.next - 1 :]:
        second(kind, number, at=at, after=100_000)
    assert {e.identity for e in second.state.entries()} == {e.identity for e in first.state.entries()}


def test_f21_a_tick_is_due_when_the_next_message_is() -> None:
    log = Log()
    assert log.state.tick_due(0.0) is None
    log(START, 7, at=1_000, after=3_000, now=50.0)
    assert log.state.tick_due(50.0) == 53.0
    log(TICK, -1, at=3_900, now=53.0)
    assert log.state.tick_due(53.0) == pytest.approx(53.1)
    log(END, 7, at=3_950, now=53.05)
    assert log.state.tick_due(53.05) is None


def test_f28_a_released_message_is_due_after_its_delay_and_keep_alives_come_too_late() -> None:
    log = Log()
    log(START, 7, at=0, after=60_000)
    log(RELEASE, 7, at=1_000, after=0)
    log(KEEP_ALIVE, 7, at=1_000, after=60_000)
    assert log.due() == [7]


def test_q82_a_delayed_message_is_due_at_its_time() -> None:
    state = TrackerState()
    state.begin(0)
    state.apply(0, 1_000, None, 1.0)
    state.apply(1, 2_000, Marker(START, identity(7), 8_000, is_uncounted=True, not_before_ms=9_000), 2.0)
    state.apply(2, 8_999, None, 9.0)
    assert state.due(1) == []
    state.apply(3, 9_000, None, 9.0)
    assert [entry.is_uncounted for entry in state.due(1)] == [True]


@pytest.mark.parametrize("jump_ms", [3_600_000, -3_600_000])
def test_q68_q82_a_delay_that_began_before_the_clock_jumped_is_no_hour_longer_or_shorter(jump_ms: int) -> None:
    log = Log()
    marker = Marker(START, identity(7), 5_000, is_uncounted=True, not_before_ms=6_000)
    log.state.apply(1, 2_000 + jump_ms, marker, 2.0)
    log.next = 2
    log(TICK, -1, at=5_900 + jump_ms, now=5.9)
    assert log.due() == []
    log(TICK, -1, at=6_000 + jump_ms, now=6.0)
    assert log.due() == [7]


def test_q68_a_log_whose_clock_went_back_does_not_stand_still_after_replay() -> None:
    log = Log(barrier=2)
    log(START, 7, at=3_600_000, after=1_000)
    log(START, 8, at=5_000, after=2_000)
    log(TICK, -1, at=6_000)
    assert log.due() == [7]
    log(TICK, -1, at=7_000, now=7.0)
    assert log.due() == [7, 8]


def test_f17_a_topic_that_was_created_again_has_other_messages() -> None:
    state = TrackerState()
    state.apply(0, 0, Marker(START, identity(7, topic=1), 10), 0.0)
    state.apply(1, 0, Marker(END, identity(7, topic=2)), 0.0)
    assert identity(7, topic=1) in state
    assert Identity(NO_TOPIC_ID, 0, 7) not in state


def test_an_offset_is_applied_once() -> None:
    state = TrackerState()
    state.apply(0, 0, Marker(START, identity(7), 10), 0.0)
    state.apply(1, 0, Marker(END, identity(7)), 0.0)
    state.apply(0, 0, Marker(START, identity(7), 10), 0.0)
    assert len(state) == 0


def test_due_messages_stay_in_progress_until_they_are_ended() -> None:
    log = Log()
    for number in range(5):
        log(START, number, at=0, after=10 - number)
    log(TICK, -1, at=100)
    assert [entry.identity.offset for entry in log.state.due(2)] == [4, 3]
    assert log.due() == [4, 3, 2, 1, 0]
    log.state.end(identity(3), log.next)
    assert log.due() == [4, 2, 1, 0]


def test_markers_before_a_committed_end_are_void() -> None:
    """Its consumer died before it committed, and another one read the record again while it was redelivered."""
    log = Log()
    log(START, 7, at=0, after=10)
    log(TICK, -1, at=100)
    assert log.due() == [7]
    log.state.end(identity(7), 5)
    log(START, 7, at=100, after=10)
    log(RELEASE, 7, at=101)
    assert (log.due(), len(log.state)) == ([], 0)
    log(END, 7, at=102)
    log(START, 7, at=103, after=10)
    log(TICK, -1, at=200)
    assert log.due() == [7]


def test_an_end_that_was_read_before_it_is_reported_ends_nothing_later() -> None:
    log = Log()
    log(START, 7, at=0, after=10)
    log(END, 7, at=100)
    log(START, 7, at=101, after=10)
    log.state.end(identity(7), 2)
    assert len(log.state) == 1


class Model:
    """The same rules, by searching all entries."""

    def __init__(self) -> None:
        self.entries: dict[int, list[int]] = {}  # number: [offset, deadline, is_released]
        self.clock = 0

    def apply(self, offset: int, at: int, kind: MarkerType, number: int, after: int) -> None:
        self.clock = max(self.clock, at)
        if kind == START:
            kept = self.entries.get(number, [offset])[0]
            self.entries[number] = [kept, at + after, 0]
        elif number in self.entries:
            if kind == END:
                del self.entries[number]
            elif kind == RELEASE or (kind == KEEP_ALIVE and not self.entries[number][2]):
                self.entries[number][1] = at + after
                self.entries[number][2] |= kind == RELEASE

    def due(self) -> set[int]:
        return {number for number, (_, deadline, _) in self.entries.items() if deadline <= self.clock}

    def commit_offset(self, position: int) -> int:
        return min([offset for offset, _, _ in self.entries.values()], default=position)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_the_state_agrees_with_a_model(seed: int) -> None:
    random = Random(seed)
    log, model = Log(), Model()
    at, messages = 0, random.choice([3, 50, 2_000])
    for _ in range(4_000):
        at += random.choice([0, 0, 1, 5])
        kind = random.choices([START, END, KEEP_ALIVE, RELEASE, TICK], [5, 3, 5, 1, 1])[0]
        number, after = random.randrange(messages), random.choice([0, 5, 5, 50, 1_000])
        model.apply(log.next, at, kind, number, after)
        log(kind, number, at=at, after=after)
        if random.random() < 0.2:
            due = log.state.due(10_000)
            assert {entry.identity.offset for entry in due} == model.due()
            assert len(due) == len(model.due())
            for entry in due[: random.randrange(len(due) + 1)]:
                del model.entries[entry.identity.offset]
                log.state.end(entry.identity, log.next)
                log(END, entry.identity.offset, at=at)
        assert log.state.commit_offset() == model.commit_offset(log.next)
        assert len(log.state) == len(model.entries)
    assert log.state.in_progress_bytes == sum(map(len, log.state._data))
