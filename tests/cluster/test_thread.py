"""The client's thread: what is posted to it runs or is refused, also beside `close`; and the thread for callbacks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kwire.cluster import LoopThread, ToAny, client_config
from kwire.cluster.callbacks import CallbackThread
from kwire.cluster.loop import EventLoop
from kwire.errors import ClosedError
from kwire.producer import Producer
from kwire.protocol.messages.metadata import MetadataRequest

PATIENCE = 10.0


class CloseBesidePost:
    """Let another thread close the client between the check that it is usable and the post, if that is possible."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._close: threading.Thread | None = None
        post = EventLoop.post

        def post_after_close(loop: EventLoop, action: Callable[[], object]) -> None:
            closer, self._close = self._close, None
            if closer is not None:
                closer.start()
                closer.join(0.2)  # as far as it gets
            post(loop, action)

        monkeypatch.setattr(EventLoop, "post", post_after_close)

    def arm(self, close: Callable[[], object]) -> None:
        self._close = threading.Thread(target=close, daemon=True)


@pytest.fixture
def beside_post(monkeypatch: pytest.MonkeyPatch) -> CloseBesidePost:
    return CloseBesidePost(monkeypatch)


def outcome_of(function: Callable[[], Any]) -> list[Any]:
    """Return what the function returns or raises; fail if it does not return in time."""
    found: list[Any] = []

    def act() -> None:
        try:
            found.append(function())
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive(), "it hangs"
    return found


@pytest.fixture
def runtime() -> Iterator[LoopThread]:
    runtime = LoopThread(client_config("localhost:1", {}))
    runtime.start()
    yield runtime
    runtime.close()


def test_an_action_posted_while_another_thread_closes_runs(runtime: LoopThread, beside_post: CloseBesidePost) -> None:
    beside_post.arm(runtime.close)
    assert outcome_of(lambda: runtime.run(lambda: 5)) == [5]


def test_a_request_beside_close_gets_an_error(runtime: LoopThread, beside_post: CloseBesidePost) -> None:
    beside_post.arm(runtime.close)
    [error] = outcome_of(lambda: runtime.request(ToAny(), MetadataRequest, lambda _: MetadataRequest(topics=None)))
    assert isinstance(error, ClosedError)


@pytest.mark.parametrize("call", [Producer.flush, Producer.metrics, lambda producer: producer.explain("t")])
def test_a_producers_call_beside_close_returns(call: Callable[[Producer], Any], beside_post: CloseBesidePost) -> None:
    producer = Producer("localhost:1")
    producer.send("t", b"")
    beside_post.arm(lambda: producer.close(0))
    outcome_of(lambda: call(producer))


def test_an_action_posted_after_close_is_refused(runtime: LoopThread) -> None:
    runtime.close()
    with pytest.raises(ClosedError):
        runtime.call_soon(print)


def test_a_callback_after_close_may_submit_another() -> None:
    dispatcher = CallbackThread("callbacks")
    dispatcher.close(None)
    ran: list[str] = []

    def first() -> None:
        dispatcher.submit(ran.append, "second")
        ran.append("first")

    outcome_of(lambda: dispatcher.submit(first))
    assert ran == ["second", "first"]


def test_a_callback_added_after_close_may_add_another() -> None:
    producer = Producer("localhost:1")
    response = producer.send("t", b"")
    producer.close(0)
    ran: list[bool] = []

    def add() -> None:
        response.add_done_callback(lambda one: one.add_done_callback(lambda two: ran.append(two.done())))

    outcome_of(add)
    assert ran == [True]
