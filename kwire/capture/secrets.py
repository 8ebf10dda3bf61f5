"""Secrets in frames: replace passwords, proofs and tokens by `*`; on request also keys, values and headers of records.

A mask is as long as what it hides, so offsets and lengths stay, and any tool still reads the frame. Masked are the
passwords of SASL PLAIN, proofs and signatures of SCRAM, tokens of other mechanisms, SCRAM credentials that an admin
writes, HMACs of delegation tokens, requests within an Envelope, and configs that hold secrets.

With `payloads`, records are masked too (`masked_batches`). A batch that is not whole is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kwire.capture.field_reader import FieldRow
from kwire.capture.record_fields import record_fields
from kwire.protocol import Api, ApiKey

if TYPE_CHECKING:
    from kwire.capture.decoded_frame import DecodedFrame

# API -> secret fields, by the last part of their path.
_SECRET_FIELDS: dict[int, frozenset[str]] = {
    ApiKey.SASL_AUTHENTICATE: frozenset({"auth_bytes"}),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: frozenset({"salt", "salted_password"}),
    ApiKey.CREATE_DELEGATION_TOKEN: frozenset({"hmac"}),
    ApiKey.RENEW_DELEGATION_TOKEN: frozenset({"hmac"}),
    ApiKey.EXPIRE_DELEGATION_TOKEN: frozenset({"hmac"}),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: frozenset({"hmac"}),
    ApiKey.ENVELOPE: frozenset({"request_data", "response_data"}),
}
# APIs with configs: a secret is the `value` beside a secret `name`, or one that the broker calls sensitive.
_CONFIG_APIS = frozenset(
    {ApiKey.DESCRIBE_CONFIGS, ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.CREATE_TOPICS}
)
_SECRET_CONFIG = re.compile(
    r"password|passphrase|secret|credential|token|sasl\.jaas\.config|(?:^|\.)ssl\.keystore\.key$", re.I
)
_RECORD_APIS = frozenset({ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.SHARE_FETCH})
_MASK = b"*"
# The secrets of a SCRAM message: the client's proof and the server's signature (RFC 5802).
_SCRAM_SECRET = re.compile(rb"(?:^|,)[pv]=([^,]*)")
_SCRAM = re.compile(rb"(?:(?:[ny]|p=[^,]*),[^,]*,)?(?:m=[^,]*,)?(?:n=[^,]*,r=|r=|c=|v=|e=)[\x20-\x7e]*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Redaction:
    """What is masked: secrets, and with `payloads` also keys, values and headers of records."""

    secrets: bool = True
    payloads: bool = False

    def concerns(self, found: Api | None) -> bool:
        """Return whether a message of this API may hold something to mask."""
        if found is None:
            return False
        if self.payloads and found.key in _RECORD_APIS:
            return True
        return self.secrets and (found.key in _SECRET_FIELDS or found.key in _CONFIG_APIS)

    def mask_frame(self, frame: bytes, decoded: DecodedFrame, base: int) -> bytes:
        """Return the frame masked; `decoded` has the rows of its fields, `base` is the offset of its first byte.

        Unreadable parts of a message that may hold secrets are masked whole.
        """
        found = decoded.api
        if not self.concerns(found):
            return frame
        assert found is not None
        masked = bytearray(frame)
        if self.secrets and found.key in _SECRET_FIELDS:
            _mask_fields(masked, found, decoded.rows, base)
        elif self.secrets and found.key in _CONFIG_APIS:
            _mask_configs(masked, decoded.rows, base)
        if self.payloads and found.key in _RECORD_APIS:
            return _mask_payloads(masked, decoded, base)
        return bytes(masked)


MASKED = Redaction()


def _mask_unread(masked: bytearray, row: FieldRow, base: int) -> None:
    masked[row.start - base : row.end - base] = _MASK * len(row.data)


def _mask_value(masked: bytearray, row: FieldRow, base: int) -> None:
    """Mask the value at the end of a field, behind its length."""
    value = row.value.encode() if isinstance(row.value, str) else bytes(row.value)
    end = row.end - base
    masked[end - len(value) : end] = _MASK * len(value)


def _mask_fields(masked: bytearray, found: Api, rows: Iterable[FieldRow], base: int) -> None:
    fields = _SECRET_FIELDS[found.key]
    for row in rows:
        if row.type == "?":
            _mask_unread(masked, row, base)
        elif row.path.rpartition(".")[2] in fields and isinstance(row.value, bytes | memoryview):
            if found.key == ApiKey.SASL_AUTHENTICATE:
                value, end = bytes(row.value), row.end - base
                masked[end - len(value) : end] = mask_token(value)
            else:
                _mask_value(masked, row, base)


def _mask_configs(masked: bytearray, rows: Iterable[FieldRow], base: int) -> None:
    """Mask values of configs. A config whose synonyms are listed is secret with all of them."""
    values: list[FieldRow] = []
    secret: set[str] = set()  # paths of configs
    for row in rows:
        parent, _, name = row.path.rpartition(".")
        if row.type == "?":
            _mask_unread(masked, row, base)
        elif name == "value" and isinstance(row.value, str):
            values.append(row)
        elif (name == "name" and isinstance(row.value, str) and _SECRET_CONFIG.search(row.value)) or (
            name == "is_sensitive" and row.value
        ):
            secret.add(parent)
    for row in values:
        parent = row.path.rpartition(".")[0]
        if parent in secret or parent.partition(".synonyms[")[0] in secret:
            _mask_value(masked, row, base)


def _mask_payloads(masked: bytearray, decoded: DecodedFrame, base: int) -> bytes:
    """Return the frame with its records masked; what cannot be read becomes zeros."""
    body: Any = decoded.body
    if body is None or decoded.body_start is None:
        for row in decoded.rows:
            if (row.type == "?" or ".batch[" in row.path) and not row.within:
                masked[row.start - base : row.end - base] = bytes(len(row.data))
        return bytes(masked)
    from kwire.capture.masked_batches import mask_batches  # only those who mask records pay for it

    for struct, name in record_fields(body):
        setattr(struct, name, mask_batches(bytes(getattr(struct, name))))
    return bytes(masked[: decoded.body_start]) + bytes(body.encode(decoded.version))


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
