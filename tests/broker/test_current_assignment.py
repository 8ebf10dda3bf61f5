"""How a member reaches its target: the cases of Kafka's CurrentAssignmentBuilderTest, as a table."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

import pytest

from kwire.broker.current_assignment import CurrentAssignment, MemberState, Partitions, Target, TopicIdPartition

T1, T2 = UUID(int=1), UUID(int=2)
STABLE, UNREVOKED, UNRELEASED = MemberState
EPOCH = 10

Numbers = tuple[Iterable[int], Iterable[int]]  # partitions of T1 and of T2
NONE: Numbers = ((), ())


def parts(numbers: Numbers) -> Partitions:
    return frozenset([*((T1, number) for number in numbers[0]), *((T2, number) for number in numbers[1])])


def member(state: MemberState, assigned: Numbers, revoking: Numbers = NONE) -> CurrentAssignment:
    """Return a member at epoch 10 that has had its partitions since epoch 9."""
    return CurrentAssignment(
        EPOCH, EPOCH, state, dict.fromkeys(parts(assigned), EPOCH - 1), dict.fromkeys(parts(revoking), EPOCH - 1)
    )


@pytest.mark.parametrize(
    ("before", "target_epoch", "target", "owned", "held", "state", "epoch", "assigned", "revoking"),
    [
        # stable to stable
        (member(STABLE, ([1, 2, 3], [4, 5, 6])), 11, ([1, 2, 3], [4, 5, 6]), None, NONE,
         STABLE, 11, ([1, 2, 3], [4, 5, 6]), NONE),
        # stable to stable with new partitions
        (member(STABLE, ([1, 2, 3], [4, 5, 6])), 11, ([1, 2, 3, 4], [4, 5, 6, 7]), None, NONE,
         STABLE, 11, ([1, 2, 3, 4], [4, 5, 6, 7]), NONE),
        # stable at the target's epoch: nothing to do, whatever the target is
        (member(STABLE, ([1], [])), 10, ([1], []), None, NONE, STABLE, 10, ([1], []), NONE),
        # stable to unrevoked
        (member(STABLE, ([1, 2, 3], [4, 5, 6])), 11, ([2, 3, 4], [5, 6, 7]), None, NONE,
         UNREVOKED, 10, ([2, 3], [5, 6]), ([1], [4])),
        # stable, and the member has revoked already what it has to revoke
        (member(STABLE, ([1, 2, 3], [4, 5, 6])), 11, ([2, 3, 4], [5, 6, 7]), ([2, 3], [5, 6]), NONE,
         STABLE, 11, ([2, 3, 4], [5, 6, 7]), NONE),
        # stable to unreleased
        (member(STABLE, ([1, 2, 3], [4, 5, 6])), 11, ([1, 2, 3, 4], [4, 5, 6, 7]), None, ([4], [7]),
         UNRELEASED, 11, ([1, 2, 3], [4, 5, 6]), NONE),
        # stable to unreleased, with a partition that is free
        (member(STABLE, ([1, 2, 3], [4, 5, 6])), 11, ([1, 2, 3, 4], [4, 5, 6, 7]), None, ([4], []),
         UNRELEASED, 11, ([1, 2, 3], [4, 5, 6, 7]), NONE),
        # unrevoked to stable
        (member(UNREVOKED, ([2, 3], [5, 6]), ([1], [4])), 11, ([2, 3], [5, 6]), ([2, 3], [5, 6]), NONE,
         STABLE, 11, ([2, 3], [5, 6]), NONE),
        # remains unrevoked: it does not say what it owns
        (member(UNREVOKED, ([2, 3], [5, 6]), ([1], [4])), 12, ([3], [6]), None, NONE,
         UNREVOKED, 10, ([2, 3], [5, 6]), ([1], [4])),
        # remains unrevoked: it still owns a partition of T1, or of T2
        (member(UNREVOKED, ([2, 3], [5, 6]), ([1], [4])), 12, ([3], [6]), ([1, 2, 3], [5, 6]), NONE,
         UNREVOKED, 10, ([2, 3], [5, 6]), ([1], [4])),
        (member(UNREVOKED, ([2, 3], [5, 6]), ([1], [4])), 12, ([3], [6]), ([2, 3], [4, 5, 6]), NONE,
         UNREVOKED, 10, ([2, 3], [5, 6]), ([1], [4])),
        # unrevoked to unrevoked: the target has changed meanwhile
        (member(UNREVOKED, ([2, 3], [5, 6]), ([1], [4])), 12, ([3], [6]), ([2, 3], [5, 6]), NONE,
         UNREVOKED, 10, ([3], [6]), ([2], [5])),
        # unrevoked to unreleased
        (member(UNREVOKED, ([2, 3], [5, 6]), ([1], [4])), 11, ([2, 3, 4], [5, 6, 7]), ([2, 3], [5, 6]), ([4], [7]),
         UNRELEASED, 11, ([2, 3], [5, 6]), NONE),
        # unreleased to stable: the others have released
        (member(UNRELEASED, ([2, 3], [5, 6])), 10, ([2, 3, 4], [5, 6, 7]), ([2, 3], [5, 6]), NONE,
         STABLE, 10, ([2, 3, 4], [5, 6, 7]), NONE),
        # unreleased to stable: the target no longer has what it waited for
        (member(UNRELEASED, ([2, 3], [5, 6])), 11, ([2, 3], [5, 6]), ([2, 3], [5, 6]), ([4], []),
         STABLE, 11, ([2, 3], [5, 6]), NONE),
        # remains unreleased
        (member(UNRELEASED, ([2, 3], [5, 6])), 10, ([2, 3, 4], [5, 6, 7]), ([2, 3], [5, 6]), ([4], [7]),
         UNRELEASED, 10, ([2, 3], [5, 6]), NONE),
        # unreleased to unrevoked
        (member(UNRELEASED, ([2, 3], [5, 6])), 12, ([3], [6]), ([2, 3], [5, 6]), NONE,
         UNREVOKED, 10, ([3], [6]), ([2], [5])),
    ],
)  # fmt: skip
def test_one_step(
    before: CurrentAssignment, target_epoch: int, target: Numbers, owned: Numbers | None, held: Numbers,
    state: MemberState, epoch: int, assigned: Numbers, revoking: Numbers,
) -> None:  # fmt: skip
    holders = {*parts(held), *before.assigned, *before.pending_revocation}
    after = before.reconcile(
        Target(target_epoch, parts(target)),
        has_holder=holders.__contains__,
        owned=None if owned is None else parts(owned),
    )
    assert (after.state, after.epoch) == (state, epoch)
    assert (frozenset(after.assigned), frozenset(after.pending_revocation)) == (parts(assigned), parts(revoking))
    kept: set[TopicIdPartition] = {*after.assigned, *after.pending_revocation} & before.assigned.keys()
    since = {**after.assigned, **after.pending_revocation}
    assert {since[part] for part in kept} <= {EPOCH - 1}
    assert {since[part] for part in after.assigned.keys() - before.assigned.keys()} <= {target_epoch}


@pytest.mark.parametrize("state", [STABLE, UNREVOKED, UNRELEASED])
def test_partitions_of_topics_without_subscription_are_not_assigned(state: MemberState) -> None:
    after = member(state, ([1], [])).reconcile(
        Target(11, parts(([1], [2]))), has_holder=lambda part: False, owned=parts(([1], [])), subscribed={T1}
    )
    assert after.assigned.keys() == parts(([1], []))


@pytest.mark.parametrize(("owned", "state"), [(None, UNREVOKED), (([1], [4]), UNREVOKED), (([1], []), STABLE)])
def test_partitions_of_topics_without_subscription_are_revoked(owned: Numbers | None, state: MemberState) -> None:
    after = member(STABLE, ([1], [4])).reconcile(
        Target(EPOCH, parts(([1], [4]))), has_holder=lambda part: True,
        owned=None if owned is None else parts(owned), subscribed={T1},
    )  # fmt: skip
    assert (after.state, frozenset(after.assigned)) == (state, parts(([1], [])))
    assert after.pending_revocation.keys() == (parts(([], [4])) if state is UNREVOKED else set())
