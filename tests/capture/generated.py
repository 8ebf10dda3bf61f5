"""Generate a capture of any size while it is read: `python -m tests.capture.generated 100 | kwire decode -f table`.

A client that produces and fetches batches of 100 KB, with small requests between.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from kwire.protocol.headers import encode_request, encode_response
from kwire.protocol.messages.fetch import FetchRequest, FetchResponse
from kwire.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kwire.protocol.messages.produce import ProduceRequest, ProduceResponse
from kwire.records import encode_batch
from tests.capture.captures import BROKER, CLIENT, Talk, pcap_pieces, sized, timed

BATCH = encode_batch([(1_700_000_000_000 + n, b"key-%d" % n, bytes([n]) * 1000, ()) for n in range(100)])


def _laps() -> list[tuple[bytes, bytes]]:
    """Return requests and responses with correlation id 0."""
    produced = ProduceRequest.Topic.Partition(index=0, records=BATCH)
    produce = ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[ProduceRequest.Topic(name="orders", partition_data=[produced])]
    )
    fetched = FetchResponse.Topic.Partition(partition_index=0, error_code=0, high_watermark=5, records=BATCH)
    fetch = FetchResponse(responses=[FetchResponse.Topic(topic="orders", partitions=[fetched])])
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    said = [
        (produce, 9, ProduceResponse(responses=[])),
        (FetchRequest(max_wait_ms=500, min_bytes=1, topics=[]), 12, fetch),
        (beat, 4, HeartbeatResponse(error_code=0)),
    ]
    return [
        (sized(encode_request(request, version, 0, "client")), sized(encode_response(response, version, 0)))
        for request, version, response in said
    ]


def generated(size: int) -> Iterator[bytes]:
    """Yield the pieces of a pcap file of at least `size` bytes."""

    def packets() -> Iterator[bytes]:
        laps = _laps()
        talk = Talk(segment_bytes=16_000).opened()
        sent = id_ = 0
        while sent < size:
            request, response = laps[id_ % len(laps)]
            id_ += 1
            id_bytes = id_.to_bytes(4, "big")
            talk.send(CLIENT, request[:8] + id_bytes + request[12:])
            talk.send(BROKER, response[:4] + id_bytes + response[8:])
            sent += len(request) + len(response)
            yield from talk.packets
            talk.packets.clear()

    return pcap_pieces(timed(packets()))


if __name__ == "__main__":
    for piece in generated(int(sys.argv[1]) * 1_000_000):
        sys.stdout.buffer.write(piece)
