"""The judge of tools/peers: each number once, or it says what is missing."""

from __future__ import annotations

import pytest
from checks.peers import check_topic

from kwire import Producer
from kwire.broker import Cluster


@pytest.mark.parametrize(
    ("sent", "finding"),
    [
        ([0, 1, 2, 3], None),
        ([0, 1, 3], "1 records lost, 0 doubled"),
        ([0, 1, 2, 3, 1], "0 records lost, 1 doubled"),
        ([3, 3, 1, 0], "1 records lost, 1 doubled"),
    ],
)
def test_each_number_once(sent: list[int], finding: str | None) -> None:
    with Cluster(1, topics={"t": 6}) as cluster:
        with Producer(cluster.bootstrap) as producer:
            for number in sent:
                producer.send("t", b"%d" % number)
        if finding is None:
            check_topic(cluster.bootstrap, "t", 4)
        else:
            with pytest.raises(AssertionError, match=finding):
                check_topic(cluster.bootstrap, "t", 4)
