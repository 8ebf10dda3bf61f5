"""What the clients say, as somebody reads it who has only given Spark's options."""

from __future__ import annotations

import pytest

from kwire.errors import BufferFullError, KwireError
from kwire.spark.wording import in_sparks_words, reworded


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("record 7 of the call has 9 bytes: more than max_request_bytes allows",
         "it has 9 bytes: more than kafka.max.request.size allows"),
        ("raise delivery_timeout_ms above request_timeout_ms",
         "raise kafka.delivery.timeout.ms above kafka.request.timeout.ms"),
        ("send more slowly, raise max_buffered_bytes, or ask producer.explain(topic) why it is not delivered",
         "send more slowly, raise kafka.buffer.memory"),
        ("raise max_frame_bytes, or seek past it", "leave it out by endingOffsets and startingOffsets"),
        ("check the certificate and ca_file", "check the certificate and kafka.ssl.truststore.location"),
        ("all acks, any compression: nothing to change", "all acks, any compression: nothing to change"),
    ],
)  # fmt: skip
def test_keywords_become_options(said: str, expected: str) -> None:
    assert reworded(said) == expected


def test_an_error_is_the_same_in_other_words() -> None:
    with pytest.raises(BufferFullError) as caught, in_sparks_words():
        raise BufferFullError("no room in max_buffered_bytes", remedy="raise max_buffered_bytes", topic="t")
    assert str(caught.value) == "no room in kafka.buffer.memory [topic t]: raise kafka.buffer.memory"
    with pytest.raises(KwireError, match=r"^nothing to do$"), in_sparks_words():
        raise KwireError("nothing to do")


def test_what_is_not_ours_is_left_alone() -> None:
    with pytest.raises(ValueError, match="max_buffered_bytes"), in_sparks_words():
        raise ValueError("max_buffered_bytes")
