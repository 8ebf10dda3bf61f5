"""GSSAPI without a key distribution centre: options, the agreement on no security layer, and names of users.

tests/live/test_kerberos.py has real tickets. Here the library's part is played by contexts that agree at once.
"""

from __future__ import annotations

import pickle
import sys
from dataclasses import dataclass
from typing import Any

import pytest

import kwire
from kwire.errors import ConfigurationError
from kwire.session import Sasl
from kwire.session.sasl import SaslError, SaslServer
from kwire.session.sasl.kerberos import KerberosClient
from kwire.session.sasl.kerberos_server import KerberosExchange, short_name


class LibraryError(Exception):
    min_code = maj_code = 0

    def get_all_statuses(self, code: int, is_major: bool) -> list[str]:
        return ["the message is damaged"]


@dataclass
class Message:
    message: bytes


class Context:
    """A context of either side; what it wraps begins with "sealed "."""

    initiator_name = "alice@R"
    target_name = "kafka/host@R"

    def __init__(self, answers: list[bytes | None]) -> None:
        self._answers = answers

    @property
    def complete(self) -> bool:
        return not self._answers

    def step(self, message: bytes | None = None) -> bytes | None:
        return self._answers.pop(0)

    def wrap(self, message: bytes, encrypt: bool) -> Message:
        assert not encrypt
        return Message(b"sealed " + message)

    def unwrap(self, message: bytes) -> Message:
        if not message.startswith(b"sealed "):
            raise LibraryError
        return Message(message.removeprefix(b"sealed "))


def new_client() -> KerberosClient:
    return KerberosClient(Context([None]), b"request", LibraryError)


def new_exchange(realm: str | None = None) -> KerberosExchange:
    return KerberosExchange(lambda: Context([b"reply"]), LibraryError, realm)


def test_both_sides_agree_on_no_layer() -> None:
    client, exchange = new_client(), new_exchange()
    reply = exchange.step(client.start())
    empty = client.step(reply)
    assert (reply, empty) == (b"reply", b"")
    offer = exchange.step(b"")
    choice = client.step(offer)
    assert (offer, choice) == (b"sealed \x01\0\0\0", b"sealed \x01\0\0\0")
    assert (client.is_done, exchange.is_done) == (False, False)
    assert exchange.step(b"sealed \x01\0\0\0") == b""
    assert (exchange.is_done, exchange.username) == (True, "alice")
    assert client.step(b"") is None
    assert client.is_done


@pytest.mark.parametrize(
    ("offer", "message"),
    [
        (b"sealed \x06\0\xff\xff", "requires a security layer"),
        (b"sealed \x01", "malformed"),
        (b"sealed ", "malformed"),
        (b"\x01\0\0\0", "the message is damaged"),
    ],
)
def test_a_client_refuses_other_layers(offer: bytes, message: str) -> None:
    client = new_client()
    client.start()
    client.step(b"reply")
    with pytest.raises(SaslError, match=message):
        client.step(offer)
    assert not client.is_done


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (b"sealed \x02\0\0\0", "not offered"),
        (b"sealed \x01", "not offered"),
        (b"sealed \x01\0\0\0bob@R", "authorisation identity"),
        (b"\x01\0\0\0", "damaged"),
    ],
)
def test_a_broker_refuses_other_choices(choice: bytes, message: str) -> None:
    exchange = new_exchange()
    exchange.step(b"request")
    exchange.step(b"")
    with pytest.raises(SaslError, match=message):
        exchange.step(choice)
    assert (exchange.is_done, exchange.username) == (False, None)


@pytest.mark.parametrize("identity", [b"", b"alice", b"alice@R"])
def test_a_client_may_say_that_it_is_itself(identity: bytes) -> None:
    exchange = new_exchange()
    exchange.step(b"request")
    exchange.step(b"")
    exchange.step(b"sealed \x01\0\0\0" + identity)
    assert exchange.username == "alice"


def test_users_of_another_realm_have_no_name() -> None:
    exchange = new_exchange("OTHER")
    exchange.step(b"request")
    exchange.step(b"")
    with pytest.raises(SaslError, match="no rule names the principal 'alice@R'"):
        exchange.step(b"sealed \x01\0\0\0")
    assert exchange.username is None


def test_kafkas_default_rule() -> None:
    assert (short_name("alice@R", "R"), short_name("kafka/host@R", "R")) == ("alice", "kafka")
    for principal in ("alice@S", "alice", "a/b/c@R", "@R", ""):
        with pytest.raises(SaslError):
            short_name(principal, "R")


def test_credentials_can_be_pickled_and_show_no_password() -> None:
    sasl = Sasl.kerberos(principal="alice@R", password="hunter2")
    assert pickle.loads(pickle.dumps(sasl)) == sasl
    assert "hunter2" not in repr(sasl)
    assert sasl.identity == "the Kerberos ticket of 'alice@R'"
    assert Sasl.kerberos().identity == "the Kerberos ticket of kinit"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"service": "kafka/host"}, "first part"),
        ({"service": ""}, "first part"),
        ({"password": "p"}, "without principal"),
        ({"password": "p", "principal": "a", "keytab": "k"}, "with keytab or ccache"),
        ({"principal": ""}, "principal is empty"),
        ({"principal": 5}, "principal is int"),
        ({"keytab": 5}, "keytab is int"),
        ({"ccache": ""}, "ccache is empty"),
        ({"principal": "me", "password": b"x"}, "password is bytes"),
    ],
)
def test_contradictions_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Sasl.kerberos(**options)


def test_a_client_without_the_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(ConfigurationError, match=r"pip install kwire\[kerberos\]"):
        kwire.Producer("localhost:1", sasl=Sasl.kerberos())


def test_a_broker_without_a_keytab_offers_no_gssapi() -> None:
    assert "GSSAPI" not in SaslServer({}).mechanisms
    with pytest.raises(ConfigurationError, match="KerberosAcceptor"):
        SaslServer({}, mechanisms=["GSSAPI"])
