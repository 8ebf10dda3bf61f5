"""Users with SCRAM passwords."""

from __future__ import annotations

from kwire import Admin, Sasl
from kwire.broker import Cluster, Disconnect
from kwire.protocol import ApiKey


def test_all_users_are_asked_for_by_an_empty_list() -> None:
    """Kafka's brokers respond to a null list only if the client has the right (their getErrorResponse fails for it)."""
    asked: list[object] = []

    def seen(request: object) -> bool:
        asked.append(getattr(request, "users", None))
        return False

    with Cluster(1, sasl={"alice": "hers"}) as cluster:
        cluster.add_fault(Disconnect(), api=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, when=seen, times=None)
        with Admin(cluster.bootstrap, sasl=Sasl("PLAIN", "alice", "hers")) as admin:
            assert list(admin.users.list()) == ["alice"]
            assert list(admin.users.list([])) == []
    assert asked == [[]]
