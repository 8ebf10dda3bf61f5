"""Clients are cached by their options, closed when there are too many, and never shared with a forked child."""

from __future__ import annotations

from kwire.spark.clients import CLIENTS_MAX, Clients


class Fake:
    made = 0

    def __init__(self, **options: object) -> None:
        Fake.made += 1
        self.options = options
        self.closed: list[float | None] = []

    def close(self, timeout: float | None = None) -> None:
        self.closed.append(timeout)


def test_one_client_for_the_same_options() -> None:
    clients = Clients(Fake)
    assert clients.get({"a": 1, "b": 2}) is clients.get({"b": 2, "a": 1})
    assert clients.get({"a": 2}) is not clients.get({"a": 1, "b": 2})


def test_the_least_recently_used_is_closed() -> None:
    clients = Clients(Fake)
    kept = [clients.get({"n": number}) for number in range(CLIENTS_MAX)]
    assert clients.get({"n": 0}) is kept[0]
    clients.get({"n": "another"})
    assert [client.closed for client in kept] == [[], [0], *([[]] * (CLIENTS_MAX - 2))]


def test_discard_and_close() -> None:
    clients = Clients(Fake)
    first, second = clients.get({"n": 1}), clients.get({"n": 2})
    clients.discard({"n": 1})
    clients.discard({"n": "unknown"})
    assert (first.closed, second.closed) == ([0], [])
    assert clients.get({"n": 1}) is not first
    clients.close()
    assert second.closed == [0]


def test_a_child_forgets_what_the_parent_made() -> None:
    clients = Clients(Fake)
    parents = clients.get({"n": 1})
    clients._forget()  # what os.fork calls in the child
    assert clients.get({"n": 1}) is not parents
    assert parents.closed == []
