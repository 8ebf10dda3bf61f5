"""Wrong arguments: the error names the method that was called, as the caller wrote it."""

from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest

import kwire
import kwire.aio

NOBODY = "127.0.0.1:1"

CLIENTS: dict[str, Callable[[], Any]] = {
    "Consumer": lambda: kwire.Consumer(NOBODY, group="g"),
    "aio.Consumer": lambda: kwire.aio.Consumer(NOBODY, group="g"),
    "ShareConsumer": lambda: kwire.ShareConsumer(NOBODY, group="g"),
    "aio.ShareConsumer": lambda: kwire.aio.ShareConsumer(NOBODY, group="g"),
    "Producer": lambda: kwire.Producer(NOBODY),
    "Producer with serializers": lambda: kwire.Producer(NOBODY, value_serializer=str.encode),
    "aio.Producer": lambda: kwire.aio.Producer(NOBODY),
    "Admin": lambda: kwire.Admin(NOBODY),
    "Admin groups": lambda: kwire.Admin(NOBODY),
    "Cluster": lambda: kwire.Cluster(NOBODY),
}


def methods(client: object) -> dict[str, int]:
    """Return the public methods, each with the greatest number of its positional arguments."""
    found: dict[str, int] = {}
    for name in dir(type(client)):
        method = inspect.getattr_static(type(client), name)
        if not name.startswith("_") and inspect.isfunction(method):
            parameters = inspect.signature(method).parameters.values()
            found[name] = sum(one.kind is one.POSITIONAL_OR_KEYWORD for one in parameters) - 1
    return found


@pytest.mark.parametrize("kind", CLIENTS)
def test_errors_about_arguments_name_the_method_that_was_called(kind: str) -> None:
    async def main() -> None:  # some of aio.Producer belong to a running loop
        client = CLIENTS[kind]()
        public = client.groups if kind == "Admin groups" else client
        found = methods(public)
        assert found
        for name, count in found.items():
            with pytest.raises(TypeError, match=rf"(^|\.){name}\(\) takes "):
                getattr(public, name)(*[None] * (count + 1))
            with pytest.raises(TypeError, match=rf"(^|\.){name}\(\) (got|takes|missing) "):
                getattr(public, name)(nonsense=1)
        ended = client.close()
        if ended is not None:
            await ended

    asyncio.run(main())


@pytest.mark.parametrize("act", [pickle.dumps, copy.copy, copy.deepcopy])
@pytest.mark.parametrize(
    "kind", [kind for kind in CLIENTS if kind not in ("Producer with serializers", "Admin groups")]
)
def test_a_client_is_for_one_process(kind: str, act: Callable[[Any], Any]) -> None:
    async def main() -> None:
        client = CLIENTS[kind]()
        with pytest.raises(
            TypeError, match=rf"^<kwire\.{re.escape(kind)} .* cannot be pickled or copied: make a client"
        ):
            act(client)
        ended = client.close()
        if ended is not None:
            await ended

    asyncio.run(main())


def test_methods_that_wait_have_their_public_names() -> None:
    assert kwire.Consumer.subscribe.__qualname__ == kwire.aio.Consumer.subscribe.__qualname__ == "Consumer.subscribe"
    assert inspect.iscoroutinefunction(kwire.aio.Consumer.subscribe)
    assert "on_assigned" in inspect.signature(kwire.Consumer.subscribe).parameters
    assert (kwire.Consumer.poll.__doc__ or "").startswith("Return the next records")
