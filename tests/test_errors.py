"""Errors: what they say, that they travel between processes, and the table of codes."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from kwire import errors
from kwire.errors import (
    AuthorizationError,
    BrokerError,
    CommitError,
    CorruptRecordsError,
    DecodeError,
    DeliveryError,
    DisconnectedError,
    ErrorCode,
    InDoubtError,
    KwireError,
    ProcessingError,
    RecordTooLargeError,
    TopicError,
    UndeliveredError,
    broker_error,
    error_name,
)

CLASSES = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, KwireError)]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (KwireError("it broke"), "it broke"),
        (KwireError("it broke", remedy="mend it"), "it broke: mend it"),
        (DecodeError("bad", offset=0, path="topics[3].name"), "bad [field topics[3].name, offset 0]"),
        (
            KwireError("x", offset=5, version=9, api="Fetch", broker="1 at h:9092", topic="t", partition=0, group="g"),
            "x [broker 1 at h:9092, Fetch, v9, topic t, partition 0, group g, offset 5]",
        ),
        (KwireError("x", topic=None, partition=None), "x"),
        (broker_error(10, topic="t"), "MESSAGE_TOO_LARGE (10) [topic t]: " + ErrorCode.MESSAGE_TOO_LARGE.usual_cause),
        (broker_error(87, "no key", remedy="give one"), "INVALID_RECORD (87): no key: give one"),
        (broker_error(9999), "UNRECOGNISED_ERROR_9999 (9999)"),
    ],
)
def test_the_text_of_an_error(error: KwireError, text: str) -> None:
    assert str(error) == text


def make(cls: type[KwireError]) -> KwireError:
    required: dict[str, Any] = {}
    if issubclass(cls, BrokerError):
        required = {"code": 6}
    elif cls is DeliveryError:
        required = {"possibly_persisted": True}
    elif cls is UndeliveredError:
        required = {"possibly_persisted": True, "records": {"t": 2}}
    elif cls is CommitError:
        required = {"failed": {}, "committed": {("t", 1)}}
    elif cls is InDoubtError:
        required = {"lost_rows": 7}
    elif cls is ProcessingError:
        required = {"records": ["a record"]}
    return cls("what", remedy="do", topic="t", **required)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_errors_can_be_pickled(cls: type[KwireError]) -> None:
    error = make(cls)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is cls
    assert (str(copy), copy.__dict__, copy.args) == (str(error), error.__dict__, error.args)


def test_at_adds_unknown_places_only() -> None:
    error = CorruptRecordsError("bad", offset=7)
    assert error.at(topic="t", offset=9, partition=None) is error
    assert error.where == {"topic": "t", "offset": 7}


def test_unknown_places_are_refused() -> None:
    with pytest.raises(AssertionError):
        KwireError("x", planet="earth")
    with pytest.raises(AssertionError):
        KwireError("x").at(planet="earth")


@pytest.mark.parametrize(
    ("cls", "builtin"),
    [("ConfigurationError", ValueError), ("DecodeError", ValueError), ("EncodeError", ValueError),
     ("ClosedError", RuntimeError), ("NodeError", ConnectionError), ("RequestTimeoutError", TimeoutError)],
)  # fmt: skip
def test_errors_derive_from_the_builtin_exceptions(cls: str, builtin: type[Exception]) -> None:
    assert issubclass(getattr(errors, cls), builtin)


@pytest.mark.parametrize(
    ("code", "cls"),
    [(3, TopicError), (17, TopicError), (100, TopicError), (10, RecordTooLargeError), (18, RecordTooLargeError),
     (29, AuthorizationError), (30, AuthorizationError), (31, AuthorizationError), (53, AuthorizationError),
     (65, AuthorizationError), (6, BrokerError), (0, BrokerError), (-1, BrokerError), (1000, BrokerError)],
)  # fmt: skip
def test_the_class_of_an_error_code(code: int, cls: type[BrokerError]) -> None:
    error = broker_error(code)
    assert type(error) is cls
    assert error.code == code
    assert error.name == error_name(code)


@pytest.mark.parametrize(
    ("code", "is_retriable", "invalidates_metadata"),
    [(-1, False, False), (0, False, False), (2, True, False), (3, True, True), (6, True, True), (7, True, False),
     (13, True, True), (15, True, False), (45, False, False), (47, False, False), (72, True, True), (89, True, False),
     (136, False, False)],
)  # fmt: skip
def test_the_flags_of_an_error_code(code: int, is_retriable: bool, invalidates_metadata: bool) -> None:
    """All of them were compared with the exception classes of kafka-clients 4.4.0."""
    (known,) = [known for known in ErrorCode if known == code]
    assert (known.is_retriable, known.invalidates_metadata) == (is_retriable, invalidates_metadata)
    assert broker_error(code).is_retriable is is_retriable


def test_an_unknown_code_is_not_retriable() -> None:
    assert not broker_error(1000).is_retriable


def test_codes_have_no_gap() -> None:
    assert [int(code) for code in ErrorCode] == list(range(-1, len(ErrorCode) - 1))


@pytest.mark.parametrize("code", [code for code in ErrorCode if code], ids=lambda code: code.name)
def test_every_code_has_a_usual_cause(code: ErrorCode) -> None:
    """A fragment to stand behind a colon, for each code, and another for each."""
    text = code.usual_cause
    assert 20 < len(text) < 140
    assert text[0].islower() or text.split()[0].isupper() or text.startswith("an ACL")
    assert not text.endswith(".")
    assert "  " not in text
    assert [other for other in ErrorCode if other.usual_cause == text] == [code]


def test_a_disconnect_is_a_connection_error() -> None:
    with pytest.raises(ConnectionError):
        raise DisconnectedError("gone", broker="1 at h:9092")
