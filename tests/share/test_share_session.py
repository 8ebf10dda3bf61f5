"""The share session with one broker: epochs, added and forgotten partitions."""

from __future__ import annotations

from uuid import UUID

import pytest

from kwire.share.acknowledgements import Acknowledgements, AcknowledgeType, SharePartition
from kwire.share.share_session import ShareSession, acknowledge_topics

T, U = UUID(int=1), UUID(int=2)
T0, T1, U0 = SharePartition(T, 0), SharePartition(T, 1), SharePartition(U, 0)


def accepted(*offsets: int) -> Acknowledgements:
    return Acknowledgements(dict.fromkeys(offsets, AcknowledgeType.ACCEPT))


def opened(*partitions: SharePartition) -> ShareSession:
    session = ShareSession()
    assert session.fetch(partitions, {}).epoch == 0
    session.sent()
    return session


def test_the_first_request_opens_with_all_partitions_and_the_next_names_only_changes() -> None:
    session = ShareSession()
    assert not session.is_open
    first = session.fetch([T0, U0], {})
    assert (first.epoch, list(first.topics), list(first.forgotten)) == (0, [T0, U0], [])
    session.sent()
    assert session.epoch == 1
    second = session.fetch([T0, T1], {})
    assert (second.epoch, list(second.topics), list(second.forgotten)) == (1, [T1], [U0])
    assert list(session.partitions) == [T0, T1]


def test_the_opening_request_carries_no_acknowledgements() -> None:
    with pytest.raises(AssertionError):
        ShareSession().fetch([T0], {T0: accepted(1)})


def test_a_partition_named_for_its_acknowledgements_is_forgotten_by_the_next_request() -> None:
    session = opened(T0)
    change = session.fetch([T0], {U0: accepted(3, 4)})
    assert list(change.topics) == [U0]
    assert list(change.forgotten) == []
    assert session.has_stale([T0])
    session.sent()
    assert list(session.fetch([T0], {}).forgotten) == [U0]
    assert not session.has_stale([T0])


def test_the_epoch_wraps_to_1_and_a_reset_opens_again() -> None:
    session = opened(T0)
    session.epoch = 2**31 - 1
    session.sent()
    assert session.epoch == 1
    session.reset()
    assert not session.is_open
    assert list(session.fetch([T0], {}).topics) == [T0]


def test_requests_group_partitions_by_topic() -> None:
    session = opened(T0, T1, U0)
    change = session.fetch([], {T0: accepted(1, 2), T1: accepted(5)})
    (topic,) = change.request_topics()
    assert [(each.partition_index, len(each.acknowledgement_batches)) for each in topic.partitions] == [(0, 1), (1, 1)]
    assert [(each.topic_id, each.partitions) for each in change.request_forgotten()] == [(U, [0])]
    topics = acknowledge_topics({T0: accepted(1), U0: accepted(2)})
    assert [each.topic_id for each in topics] == [T, U]
    assert topics[0].partitions[0].acknowledgement_batches[0].acknowledge_types == [1]
