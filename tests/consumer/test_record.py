from __future__ import annotations

import copy
import pickle

from kwire.consumer import ConsumerRecord

RECORD = ConsumerRecord("t", 3, 17, 1_000, 1, b"k", b"v", (("h", None),))


def test_records_compare_by_value_and_pickle() -> None:
    same = ConsumerRecord("t", 3, 17, 1_000, 1, b"k", b"v", (("h", None),))
    assert same == RECORD
    assert hash(same) == hash(RECORD)
    assert pickle.loads(pickle.dumps(RECORD)) == RECORD
    assert ConsumerRecord("t", 3, 18, 1_000, 1, b"k", b"v", (("h", None),)) != RECORD
    assert RECORD != ("t", 3)
    assert not hasattr(RECORD, "__dict__")


def test_records_can_be_derived_from() -> None:
    class Read(ConsumerRecord):
        pass

    read = Read("t", 3, 17, 1_000, 1, b"k", b"v", (("h", None),))
    assert read == RECORD
    assert copy.copy(RECORD) == RECORD
    assert ConsumerRecord.__module__ == "kwire.consumer.record"


def test_the_repr_of_a_long_record_is_shortened() -> None:
    assert "offset=17" in repr(RECORD)
    long = repr(ConsumerRecord("t", 0, 0, value=b"x" * 1_000_000))
    assert len(long) < 300
    assert "(1000000 bytes)" in long
