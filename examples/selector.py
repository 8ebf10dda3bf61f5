"""Use the selector and the session alone: your own client, without kwire's producer or consumer.

`KafkaSelector` sends and receives frames. `Session` is one connection without I/O: it negotiates versions,
authenticates and matches responses with requests. This program is the loop that connects both.

    python examples/selector.py localhost:9092
"""

import sys
from collections.abc import Iterator
from time import monotonic

import kwire
from kwire.errors import KwireError
from kwire.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kwire.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kwire.session import ConnectionBroken, HandshakeDone, RequestFailed, ResponseReceived, Session
from kwire.session.events import Event

NODE = "first"


def events(selector: kwire.KafkaSelector, session: Session, host: str, port: int) -> Iterator[Event]:
    """Drive one connection until it is closed; yield what the session says."""
    selector.connect(NODE, host, port)
    is_started = False
    while True:
        frames = selector.poll([(NODE, frame) for frame in session.frames()], timeout=1.0)
        now = monotonic()
        for disconnection in selector.disconnected:
            raise disconnection.cause
        if not is_started and NODE in selector.connected:
            is_started = True
            yield from session.start(now)
        for received in frames:
            yield from session.receive(received.frame, now)
        yield from session.expire(now)


def main(bootstrap: str) -> None:
    host, _, port = bootstrap.split(",")[0].rpartition(":")
    selector = kwire.KafkaSelector()
    session = Session.client(bootstrap, client_id="by hand")
    try:
        for event in events(selector, session, host, int(port)):
            match event:
                case HandshakeDone():
                    session.send(MetadataRequest(topics=None), monotonic())
                    session.send(DescribeClusterRequest(), monotonic())
                case ResponseReceived(response=MetadataResponse() as response):
                    print(f"{len(response.topics or ())} topics, {len(response.brokers)} brokers")
                case ResponseReceived(response=DescribeClusterResponse() as response):
                    print(f"cluster {response.cluster_id}, controller {response.controller_id}")
                    return
                case RequestFailed(error=error) | ConnectionBroken(error=error):
                    raise error
    except KwireError as error:
        raise SystemExit(str(error)) from error
    finally:
        selector.close()


if __name__ == "__main__":
    main(*sys.argv[1:] or ["localhost:9092"])
