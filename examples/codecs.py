"""Encode and decode messages and record batches, without a broker.

python examples/codecs.py
"""

from kwire.protocol import message_class
from kwire.protocol.headers import encode_request
from kwire.protocol.messages.produce import ProduceRequest
from kwire.records import Compression, decode_batches, encode_batch


def main() -> None:
    # A batch of records: (milliseconds since 1970, key, value, headers).
    rows = [(1_700_000_000_000 + n, b"key", b"value %d" % n, [("n", b"%d" % n)]) for n in range(100)]
    batch = encode_batch(rows, compression=Compression.LZ4)
    (read,) = decode_batches(batch)
    records = read.records()
    print(f"{len(records)} records in {len(batch)} bytes, the last is {records[-1].value!r}")

    # A request with that batch, as a frame, and back from Kafka's own JSON.
    topic = ProduceRequest.Topic(name="orders", partition_data=[ProduceRequest.Topic.Partition(index=0, records=batch)])
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
    frame = b"".join(encode_request(request, 9, correlation_id=7, client_id="me"))
    print(f"a Produce request of {len(frame)} bytes")

    heartbeat = message_class("HeartbeatRequest")
    beat = heartbeat.from_json({"groupId": "g", "generationId": 3, "memberId": "m", "groupInstanceId": None}, 4)
    assert heartbeat.decode(beat.encode(4), 4) == beat
    print(beat.encode(4).hex(" "))


if __name__ == "__main__":
    main()
