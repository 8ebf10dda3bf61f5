"""`Admin.transactions` with the embedded cluster."""

from __future__ import annotations

from datetime import timedelta

from kwire import Admin, Producer
from kwire.broker import Cluster


def test_a_transaction_that_is_over_is_not_old() -> None:
    """Brokers return it for any duration, since it has no start."""
    with (
        Cluster(brokers=1, topics={"t": 1}) as cluster,
        Admin(cluster.bootstrap) as admin,
        Producer(cluster.bootstrap, transactional_id="over") as producer,
        Producer(cluster.bootstrap, transactional_id="open") as open_one,
    ):
        producer.begin()
        producer.commit()  # with nothing in it: the coordinator knows the id, and no transaction
        open_one.begin()
        open_one.send("t", b"x").result(10)
        assert admin.transactions.list(older_than=timedelta(hours=1)) == []
        assert [one.id for one in admin.transactions.list()] == ["open", "over"]
        open_one.abort()
