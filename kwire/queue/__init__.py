"""Message queues on Kafka: many queues on two topics, each message acknowledged by itself.

    service          `Service`, `Queue`: the queues on one pair of topics, and the clients that they share
    aio              the same for asyncio
    producer         `Producer`: sends messages
    consumer         `Consumer`: receives them; the buffer and the bounds
    message          `Message`: ack, nack, release, extend
    envelope         what a message carries in headers: id, deliveries, delay, expiry
    backend          what a consumer needs from the place where the messages are
    tracker_backend  messages on one topic, markers of what is in progress on another
    topics           the topics: created or checked
    markers          what consumers log about a message in progress; the Protocol Buffers of kafka-mq-go
    tracker          `Tracker`: delivers again what nobody works on any more
    tracker_state    which messages are in progress and which are due, by the markers of one partition
    options          `QueueOptions`; kafka-mq-go's YAML file
    metrics          what is counted

Imports: admin, aio, cluster, consumer, net, producer, protocol.
"""

from kwire.queue import aio
from kwire.queue.consumer import Consumer
from kwire.queue.message import Message
from kwire.queue.options import QueueOptions, read_config
from kwire.queue.producer import Producer
from kwire.queue.service import Queue, Service
from kwire.queue.tracker import Tracker

__all__ = ["Consumer", "Message", "Producer", "Queue", "QueueOptions", "Service", "Tracker", "aio", "read_config"]
