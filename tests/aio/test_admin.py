"""`kwire.aio.Admin`: the nouns of `kwire.Admin`, awaited."""

from __future__ import annotations

import asyncio
import inspect

import pytest

import kwire
from kwire import aio
from kwire.admin.noun import Noun
from kwire.broker import Cluster
from kwire.errors import BrokerError, ClosedError


def nouns(admin: object) -> dict[str, Noun]:
    return {name: noun for name, noun in vars(admin).items() if isinstance(noun, Noun)}


def verbs(noun: Noun) -> set[str]:
    return {name for name in dir(noun) if not name.startswith("_")}


def test_it_has_every_noun_and_every_verb_as_a_coroutine() -> None:
    with kwire.Admin("localhost:1") as threads:
        awaited = aio.Admin("localhost:1")
        assert nouns(awaited).keys() == nouns(threads).keys()
        for name, noun in nouns(awaited).items():
            assert verbs(noun) == verbs(nouns(threads)[name])
            for verb in verbs(noun):
                assert inspect.iscoroutinefunction(getattr(noun, verb)), f"{name}.{verb}"
                same = inspect.signature(getattr(nouns(threads)[name], verb))
                assert inspect.signature(getattr(noun, verb)).parameters == same.parameters
        asyncio.run(awaited.close())


def test_calls_side_by_side() -> None:
    async def main(bootstrap: str) -> None:
        async with aio.Admin(bootstrap) as admin:
            await asyncio.gather(*(admin.topics.create(f"t{number}") for number in range(5)))
            assert await admin.topics.list() == [f"t{number}" for number in range(5)]
            with pytest.raises(BrokerError):
                await admin.topics.create("t1")
            assert (await admin.configs.get(topic="t1"))["retention.ms"].is_default
        with pytest.raises(ClosedError):
            await admin.topics.list()

    with Cluster(brokers=1) as cluster:
        asyncio.run(main(cluster.bootstrap))
