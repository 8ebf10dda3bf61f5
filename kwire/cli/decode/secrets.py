"""Secrets in frames: replace passwords, proofs and tokens by `*`.

A mask is as long as what it hides, so offsets and lengths stay. Masked are passwords of SASL PLAIN, proofs and
signatures of SCRAM, tokens of other mechanisms, SCRAM credentials that an admin writes, and HMACs of delegation tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from kwire.cli.decode.field_reader import FieldRow
from kwire.protocol import Api, ApiKey

# API -> secret fields, by the last part of their path.
_SECRET_FIELDS: dict[int, frozenset[str]] = {
    ApiKey.SASL_AUTHENTICATE: frozenset({"auth_bytes"}),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: frozenset({"salt", "salted_password"}),
    ApiKey.CREATE_DELEGATION_TOKEN: frozenset({"hmac"}),
    ApiKey.RENEW_DELEGATION_TOKEN: frozenset({"hmac"}),
    ApiKey.EXPIRE_DELEGATION_TOKEN: frozenset({"hmac"}),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: frozenset({"hmac"}),
}
_MASK = b"*"
# The secrets of a SCRAM message: the client's proof and the server's signature (RFC 5802).
_SCRAM_SECRET = re.compile(rb"(?:^|,)[pv]=([^,]*)")
_SCRAM = re.compile(rb"(?:(?:[ny]|p=[^,]*),[^,]*,)?(?:m=[^,]*,)?(?:n=[^,]*,r=|r=|c=|v=|e=)[\x20-\x7e]*", re.DOTALL)


def may_be_secret(found: Api | None) -> bool:
    return found is not None and found.key in _SECRET_FIELDS


def mask_frame(frame: bytes, found: Api, rows: Iterable[FieldRow], base: int) -> bytes:
    """Return the frame with secret fields masked; `rows` are its fields, `base` is the offset of its first byte.

    Unreadable parts of a message with secrets are masked whole.
    """
    masked = bytearray(frame)
    fields = _SECRET_FIELDS[found.key]
    for row in rows:
        start, end = row.start - base, row.end - base
        if row.type == "?":
            masked[start:end] = _MASK * (end - start)
        elif row.path.rpartition(".")[2] in fields and isinstance(row.value, bytes | memoryview):
            value = bytes(row.value)
            masked[end - len(value) : end] = (
                mask_token(value) if found.key == ApiKey.SASL_AUTHENTICATE else _MASK * len(value)
            )
    return bytes(masked)


def mask_token(token: bytes) -> bytes:
    """Return a SASL message with its secret masked. User names, nonces and mechanisms stay readable."""
    if token.count(b"\0") == 2:  # PLAIN: authorization id, user, password (RFC 4616)
        user, _, password = token.rpartition(b"\0")
        return user + b"\0" + _MASK * len(password)
    if _SCRAM.fullmatch(token):
        masked = bytearray(token)
        for match in _SCRAM_SECRET.finditer(token):
            # A first message may begin with p=, the name of a channel binding.
            if match.start() or token[:1] == b"v":
                masked[match.start(1) : match.end(1)] = _MASK * len(match[1])
        return bytes(masked)
    return _MASK * len(token)
