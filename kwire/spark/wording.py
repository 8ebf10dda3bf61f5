"""Errors of kwire's clients in the words of somebody who only knows Spark's options.

A client names its keywords and its methods: max_request_bytes, `producer.explain`. Whoever reads a stack trace of
Spark's driver has given neither. Owns the translation, which changes the error in place, its causes left as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from kwire.errors import KwireError
from kwire.spark.client_options import PREFIX, property_names

_PHRASES = (
    (r"\brecord \d+ of the call\b", "it"),
    (r",? or ask producer\.explain\(.*", ""),
    (r"\bset idempotence=False", "set kafka.enable.idempotence to false"),
    (r"(raise max_frame_bytes, or )?seek past (it|the damage)", "leave it out by endingOffsets and startingOffsets"),
    (r"\(bootstrap,", "(kafka.bootstrap.servers,"),
    (r"\bca_file\b", "kafka.ssl.truststore.location"),
    (r"\bcert_file\b", "kafka.ssl.keystore.location"),
    (r"\bkey_password\b", "kafka.ssl.key.password"),
    (r"\bturn TLS on in the client\b", "set kafka.security.protocol to SSL or SASL_SSL"),
)


@contextmanager
def in_sparks_words() -> Iterator[None]:
    """Errors of kwire leave reworded."""
    try:
        yield
    except KwireError as error:
        error.message = reworded(error.message)
        error.remedy = error.remedy and reworded(error.remedy)
        raise


def reworded(text: str) -> str:
    for pattern, phrase in _PHRASES:
        text = re.sub(pattern, phrase, text)
    for keyword, name in property_names().items():
        if "_" in keyword:  # others are words of English as well
            text = re.sub(rf"\b{keyword}\b", PREFIX + name, text)
    return text
