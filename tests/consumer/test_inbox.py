"""What crosses from the loop to the users: counts, wake-ups, waiting."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable

import pytest

from kwire.consumer.buffer import CompletedFetch, FetchBuffer, PositionResolved
from kwire.errors import ClosedError


class Post:
    def __init__(self, max_bytes: int = 100) -> None:
        self.wakes = 0
        self.inbox = FetchBuffer(max_bytes=max_bytes, wake_loop=self.wake)

    def wake(self) -> None:
        self.wakes += 1

    def chunk(self, generation: int, size_bytes: int) -> CompletedFetch:
        chunk = CompletedFetch(generation, 0, memoryview(bytes(size_bytes)), ())
        self.inbox.post(chunk)
        return chunk


def test_what_was_posted_is_taken_once_in_order() -> None:
    post = Post()
    items = [post.chunk(1, 10), post.chunk(2, 10)]
    assert post.inbox.take() == items
    assert post.inbox.take() == []


def test_room_is_what_is_neither_held_nor_reserved() -> None:
    post = Post(100)
    assert post.inbox.capacity(0, 10) == 100
    chunk = post.chunk(1, 40)
    assert post.inbox.capacity(30, 10) == 30
    post.inbox.release(chunk)
    assert post.wakes == 0, "nobody waited for it"
    chunk = post.chunk(1, 95)
    assert post.inbox.capacity(0, 10) == 0
    post.inbox.release(chunk)
    assert post.wakes == 1
    assert post.inbox.capacity(0, 10) == 100


def test_a_generation_that_holds_much_is_told_from_the_others() -> None:
    post = Post()
    chunks = [post.chunk(1, 20), post.chunk(1, 20), post.chunk(2, 10)]
    assert (post.inbox.holds(1, 40), post.inbox.holds(2, 40), post.inbox.holds(3, 1)) == (True, False, False)
    post.inbox.release(chunks[0])
    post.inbox.release(chunks[1])
    assert (post.wakes, post.inbox.holds(1, 40)) == (1, False)


def test_paused_generations_do_not_count() -> None:
    post = Post(100)
    first, second = post.chunk(1, 90), post.chunk(2, 5)
    post.inbox.pause(1, True)
    post.inbox.pause(1, True)
    assert post.inbox.capacity(0, 1) == 95
    more = post.chunk(1, 50)
    assert post.inbox.capacity(0, 1) == 95
    post.inbox.release(first)
    assert post.inbox.capacity(0, 1) == 95
    post.inbox.pause(1, False)
    assert post.inbox.capacity(0, 1) == 45
    post.inbox.release(more)
    post.inbox.release(second)
    assert post.inbox.capacity(0, 1) == 100


def test_releasing_twice_is_a_defect() -> None:
    post = Post()
    chunk = post.chunk(1, 10)
    post.inbox.release(chunk)
    with pytest.raises(AssertionError):
        post.inbox.release(chunk)


@pytest.mark.parametrize("how", ["post", "nudge", "close"])
def test_a_wait_ends_with_the_news(how: str) -> None:
    post = Post()
    seen = post.inbox.nudges
    has_begun, has_ended = threading.Event(), threading.Event()

    def wait() -> None:
        has_begun.set()
        post.inbox.wait(seen, 60.0)
        has_ended.set()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    assert has_begun.wait(10.0)
    # Whether the thread sleeps already or only comes to it, the news must end its wait.
    if how == "post":
        post.inbox.post(PositionResolved(1, 0))
    elif how == "nudge":
        post.inbox.nudge()
    else:
        post.inbox.close(ClosedError("over"))
    assert has_ended.wait(10.0)
    thread.join(10.0)


def test_the_first_end_stands() -> None:
    post = Post()
    first = ClosedError("first")
    post.inbox.close(first)
    post.inbox.close(ClosedError("second"))
    assert post.inbox.end is first


def is_interrupted(action: Callable[[], object], moment: int) -> bool:
    """`action`, with an interrupt at one of the moments in which Python lets one in; False when it was over before.

    These are where a function begins, and where a call of one in C has ended.
    """
    moments = iter(range(moment))

    def interrupt(frame: object, event: str, argument: object) -> None:
        if event in ("call", "c_return") and next(moments, None) is None:
            sys.setprofile(None)
            raise KeyboardInterrupt

    sys.setprofile(interrupt)
    try:
        action()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return False


def test_an_interrupt_at_any_moment_leaves_it_usable() -> None:
    for moment in itertools.count():
        post = Post()
        if not is_interrupted(lambda post=post: post.inbox.wait(0, 0.0), moment):  # type: ignore[misc]
            break
        chunk = post.chunk(1, 10)
        post.inbox.nudge()
        post.inbox.wait(0, 60.0)
        assert post.inbox.take() == [chunk]
        post.inbox.wait(post.inbox.nudges, 0.0)
    assert moment > 4
