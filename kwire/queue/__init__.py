"""Message queues on Kafka: many queues, each message acknowledged by itself.

    service          `Service`, `Queue`: the queues of one service, and the clients that they share
    producer         `Producer`: sends messages
    consumer         `Consumer`: receives them; the buffer and the bounds
    message          `Message`: ack, nack, release, extend
    envelope         what a message carries in headers: id, deliveries, delay, expiry
    backend          what a consumer needs from the place where the messages are
    tracker_backend  messages on one topic, markers of what is in progress on another
    share_backend    messages of share groups: the brokers know what is in progress
    share_setup      the topic and the share group of each queue; "auto"
    topics           the topics: created or checked
    markers          what consumers log about a message in progress; the Protocol Buffers of kafka-mq-go
    tracker          `Tracker`: delivers again what nobody works on any more
    tracker_state    which messages are in progress and which are due, by the markers of one partition
    dedup            which ids a partition had lately
    browser          dead letters and their redrive, peek, stats, explain
    options          `QueueOptions`; kafka-mq-go's YAML file
    metrics          what is counted

`kwire.aio.queue` is the same for asyncio.

Imports: wire, admin, cluster, consumer, net, producer, protocol, share.
"""

from kwire.queue.browser import DeadLetter, MessageState, QueueStats, WaitingMessage
from kwire.queue.consumer import Consumer
from kwire.queue.message import Message
from kwire.queue.options import QueueOptions, read_config
from kwire.queue.producer import Producer
from kwire.queue.service import Queue, Service
from kwire.queue.tracker import Tracker

__all__ = [
    "Consumer", "DeadLetter", "Message", "MessageState", "Producer", "Queue", "QueueOptions", "QueueStats", "Service",
    "Tracker", "WaitingMessage", "read_config",
]  # fmt: skip
