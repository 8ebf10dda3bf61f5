"""The checker of share groups finds every kind of anomaly in histories that were made to contain it."""

from __future__ import annotations

from kwire.simulation.group_history import GroupHistory, MemberEvent, MemberEventKind
from kwire.simulation.share_checker import anomalies_of_share_group

HERE = ("t", 0)


def kinds(*story: tuple[str, MemberEventKind, int], value: bytes = b"0", lock: float | None = None) -> set[str]:
    history = GroupHistory()
    for at, (member, kind, offset) in enumerate(story):
        history.add(MemberEvent(float(at), kind, member, HERE, offset, value))
    return {anomaly.kind for anomaly in anomalies_of_share_group(history, {HERE: {0: b"0"}}, lock)}


def test_a_record_that_is_released_and_then_accepted_is_no_anomaly() -> None:
    assert not kinds(("a", "handed", 0), ("a", "released", 0), ("b", "handed", 0), ("b", "accepted", 0))


def test_a_record_that_was_given_up_is_no_anomaly() -> None:
    handed: tuple[str, MemberEventKind, int] = ("a", "handed", 0)
    assert not kinds(*[handed] * 5)


def test_undelivered() -> None:
    assert kinds() == {"undelivered"}
    assert kinds(("a", "handed", 0), ("a", "released", 0)) == {"undelivered"}


def test_delivered_again() -> None:
    assert kinds(("a", "handed", 0), ("a", "accepted", 0), ("b", "handed", 0)) == {"delivered again"}


def test_a_response_that_is_read_late_delivers_nothing_again() -> None:
    """A member that was frozen gets what the broker had locked for it before another one accepted it."""
    late: list[tuple[str, MemberEventKind, int]] = [
        ("a", "acquired", 0), ("b", "acquired", 0), ("b", "handed", 0), ("b", "accepted", 0), ("a", "handed", 0),
    ]  # fmt: skip
    assert not kinds(*late)
    assert kinds(*late, ("a", "handed", 0)) == {"delivered again"}
    assert kinds(*late[:4], ("b", "handed", 0)) == {"delivered again"}
    assert kinds(*late[:4], ("a", "acquired", 0), ("a", "handed", 0)) == {"delivered again"}


def test_done_twice() -> None:
    story: list[tuple[str, MemberEventKind, int]] = [("a", "handed", 0), ("b", "handed", 0)]
    assert kinds(*story, ("a", "accepted", 0), ("b", "rejected", 0)) == {"done twice"}


def test_what_a_member_had_twice_before_it_was_done_is_not_done_twice() -> None:
    """Kafka confirms acknowledgements of offsets that its window has passed, and ignores them."""
    twice: list[tuple[str, MemberEventKind, int]] = [("a", "handed", 0), ("a", "handed", 0)]
    ends: list[tuple[str, MemberEventKind, int]] = [("a", "accepted", 0), ("a", "rejected", 0)]
    assert not kinds(*twice, *ends)
    assert kinds(*twice, *ends, ("a", "accepted", 0)) == {"done twice"}
    assert kinds(*twice, ("a", "unsure", 0), *ends) == {"done twice"}
    assert kinds(twice[0], *ends) == {"done twice"}


def test_a_member_whose_lock_ended_is_not_done_twice() -> None:
    """It was frozen: another member got the record, and was done with it."""
    story: list[tuple[str, MemberEventKind, int]] = [
        ("a", "acquired", 0), ("b", "acquired", 0), ("b", "handed", 0), ("b", "rejected", 0), ("a", "handed", 0),
    ]  # fmt: skip
    assert not kinds(*story, ("a", "accepted", 0))
    assert kinds(*story, ("a", "accepted", 0), ("a", "accepted", 0)) == {"done twice"}
    released: list[tuple[str, MemberEventKind, int]] = [("a", "acquired", 0), ("a", "handed", 0), ("a", "released", 0)]
    assert kinds(*released, *story[1:4], ("a", "accepted", 0)) == {"done twice"}


def test_wrong_record() -> None:
    assert kinds(("a", "handed", 0), ("a", "accepted", 0), value=b"1") == {"wrong record"}


def test_two_holders() -> None:
    """Each event is one second after the one before it."""
    end: tuple[str, MemberEventKind, int] = ("b", "accepted", 0)
    for between, found in (
        ((), {"two holders"}),
        ((("a", "chosen", 0),), set()),
        ((("a", "closing", -1),), set()),
        ((("a", "handed", 0), ("c", "ended", -1)), {"two holders"}),
        ((("a", "handed", 0), ("a", "ended", -1)), set()),
        ((("a", "handed", 0),) * 3, set()),  # its lock has ended
        ((("a", "ended", -1), ("a", "acquired", 0)), set()),  # a request that was on its way when it was killed
    ):
        assert kinds(("a", "acquired", 0), *between, ("b", "acquired", 0), end, lock=3.5) == found
        assert not kinds(("a", "acquired", 0), *between, ("b", "acquired", 0), end)
