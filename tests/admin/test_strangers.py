"""A wrong call of a verb of `kwire.Admin`, or one without a broker, raises an error with cause, place and remedy."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from kwire import Admin, NewTopic
from kwire.admin import Acl, ActiveProducer, Results
from kwire.errors import ConfigurationError, RequestTimeoutError
from tests.admin.verbs import verbs_of

NOBODY = "127.0.0.1:1"
# Right arguments by the name of the parameter; a verb that takes others of this name is in `OTHERS`.
RIGHT: dict[str, Any] = {
    "acls": [Acl.allow("User:a", "read").on(topic="t")],
    "at": "latest",
    "broker": 1,
    "configs": {"retention.ms": 5},
    "controller": 1,
    "directory_id": "GPp174lPRu2nRwcmoXNQYA",
    "group": "g",
    "groups": ["g"],
    "level": 1,
    "listeners": {"CONTROLLER": ("h", 1)},
    "matching": [Acl.allow("User:a", "read").on(topic="t")],
    "metrics": ["*"],
    "name": "n",
    "names": ["a"],
    "offsets": {("t", 0): 0},
    "partition": 0,
    "partitions": [("t", 0)],
    "password": "p",
    "paths": {("t", 0): "/d"},
    "producer": ActiveProducer("t", 0, 1, 0, 0, 0, 0, 0),
    "replicas": {("t", 0): [1]},
    "time": datetime.now(),
    "token": b"hmac",
    "topic": "t",
    "topics": ["t"],
    "total": 3,
    "transactional_id": "x",
    "transactional_ids": ["x"],
    "user": "u",
    "voter": 1,
}
OTHERS: dict[str, dict[str, Any]] = {
    "configs.set_many": {"configs": {("topic", "t"): {"retention.ms": 5}}},
    "create_topics": {"topics": [NewTopic("t")]},
    "groups.remove_members": {"every": True},
    "groups.reset": {"to": "latest"},
    "quotas.set": {"user": "u", "producer_byte_rate": 1},
    "tokens.create": {"lifetime": timedelta(1)},
    "topics.create_many": {"topics": [NewTopic("t")]},
}
# Those of `configs` name their resource so.
RESOURCE = {f"configs.{verb}": {"topic": "t"} for verb in ("append", "get", "reset", "set", "subtract")}
# What nobody may give for anything but a flag.
WRONG: list[Any] = [1.5, b"x", [5], ["x", None], {5: 5}, {("t", "0"): 1}, {("t", 0): object()}, object(), [("t", 0, 1)]]
# Flags are taken as Python takes them; a plain dict of names is a list of names.
FLAGS = {
    "allow_rf_change", "documentation", "dry_run", "every", "fenced", "internal", "raise_errors", "strict",
    "validate_only", "wait",
}  # fmt: skip

with Admin(NOBODY) as _nobody:
    VERBS = verbs_of(_nobody)


@pytest.fixture(scope="module")
def admin() -> Iterator[Admin]:
    with Admin(NOBODY, request_timeout_ms=1) as running:
        yield running


def method(admin: Admin, verb: str) -> Callable[..., Any]:
    noun, _, name = verb.rpartition(".")
    found: Callable[..., Any] = getattr(getattr(admin, noun) if noun else admin, name)
    return found


def right(verb: str, parameters: dict[str, inspect.Parameter]) -> dict[str, Any]:
    given = {**RESOURCE.get(verb, {}), **OTHERS.get(verb, {})}
    for name, one in parameters.items():
        if one.default is one.empty and one.kind is not one.VAR_KEYWORD and name not in given:
            given[name] = 6 if (verb, name) == ("topics.add_partitions", "total") else RIGHT[name]
    return given


def is_right(parameter: str, value: object) -> bool:
    """Return whether one of `WRONG` is right for a parameter."""
    return (
        (parameter == "token" and isinstance(value, bytes))
        or (parameter in ("brokers", "producer_ids") and value in ([5], {5: 5}))
        or (parameter == "partitions" and isinstance(value, dict) and ("t", 0) in value)
    )


def outcome(call: Callable[..., Any], given: dict[str, Any]) -> object:
    """Return the result of a call, or what it raised."""
    try:
        return call(**given)
    except Exception as error:
        return error


def is_refusal(result: object) -> bool:
    """Return whether this is an error that was known before anything was sent, and says what to give."""
    if isinstance(result, ConfigurationError):
        return bool(result.remedy)
    return isinstance(result, TypeError) and ": give " in str(result)


@pytest.mark.parametrize("verb", VERBS)
def test_wrong_arguments_are_refused_with_a_remedy_and_harm_nobody(admin: Admin, verb: str) -> None:
    """An argument of a wrong type is no error of Python from within, and does not end the client."""
    call = method(admin, verb)
    parameters = dict(inspect.signature(call).parameters)
    for name, one in parameters.items():
        if name in {"timeout", *FLAGS} or one.kind is one.VAR_KEYWORD:
            continue
        for wrong in WRONG:
            if not is_right(name, wrong):
                result = outcome(call, {**right(verb, parameters), name: wrong})
                assert is_refusal(result), f"{verb}({name}={wrong!r}): {result!r}"
    with pytest.raises(RequestTimeoutError):
        admin.topics.list()


@pytest.mark.parametrize("verb", VERBS)
def test_without_a_broker_each_verb_says_what_failed_where_and_what_to_do(admin: Admin, verb: str) -> None:
    call = method(admin, verb)
    result = outcome(call, right(verb, dict(inspect.signature(call).parameters)))
    if isinstance(result, Results):
        (result,) = result.errors.values()
    assert isinstance(result, RequestTimeoutError)
    assert result.remedy
    assert "Connection refused" in str(result)
    assert NOBODY in str(result)
