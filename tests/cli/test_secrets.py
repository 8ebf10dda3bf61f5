"""`kwire decode` masks secrets: same length, everything else as it was, and shown on request."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from kwire.capture.secrets import mask_token
from kwire.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from kwire.protocol.messages.metadata import MetadataRequest
from kwire.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kwire.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.capture import samples
from tests.capture.captures import BROKER, CLIENT, Talk, pcap, sized, timed
from tests.capture.test_pairing import talked
from tests.cli.running import run

PLAIN = b"\0alice\0hunter2-hunter2"
FINAL = b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts="


@pytest.mark.parametrize(
    ("token", "masked"),
    [
        (PLAIN, b"\0alice\0***************"),
        (b"admin\0alice\0p", b"admin\0alice\0*"),
        (b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL", None),
        (b"p=tls-unique,,n=user,r=fyko", None),
        (b"r=fyko3rfc,s=QSXCR+Q6sek8bf92,i=4096", None),
        (FINAL, FINAL[:-28] + b"*" * 28),
        (b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=", b"v=" + b"*" * 28),
        (b"e=invalid-proof", None),
        (b"n,,\x01auth=Bearer eyJhbGci\x01\x01", b"*" * len(b"n,,.auth=Bearer eyJhbGci..")),
        (b"\x60\x82\x01\x02binary", b"*" * 10),
        (b"", b""),
    ],
)
def test_mask_token(token: bytes, masked: bytes | None) -> None:
    """None: nothing in it is secret."""
    assert mask_token(token) == (token if masked is None else masked)


FRAME = samples.request(SaslAuthenticateRequest(auth_bytes=PLAIN), 2)


@pytest.mark.parametrize("options", [[], ["-f", "table"], ["--no-annotate"], ["--try-versions"], ["--api", "36"]])
def test_a_password_in_a_frame(options: list[str]) -> None:
    for shows_secrets in (False, True):
        ran = run("decode", *options, *(["--show-secrets"] if shows_secrets else []), stdin=FRAME)
        assert ran.code == 0, ran.stderr
        assert "SaslAuthenticate" in ran.stdout
        assert any(text in ran.stdout for text in SHOWN) is shows_secrets


# The password as text, as hex in two layouts, as the JSON of the token.
SHOWN = ["hunter2", b"hunter2".hex(), b"hunt".hex(" ", -4), "AGFsaWNlAGh1bnRlcjI"]


def test_only_the_secret_is_masked() -> None:
    masked, plain = (run("decode", *options, stdin=FRAME).lines()[0] for options in ([], ["--show-secrets"]))
    assert plain["message"]["authBytes"] != masked["message"]["authBytes"]
    assert bytes.fromhex(masked["fields"][-2]["hex"])[1:] == b"\0alice\0***************"
    places = [[(row["offset"], row["length"], row["path"]) for row in one["fields"]] for one in (masked, plain)]
    assert places[0] == places[1]


def test_a_frame_truncated_in_its_secret() -> None:
    ran = run("decode", "--bare", stdin=FRAME[:-10])
    assert ran.code == 4
    assert not any(text in ran.stdout for text in SHOWN)


def test_credentials_that_an_admin_writes() -> None:
    upsertion = AlterUserScramCredentialsRequest.Upsertion(
        name="alice", mechanism=1, iterations=4096, salt=b"SALTSALT", salted_password=b"SECRETSECRET"
    )
    request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion])
    (line,) = run("decode", stdin=samples.request(request, 0)).lines()
    (shown,) = line["message"]["upsertions"]
    assert (shown["name"], shown["salt"], shown["saltedPassword"]) == ("alice", "KioqKioqKio=", "KioqKioqKioqKioq")


def capture(talk: Talk) -> bytes:
    return pcap(timed(talk.closed().packets))


def sasl_talk() -> Talk:
    talk = Talk().opened()
    return talked(
        talk,
        [
            (SaslHandshakeRequest(mechanism="PLAIN"), 1, SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"])),
            (SaslAuthenticateRequest(auth_bytes=PLAIN), 2,
             SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b"")),
        ],
        first_id=1,
    )  # fmt: skip


def bare_talk() -> Talk:
    """After SaslHandshake v0 the tokens have no header."""
    talk = talked(
        Talk().opened(),
        [(SaslHandshakeRequest(mechanism="PLAIN"), 0, SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"]))],
        first_id=1,
    )
    talk.send(CLIENT, sized([PLAIN]))
    talk.send(BROKER, sized([b""]))
    request = samples.request(MetadataRequest(topics=[]), 1)
    talk.send(CLIENT, struct.pack(">i", len(request)) + request)
    return talk


@pytest.mark.parametrize("talk", [sasl_talk, bare_talk])
@pytest.mark.parametrize("options", [[], ["--annotate"], ["--annotate", "-f", "table"]])
def test_a_password_in_a_capture(talk: Any, options: list[str]) -> None:
    data = capture(talk())
    masked, shown = (run("decode", *options, *more, stdin=data).stdout for more in ([], ["--show-secrets"]))
    assert not any(text in masked for text in SHOWN)
    if options:  # without the bytes of the fields a bare token is not shown at all
        assert any(text in shown for text in SHOWN)
    if options[-1:] != ["table"]:
        assert [json.loads(line)["api"] for line in masked.splitlines()] == [
            json.loads(line)["api"] for line in shown.splitlines()
        ]
