"""Error messages of kwire's clients, rewritten with the names of Spark's options.

A client's error names its keywords and methods, such as max_request_bytes or `producer.explain`. A Spark user has given
kafka.max.request.size and has no producer to call.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from kwire.errors import KwireError
from kwire.spark.client_options import PREFIX, property_names

_PHRASES = (
    (r"\brecord \d+ of the call\b", "it"),
    (r",? or see producer\.explain\(.*", ""),
    (r"\bset idempotence=False", "set kafka.enable.idempotence to false"),
    (r"(raise max_frame_bytes, or )?seek past (it|the damage)", "leave it out by endingOffsets and startingOffsets"),
    (r"\(bootstrap,", "(kafka.bootstrap.servers,"),
    (r"\bca_file of the token server, or https\.ca\.location in its properties", "kafka.https.ca.location"),
    (r"\bca_file\b", "kafka.ssl.truststore.location"),
    (r"\bcert_file\b", "kafka.ssl.keystore.location"),
    (r"\bkey_password\b", "kafka.ssl.key.password"),
    (r"\bturn TLS on in the client\b", "set kafka.security.protocol to SSL or SASL_SSL"),
)


@contextmanager
def with_option_names() -> Iterator[None]:
    """Rewrite the message and the remedy of a KwireError that leaves the block. Its causes stay as they are."""
    try:
        yield
    except KwireError as error:
        error.message = translate(error.message)
        error.remedy = error.remedy and translate(error.remedy)
        raise


def translate(text: str) -> str:
    for pattern, phrase in _PHRASES:
        text = re.sub(pattern, phrase, text)
    for keyword, name in property_names().items():
        if "_" in keyword:  # a keyword such as acks or compression is also an English word
            text = re.sub(rf"\b{keyword}\b", PREFIX + name, text)
    return text
