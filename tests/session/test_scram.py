"""SCRAM and PLAIN messages: the vectors of the RFCs, both sides with each other, and cheating peers."""

from __future__ import annotations

import base64
import pickle

import pytest

from kwire.errors import ConfigurationError
from kwire.session.sasl import PASSWORD_MECHANISMS, DelegationTokenLogin, Sasl, SaslError, SaslServer
from kwire.session.sasl.client import new_nonce
from kwire.session.sasl.scram import (
    ITERATIONS_AT_ONCE,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramClient,
    ScramServer,
    StoredPassword,
    salted_password,
)

# (hash, client nonce, server nonce, salt, proof, server signature): RFC 5802 section 5 and RFC 7677 section 3.
VECTORS = [
    (
        "sha1",
        "fyko+d2lbbFgONRv9qkxdawL",
        "3rfcNHYJY1ZVvWVs7j",
        "QSXCR+Q6sek8bf92",
        "v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
        "rmF9pqV8S7suAoZWja4dJRkFsKQ=",
    ),
    (
        "sha256",
        "rOprNGfwEbeRWgbNEkqO",
        "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        "W22ZaJ0SNY7soEsUEjb6gQ==",
        "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ),
]


@pytest.mark.parametrize(("hash_name", "nonce", "more", "salt", "proof", "signature"), VECTORS)
class TestVectors:
    def test_client(self, hash_name: str, nonce: str, more: str, salt: str, proof: str, signature: str) -> None:
        client = ScramClient(hash_name, "user", "pencil", nonce)
        assert client.start() == f"n,,n=user,r={nonce}".encode()
        assert client.step(f"r={nonce}{more},s={salt},i=4096".encode()) == f"c=biws,r={nonce}{more},p={proof}".encode()
        assert not client.is_done
        assert client.step(f"v={signature}".encode()) is None
        assert client.is_done

    def test_server(self, hash_name: str, nonce: str, more: str, salt: str, proof: str, signature: str) -> None:
        stored = StoredPassword.of("pencil", hash_name=hash_name, salt=base64.b64decode(salt), iterations=4096)
        server = ScramServer(hash_name, lambda name: stored, more)
        assert server.step(f"n,,n=user,r={nonce}".encode()) == f"r={nonce}{more},s={salt},i=4096".encode()
        assert server.step(f"c=biws,r={nonce}{more},p={proof}".encode()) == f"v={signature}".encode()
        assert (server.is_done, server.username) == (True, "user")


def exchange(sasl: Sasl, server: SaslServer) -> str | None:
    """Run an exchange to its end; return the user that the server has authenticated."""
    client, accepting = sasl.client(), server.exchange(sasl.mechanism)
    message = client.start()
    while message is not None:
        assert isinstance(message, bytes)
        message = client.step(accepting.step(message))
    assert client.is_done
    assert accepting.is_done
    return accepting.username


USERS = {"alice": "secret", "bob,=2C": "pa=ss,word", "zoë": "ﬁsh \u00ad☃", "zoe": "ﬁsh \u00ad☃", "empty": ""}


# PlainSaslServer wants a password; ScramMessages.ClientFirstMessage matches names in ASCII only.
REFUSED_BY_KAFKA = {("PLAIN", "empty"), ("SCRAM-SHA-256", "zoë"), ("SCRAM-SHA-512", "zoë")}


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
@pytest.mark.parametrize("username", USERS)
def test_both_sides_agree(mechanism: str, username: str) -> None:
    if (mechanism, username) in REFUSED_BY_KAFKA:
        with pytest.raises(SaslError, match=r"^invalid credentials$|not ASCII"):
            exchange(Sasl(mechanism, username, USERS[username]), SaslServer(USERS))
        return
    assert exchange(Sasl(mechanism, username, USERS[username]), SaslServer(USERS)) == username


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
@pytest.mark.parametrize(("username", "password"), [("alice", "Secret"), ("alice", ""), ("nobody", "secret")])
def test_wrong_credentials_are_rejected_alike(mechanism: str, username: str, password: str) -> None:
    with pytest.raises(SaslError, match=r"^invalid credentials$"):
        exchange(Sasl(mechanism, username, password), SaslServer(USERS))


def test_an_unknown_user_looks_like_a_known_one() -> None:
    """The salt is constant, and the iterations are those of known users."""
    server = SaslServer(USERS)

    def challenge(username: str) -> dict[str, str]:
        first = server.exchange("SCRAM-SHA-256").step(f"n,,n={username},r=abc".encode()).decode()
        return dict(part.split("=", 1) for part in first.split(","))

    once, again, known = challenge("nobody"), challenge("nobody"), challenge("alice")
    assert once["s"] == again["s"]
    assert len(once["s"]) == len(known["s"])
    assert once["i"] == known["i"]


NONCE = "client-nonce"
GOOD = f"r={NONCE}+server,s={base64.b64encode(b'salt').decode()},i=4096"
LYING_SERVERS = [
    (b"", "not SCRAM"),
    (b"\xff\xfe", "not UTF-8"),
    (b"x", "not SCRAM"),
    (b"r=1,r=2,s=,i=1", "not SCRAM"),
    (GOOD.replace("4096", "4095").encode(), f"4095 iterations, not {ITERATIONS_MIN} to {ITERATIONS_MAX}"),
    (GOOD.replace("4096", "1000001").encode(), "1000001 iterations"),
    (GOOD.replace("4096", "99999999999999").encode(), "no number"),
    (GOOD.replace("4096", "-1").encode(), "no number"),
    (GOOD.replace("4096", "٤٠٩٦").encode(), "no number"),
    (GOOD.replace("+server", "").encode(), "another exchange"),
    (GOOD.replace(NONCE, "other").encode(), "another exchange"),
    (GOOD.replace("s=c", "s=!").encode(), "not base64"),
    (GOOD.rsplit(",", 1)[0].encode(), "without i="),
    (b"m=extension," + GOOD.encode(), "an unknown extension"),
]


@pytest.mark.parametrize(("challenge", "reason"), LYING_SERVERS)
def test_a_cheating_server_is_rejected(challenge: bytes, reason: str) -> None:
    client = ScramClient("sha256", "user", "pencil", NONCE)
    client.start()
    with pytest.raises(SaslError, match=reason):
        client.step(challenge)


@pytest.mark.parametrize(
    ("final", "reason"),
    [
        (b"v=" + base64.b64encode(bytes(32)), "could not prove that it knows the password"),
        (b"v=", "without v="),
        (b"e=other-error", "the broker rejected it: other-error"),
        (b"", "not SCRAM"),
    ],
)
def test_a_server_without_the_right_signature_is_rejected(final: bytes, reason: str) -> None:
    client = ScramClient("sha256", "user", "pencil", NONCE)
    client.start()
    client.step(GOOD.encode())
    with pytest.raises(SaslError, match=reason):
        client.step(final)
    assert not client.is_done


def test_a_client_that_nobody_drives_computes_any_proof_at_once() -> None:
    """`Session` with a `kwire.Sasl`, by hand, has no threads."""
    server = SaslServer(USERS, iterations=ITERATIONS_AT_ONCE + 1)
    assert exchange(Sasl("SCRAM-SHA-256", "alice", "secret"), server) == "alice"


LYING_CLIENTS = [
    ([b"y,,n=alice,r=abc"], "channel binding"),
    ([b"p=tls-unique,,n=alice,r=abc"], "channel binding"),
    ([b"n,a=admin,n=alice,r=abc"], "authorisation identities"),
    ([b"n,,n=alice"], "without r="),
    ([b"n,,r=abc"], "without n="),
    ([b"n,,m=x,n=alice,r=abc"], "an unknown extension"),
    ([b"n,,n=al=ice,r=abc"], "not escaped"),
    ([b"n,,n=alice,r=abc", b"c=biws,r=abc,p=AAAA"], "another exchange"),
    ([b"n,,n=alice,r=abc", b"c=biws,r=abcN,p=AAAA"], "wrong length"),
    ([b"n,,n=alice,r=abc", b"c=eSws,r=abcN,p=AAAA"], "another exchange"),
    ([b"n,,n=alice,r=abc", b"c=biws,r=abcN,p=" + base64.b64encode(bytes(32))], "invalid credentials"),
    ([b"n,,n=alice,r=abc", b"c=biws,r=abcN"], "not SCRAM"),
]


@pytest.mark.parametrize(("messages", "reason"), LYING_CLIENTS)
def test_a_cheating_client_is_rejected(messages: list[bytes], reason: str) -> None:
    server = SaslServer(USERS, nonce=lambda: "N").exchange("SCRAM-SHA-256")
    for message in messages[:-1]:
        server.step(message)
    with pytest.raises(SaslError, match=reason):
        server.step(messages[-1])
    assert not server.is_done


@pytest.mark.parametrize(
    "message", [b"", b"alice", b"\0alice", b"\0\0\0", b"admin\0alice\0secret", b"\0alice\0secret\0"]
)
def test_an_invalid_plain_token_is_rejected(message: bytes) -> None:
    with pytest.raises(SaslError):
        SaslServer(USERS).exchange("PLAIN").step(message)


class TestOptions:
    def test_the_repr_shows_no_password(self) -> None:
        for shown in (Sasl("PLAIN", "alice", "hunter2"), SaslServer({"alice": "hunter2"})):
            assert "hunter2" not in repr(shown)
        for mechanism in PASSWORD_MECHANISMS:
            assert "hunter2" not in repr(Sasl(mechanism, "alice", "hunter2").client())
        assert "hunter2" not in repr(StoredPassword.of("hunter2", hash_name="sha256", salt=b"s", iterations=4096))

    def test_credentials_can_be_pickled(self) -> None:
        sasl = Sasl("SCRAM-SHA-512", "alice", "secret")
        assert pickle.loads(pickle.dumps(sasl)) == sasl

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("GSSAPI", "a", "b"), "where tickets come from.*Sasl.kerberos"),
            (("EXTERNAL", "a", "b"), "'EXTERNAL' is not supported.*use one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
            (("plain", "a", "b"), "'plain' is not supported"),
            (("PLAIN", "", "b"), "needs a user name"),
            (("PLAIN", "a", None), "needs a user name and a password"),
            (("PLAIN", "a\0", "b"), "NUL"),
            (("PLAIN", "a\ud800", "b"), "not UTF-8"),
            (("SCRAM-SHA-256", "a", "b\ud800"), "not UTF-8"),
        ],
    )
    def test_invalid_credentials_are_refused_by_the_constructor(
        self, arguments: tuple[str, str, str], message: str
    ) -> None:
        with pytest.raises(ConfigurationError, match=message):
            Sasl(*arguments)

    def test_an_unknown_mechanism_of_a_server_is_refused(self) -> None:
        with pytest.raises(ConfigurationError, match="GSSAPI"):
            SaslServer(USERS, mechanisms=["PLAIN", "GSSAPI"])

    def test_nonces_are_new_and_have_no_comma(self) -> None:
        nonces = {new_nonce() for _ in range(1000)}
        assert len(nonces) == 1000
        assert not any("," in nonce for nonce in nonces)


class TestUsersOfTheBroker:
    def test_a_delegation_token_logs_in_as_its_owner(self) -> None:
        server = SaslServer(USERS, unix_time=lambda: 100.0)
        server.set_token("id-1", DelegationTokenLogin("alice", b"hmac", 200.0))
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            assert exchange(Sasl.delegation_token("id-1", b"hmac", mechanism), server) == "alice"
        with pytest.raises(SaslError, match="invalid credentials"):
            exchange(Sasl.delegation_token("id-1", b"other"), server)
        with pytest.raises(SaslError, match="invalid credentials"):
            exchange(Sasl("SCRAM-SHA-512", "id-1", "aG1hYw=="), server)  # a token is no user
        server.unix_time = lambda: 200.0
        with pytest.raises(SaslError, match="invalid credentials"):
            exchange(Sasl.delegation_token("id-1", b"hmac"), server)

    @pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
    def test_users_may_change_while_it_runs(self, mechanism: str) -> None:
        users = {"alice": "old", "bob": "secret"}
        server = SaslServer(users)
        for name, password in users.items():
            assert exchange(Sasl(mechanism, name, password), server) == name
        users["alice"] = "new"
        del users["bob"]
        assert exchange(Sasl(mechanism, "alice", "new"), server) == "alice"
        for name, password in (("alice", "old"), ("bob", "secret")):
            with pytest.raises(SaslError, match="invalid credentials"):
                exchange(Sasl(mechanism, name, password), server)

    def test_keys_are_computed_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Otherwise each login, also a refused one, would hold up the broker's other connections."""
        server = SaslServer(USERS, unix_time=lambda: 100.0)
        server.set_token("id-1", DelegationTokenLogin("alice", b"hmac", 200.0))
        logins = [Sasl("SCRAM-SHA-256", "alice", "secret"), Sasl.delegation_token("id-1", b"hmac", "SCRAM-SHA-256")]
        assert [exchange(login, server) for login in logins] == ["alice", "alice"]
        monkeypatch.setattr(StoredPassword, "of", None)
        assert [exchange(login, server) for login in logins] == ["alice", "alice"]

    def test_scram_passwords_are_set_and_deleted_while_it_runs(self) -> None:
        server = SaslServer({"alice": "old"})
        assert server.scram_users() == {"alice": {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}}
        salted = salted_password("sha256", "new", b"salt", 8192)
        server.set_scram("SCRAM-SHA-256", "alice", b"salt", 8192, salted)
        assert exchange(Sasl("SCRAM-SHA-256", "alice", "new"), server) == "alice"
        assert exchange(Sasl("SCRAM-SHA-512", "alice", "old"), server) == "alice"
        assert server.delete_scram("SCRAM-SHA-512", "alice")
        assert not server.delete_scram("SCRAM-SHA-512", "alice")
        assert server.scram_users() == {"alice": {"SCRAM-SHA-256": 8192}}
        with pytest.raises(SaslError):
            exchange(Sasl("SCRAM-SHA-512", "alice", "old"), server)
