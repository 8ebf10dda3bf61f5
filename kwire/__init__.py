"""kwire: the Kafka wire protocol from scratch, with the tools that use it.

Public names and packages are imported on first use (PEP 562), so `import kwire` is fast. `kwire.errors` has all
exceptions, `kwire.protocol` the messages, `kwire.aio` the clients for asyncio, `kwire.broker` the embedded broker,
`kwire.spark` the PySpark data source.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Literal

from kwire.version import VERSION

__version__ = VERSION

if TYPE_CHECKING:
    from kwire import admin as admin
    from kwire import aio as aio
    from kwire import broker as broker
    from kwire import capture as capture
    from kwire import cli as cli
    from kwire import cluster as cluster
    from kwire import consumer as consumer
    from kwire import doctor as doctor
    from kwire import errors as errors
    from kwire import lint as lint
    from kwire import metrics as metrics
    from kwire import net as net
    from kwire import producer as producer
    from kwire import properties as properties
    from kwire import protocol as protocol
    from kwire import queue as queue
    from kwire import records as records
    from kwire import session as session
    from kwire import share as share
    from kwire import simulation as simulation
    from kwire import spark as spark
    from kwire import tap as tap
    from kwire import timeline as timeline
    from kwire import tracing as tracing
    from kwire.admin import Admin as Admin
    from kwire.admin import NewTopic as NewTopic
    from kwire.cluster import Backoff as Backoff
    from kwire.cluster import Cluster as Cluster
    from kwire.cluster import GroupMetadata as GroupMetadata
    from kwire.consumer import Ago as Ago
    from kwire.consumer import AtTimestamp as AtTimestamp
    from kwire.consumer import Consumer as Consumer
    from kwire.consumer import ConsumerInterceptor as ConsumerInterceptor
    from kwire.consumer import ConsumerRecord as ConsumerRecord
    from kwire.consumer import Offset as Offset
    from kwire.consumer import Processor as Processor
    from kwire.consumer import Regex as Regex
    from kwire.consumer import TopicPartition as TopicPartition
    from kwire.consumer import stop_on_signals as stop_on_signals
    from kwire.consumer import to_topic as to_topic
    from kwire.errors import AbortableError as AbortableError
    from kwire.errors import AcknowledgeError as AcknowledgeError
    from kwire.errors import AuthenticationError as AuthenticationError
    from kwire.errors import AuthorizationError as AuthorizationError
    from kwire.errors import BrokerError as BrokerError
    from kwire.errors import BufferFullError as BufferFullError
    from kwire.errors import ClosedError as ClosedError
    from kwire.errors import CommitError as CommitError
    from kwire.errors import CommitFailedError as CommitFailedError
    from kwire.errors import ConfigurationError as ConfigurationError
    from kwire.errors import DeliveryError as DeliveryError
    from kwire.errors import ErrorCode as ErrorCode
    from kwire.errors import FatalError as FatalError
    from kwire.errors import FencedError as FencedError
    from kwire.errors import FencedInstanceError as FencedInstanceError
    from kwire.errors import GroupError as GroupError
    from kwire.errors import KwireError as KwireError
    from kwire.errors import LockLostError as LockLostError
    from kwire.errors import LoginError as LoginError
    from kwire.errors import LogTruncationError as LogTruncationError
    from kwire.errors import NoOffsetError as NoOffsetError
    from kwire.errors import OffsetOutOfRangeError as OffsetOutOfRangeError
    from kwire.errors import ProcessingError as ProcessingError
    from kwire.errors import RebalanceInProgressError as RebalanceInProgressError
    from kwire.errors import RecordTooLargeError as RecordTooLargeError
    from kwire.errors import RequestTimeoutError as RequestTimeoutError
    from kwire.errors import SerializationError as SerializationError
    from kwire.errors import TopicError as TopicError
    from kwire.errors import WakeupError as WakeupError
    from kwire.net import KafkaSelector as KafkaSelector
    from kwire.net import Tls as Tls
    from kwire.producer import Message as Message
    from kwire.producer import Producer as Producer
    from kwire.producer import ProduceResponse as ProduceResponse
    from kwire.producer import ProducerInterceptor as ProducerInterceptor
    from kwire.producer import ProducerRequest as ProducerRequest
    from kwire.producer import RecordMetadata as RecordMetadata
    from kwire.properties.translate import options as options
    from kwire.records import Compression as Compression
    from kwire.session import Sasl as Sasl
    from kwire.share import AcknowledgeType as AcknowledgeType
    from kwire.share import ShareConsumer as ShareConsumer
    from kwire.share import ShareRecord as ShareRecord

_HOMES = {
    "stop_on_signals": "kwire.consumer",
    "TopicPartition": "kwire.consumer",
    "AbortableError": "kwire.errors",
    "AcknowledgeError": "kwire.errors",
    "AcknowledgeType": "kwire.share",
    "Admin": "kwire.admin",
    "Ago": "kwire.consumer",
    "AtTimestamp": "kwire.consumer",
    "AuthenticationError": "kwire.errors",
    "AuthorizationError": "kwire.errors",
    "Backoff": "kwire.cluster",
    "BrokerError": "kwire.errors",
    "BufferFullError": "kwire.errors",
    "ClosedError": "kwire.errors",
    "Cluster": "kwire.cluster",
    "CommitError": "kwire.errors",
    "CommitFailedError": "kwire.errors",
    "Compression": "kwire.records",
    "ConfigurationError": "kwire.errors",
    "Consumer": "kwire.consumer",
    "ConsumerInterceptor": "kwire.consumer",
    "ConsumerRecord": "kwire.consumer",
    "DeliveryError": "kwire.errors",
    "ErrorCode": "kwire.errors",
    "FatalError": "kwire.errors",
    "FencedError": "kwire.errors",
    "FencedInstanceError": "kwire.errors",
    "GroupError": "kwire.errors",
    "GroupMetadata": "kwire.cluster",
    "KafkaSelector": "kwire.net",
    "KwireError": "kwire.errors",
    "LockLostError": "kwire.errors",
    "LoginError": "kwire.errors",
    "LogTruncationError": "kwire.errors",
    "Message": "kwire.producer",
    "NewTopic": "kwire.admin",
    "NoOffsetError": "kwire.errors",
    "Offset": "kwire.consumer",
    "OffsetOutOfRangeError": "kwire.errors",
    "Producer": "kwire.producer",
    "ProcessingError": "kwire.errors",
    "Processor": "kwire.consumer",
    "ProduceResponse": "kwire.producer",
    "ProducerInterceptor": "kwire.producer",
    "ProducerRequest": "kwire.producer",
    "RebalanceInProgressError": "kwire.errors",
    "RecordMetadata": "kwire.producer",
    "RecordTooLargeError": "kwire.errors",
    "Regex": "kwire.consumer",
    "RequestTimeoutError": "kwire.errors",
    "Sasl": "kwire.session",
    "SerializationError": "kwire.errors",
    "ShareConsumer": "kwire.share",
    "ShareRecord": "kwire.share",
    "Tls": "kwire.net",
    "TopicError": "kwire.errors",
    "WakeupError": "kwire.errors",
    "options": "kwire.properties.translate",
    "to_topic": "kwire.consumer",
}

_PACKAGES = frozenset(
    {
        "admin", "aio", "broker", "capture", "cli", "cluster", "consumer", "doctor", "errors", "lint", "logs",
        "metrics", "net", "pipeline", "producer", "properties", "protocol", "queue", "records", "session", "share",
        "simulation", "spark", "tap", "timeline", "tracing",
    }
)  # fmt: skip

__all__ = ["__version__", "implementation", *sorted(_HOMES)]  # pyright: ignore[reportUnsupportedDunderAll]


def implementation() -> Literal["c", "python"]:
    """Return which implementation of the hot loops is in use: "c", the accelerator, or "python"; see KWIRE_IMPL."""
    from kwire.wire.accel import IMPLEMENTATION

    return IMPLEMENTATION


if not TYPE_CHECKING:  # or checkers would accept every name

    def __getattr__(name: str) -> object:
        if name in _PACKAGES:
            return import_module(f"kwire.{name}")
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module 'kwire' has no attribute {name!r}")
        value = getattr(import_module(home), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_PACKAGES})
