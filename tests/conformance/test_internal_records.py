"""Records of internal topics are, byte for byte, those that Kafka's coordinators and controllers read and write."""

from collections.abc import Iterator
from random import Random

from kwire.protocol import message_class
from kwire.protocol.internal_topics import (
    COORDINATOR_TOPICS,
    FRAMED_TOPICS,
    InternalRecord,
    decode_internal_record,
    encode_internal_record,
)
from tests.conformance import oracle
from tests.protocol.samples import random_message

RELEASE = "4.4.0"
SEED = 21
SAMPLES = 4

# Records that 4.4 no longer reads.
_GONE = {"ShareGroupPartitionMetadata"}


def records() -> Iterator[tuple[str, InternalRecord]]:
    random = Random(SEED)
    for topic, types in COORDINATOR_TOPICS.items():
        for name in types.values():
            key_class, value_class = message_class(f"{name}Key"), message_class(f"{name}Value")
            if name in _GONE:
                continue
            yield topic, InternalRecord(random_message(key_class, 0, random), None)
            for version in [*value_class.VERSIONS] * SAMPLES:
                key, value = random_message(key_class, 0, random), random_message(value_class, version, random)
                yield topic, InternalRecord(key, value, version)
    for topic, types in FRAMED_TOPICS.items():
        for name in types.values():
            value_class = message_class(name)
            for version in [*value_class.VERSIONS] * SAMPLES:
                yield topic, InternalRecord(None, random_message(value_class, version, random), version)


def test_kafkas_coordinators_and_controllers_read_and_write_the_same() -> None:
    cases = list(records())
    lines, expected = [], []
    for topic, record in cases:
        key, value = encode_internal_record(record)
        assert decode_internal_record(topic, key, value) == record
        parts = [hex_of(key), hex_of(value)]
        lines.append("\t".join([topic, *parts]))
        expected.append("\t".join(["ok", *parts, name_of(record.key), name_of(record.value), str(record.version)]))
    assert oracle.filtered(RELEASE, "RecordOracle.java", lines) == expected
    print(f"{len(cases)} records, seed {SEED}")


def test_what_kafka_refuses_too() -> None:
    # An unknown type and an unknown version. Kafka accepts trailing bytes; kwire does not.
    lines = ["__consumer_offsets\t0063\t-", "__consumer_offsets\t0002000161\t0009", "__cluster_metadata\t-\t017f00"]
    assert all(response.startswith("error") for response in oracle.filtered(RELEASE, "RecordOracle.java", lines))


def hex_of(data: bytes | None) -> str:
    return "-" if data is None else data.hex()


def name_of(message: object) -> str:
    return "-" if message is None else type(message).__name__
