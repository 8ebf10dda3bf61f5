"""Errors of clients name Spark's options."""

from __future__ import annotations

import pytest

from kwire.errors import BufferFullError, KwireError
from kwire.spark.error_messages import translate, with_option_names


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("record 7 of the call has 9 bytes: more than max_request_bytes allows",
         "it has 9 bytes: more than kafka.max.request.size allows"),
        ("raise delivery_timeout_ms above request_timeout_ms",
         "raise kafka.delivery.timeout.ms above kafka.request.timeout.ms"),
        ("send more slowly, raise max_buffered_bytes, or see producer.explain(topic) for the reason",
         "send more slowly, raise kafka.buffer.memory"),
        ("raise max_frame_bytes, or seek past it", "leave it out by endingOffsets and startingOffsets"),
        ("check the certificate and ca_file", "check the certificate and kafka.ssl.truststore.location"),
        ("all acks, any compression: nothing to change", "all acks, any compression: nothing to change"),
    ],
)  # fmt: skip
def test_keywords_become_options(message: str, expected: str) -> None:
    assert translate(message) == expected


def test_message_and_remedy_are_translated() -> None:
    with pytest.raises(BufferFullError) as caught, with_option_names():
        raise BufferFullError("no room in max_buffered_bytes", remedy="raise max_buffered_bytes", topic="t")
    assert str(caught.value) == "no room in kafka.buffer.memory [topic t]: raise kafka.buffer.memory"
    with pytest.raises(KwireError, match=r"^nothing to do$"), with_option_names():
        raise KwireError("nothing to do")


def test_other_exceptions_are_left_alone() -> None:
    with pytest.raises(ValueError, match="max_buffered_bytes"), with_option_names():
        raise ValueError("max_buffered_bytes")
