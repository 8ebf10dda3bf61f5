"""The judge of queue-storm: what excuses a message that was processed twice, and what does not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from uuid import UUID

from queue_runs.judge import PASSED, UNCOMMITTED, Note, Verdict, judge

from kwire.consumer import ConsumerRecord
from kwire.queue.markers import Identity, Marker, MarkerType, encode_marker
from tests.waiting import wait_until

FIRST, SECOND, THIRD = (0, 1), (0, 7), (0, 9)
DEAD, ALIVE = 100, 200
LEASE_MS = 10_000
START, END = MarkerType.START, MarkerType.END


def message(place: tuple[int, int]) -> ConsumerRecord:
    return ConsumerRecord("messages", *place, 0, headers=(("n", b"0"),))


def markers(*rows: tuple[int, MarkerType, tuple[int, int]]) -> list[ConsumerRecord]:
    """Return the log of these: (milliseconds, type, place)."""
    return [
        ConsumerRecord(
            "markers", 0, offset, ms,
            value=encode_marker(Marker(kind, Identity(UUID(int=1), *place), LEASE_MS if kind == START else 0)),
        )
        for offset, (ms, kind, place) in enumerate(rows)
    ]  # fmt: skip


REDELIVERED = ((0, START, FIRST), (LEASE_MS, END, FIRST), (LEASE_MS + 50, START, SECOND), (LEASE_MS + 60, END, SECOND))


def judged(
    *notes: tuple[str, int, tuple[int, int]], places: tuple[tuple[int, int], ...] = (FIRST, SECOND),
    log: tuple[tuple[int, MarkerType, tuple[int, int]], ...] = REDELIVERED, killed_at: int = 5,
    transactional: bool = False,
) -> Verdict:  # fmt: skip
    return judge(
        [Note(what, 0, pid, place) for what, pid, place in notes], [message(place) for place in places],
        markers(*log), {DEAD: killed_at}, 1, is_transactional=transactional,
    )  # fmt: skip


def test_a_redelivery_after_the_deadline_of_a_killed_consumer_is_excused() -> None:
    found = judged(("p", DEAD, FIRST), ("p", ALIVE, SECOND), ("a", ALIVE, SECOND), transactional=True)
    assert (found.lost, dict(found.twice), found.complaints) == (0, {PASSED: 1}, [])


def test_a_redelivery_after_a_lease_that_was_lost_is_excused() -> None:
    found = judged(("p", ALIVE, FIRST), ("l", ALIVE, FIRST), ("p", ALIVE, SECOND), ("a", ALIVE, SECOND))
    assert (dict(found.twice), found.complaints) == ({PASSED: 1}, [])


def test_a_redelivery_of_what_a_living_consumer_acknowledged_is_not() -> None:
    found = judged(("p", ALIVE, FIRST), ("a", ALIVE, FIRST), ("p", ALIVE, SECOND), ("a", ALIVE, SECOND))
    assert found.complaints == ["message 0 was processed again at (0, 7) without a cause"]


def test_one_deadline_excuses_one_time() -> None:
    found = judged(("p", DEAD, FIRST), ("p", ALIVE, SECOND), ("a", ALIVE, SECOND), ("p", ALIVE, SECOND))
    assert dict(found.twice) == {PASSED: 1}
    assert found.complaints == ["message 0 was handed out twice at (0, 7)"]


# Marked and redelivered, though its position was not stored; then read, marked and redelivered again.
READ_AGAIN = (
    (0, START, FIRST), (LEASE_MS, END, FIRST), (LEASE_MS + 10, START, SECOND), (LEASE_MS + 20, END, SECOND),
    (LEASE_MS + 30, START, FIRST), (2 * LEASE_MS + 30, END, FIRST), (2 * LEASE_MS + 40, START, THIRD),
)  # fmt: skip
BOTH = (("p", ALIVE, SECOND), ("a", ALIVE, SECOND), ("p", ALIVE, THIRD), ("a", ALIVE, THIRD))


def test_a_start_whose_commit_was_not_stored_is_excused_at_least_once_only() -> None:
    found = judged(*BOTH, places=(FIRST, SECOND, THIRD), log=READ_AGAIN)
    assert (dict(found.twice), found.complaints) == ({UNCOMMITTED: 1}, [])
    found = judged(*BOTH, places=(FIRST, SECOND, THIRD), log=READ_AGAIN, transactional=True)
    assert found.complaints == ["message 0 was processed again at (0, 9) without a cause"]


def test_a_start_whose_commit_nobody_prevented_is_not() -> None:
    found = judged(*BOTH, places=(FIRST, SECOND, THIRD), log=READ_AGAIN, killed_at=LEASE_MS * 5)
    assert found.complaints == ["message 0 was processed again at (0, 9) without a cause"]


def test_a_delayed_message_that_a_tracker_redelivers_twice_is_not_excused() -> None:
    once = ((0, START, FIRST), (LEASE_MS, END, FIRST), (LEASE_MS + 10, START, SECOND), (LEASE_MS + 20, START, THIRD))
    found = judged(*BOTH, places=(FIRST, SECOND, THIRD), log=once)
    assert found.complaints == [
        "message 0 has 3 records, and 1 redeliveries after a deadline",
        "message 0 was processed again at (0, 9) without a cause",
    ]


def test_a_redelivery_before_the_deadline_is_found() -> None:
    early = ((0, START, FIRST), (LEASE_MS - 500, END, FIRST), (LEASE_MS, START, SECOND))
    found = judged(("p", ALIVE, SECOND), ("a", ALIVE, SECOND), log=early)
    assert found.complaints == ["message 0 has 2 records, and 0 redeliveries after a deadline"]


def test_what_nobody_acknowledged_is_lost() -> None:
    assert judged(("p", ALIVE, FIRST), places=(FIRST,), log=((0, START, FIRST),)).lost == 1


# A run whose member says its process id, and would stay for ever.
RUN = """
import multiprocessing, signal

from queue_runs.member import end_with_parent

def member():
    end_with_parent()
    print(multiprocessing.current_process().pid, flush=True)
    signal.pause()

if __name__ == "__main__":
    process = multiprocessing.get_context("forkserver").Process(target=member)
    process.start()
    process.join()
"""


def test_members_end_when_their_run_is_killed(tmp_path: Path) -> None:
    program = tmp_path / "run.py"
    program.write_text(RUN)
    tools = Path(__file__).parents[2] / "tools"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tools), str(tools.parent)))}
    with subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, text=True, env=environment) as run:
        assert run.stdout is not None
        member = int(run.stdout.readline())
        run.send_signal(signal.SIGKILL)
    wait_until(lambda: not _is_running(member))


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
