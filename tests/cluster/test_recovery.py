"""Test the recovery monitor: it probes failed brokers at growing intervals until they are back."""

from __future__ import annotations

from random import Random

from kwire.cluster.recovery import RecoveryMonitor
from kwire.errors import ConnectError
from kwire.net.backoff import Backoff

REFUSED = ConnectError("refused")


def monitor() -> RecoveryMonitor:
    return RecoveryMonitor(Backoff(100, 1_000), Random(1))


def test_a_failed_broker_is_probed_until_it_is_back() -> None:
    one = monitor()
    assert one.failed(1, REFUSED, 0.0), "it was healthy until now"
    assert one.probes(0.0) == []
    now, pauses = 0.0, []
    for _ in range(6):
        deadline = one.deadline()
        assert deadline is not None
        assert one.probes(deadline - 0.001) == []
        assert one.probes(deadline) == [1]
        pauses.append(deadline - now)
        now = deadline
        assert not one.failed(1, REFUSED, now), "it is known to have failed"
    assert pauses[0] < pauses[1] < pauses[2]
    assert max(pauses) <= 1.2
    assert one.recovered(1)
    assert not one.recovered(1)
    assert one.deadline() is None


def test_a_broker_that_left_the_cluster_is_forgotten() -> None:
    one = monitor()
    one.failed(1, REFUSED, 0.0)
    one.failed(2, REFUSED, 0.0)
    one.keep({2, 3})
    assert set(one.failures) == {2}


def test_a_probe_without_a_response_is_followed_by_another() -> None:
    one = monitor()
    one.failed(1, REFUSED, 0.0)
    assert one.probes(10.0) == [1]
    assert one.probes(10.0) == []
    assert one.probes(20.0) == [1]
