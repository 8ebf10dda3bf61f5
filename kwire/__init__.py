"""kwire: the Kafka wire protocol from scratch, and the tools that stand on it.

The public names, imported when first used (PEP 562), so that `import kwire` costs next to nothing and reads no message
module. `kwire.errors` has the exceptions, `kwire.protocol` the messages, `kwire.broker` the in-process broker,
`kwire.spark` the data source.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from kwire.version import VERSION

__version__ = VERSION

if TYPE_CHECKING:
    from kwire.admin import Admin as Admin
    from kwire.admin import NewTopic as NewTopic
    from kwire.consumer import AtTimestamp as AtTimestamp
    from kwire.consumer import Consumer as Consumer
    from kwire.consumer import ConsumerRecord as ConsumerRecord
    from kwire.net import KafkaSelector as KafkaSelector
    from kwire.net import Tls as Tls
    from kwire.producer import GroupMetadata as GroupMetadata
    from kwire.producer import Message as Message
    from kwire.producer import Producer as Producer
    from kwire.producer import ProduceResponse as ProduceResponse
    from kwire.producer import ProducerRequest as ProducerRequest
    from kwire.producer import RecordMetadata as RecordMetadata
    from kwire.records import Compression as Compression
    from kwire.session import Sasl as Sasl

_HOMES = {
    "Admin": "kwire.admin",
    "AtTimestamp": "kwire.consumer",
    "Compression": "kwire.records",
    "Consumer": "kwire.consumer",
    "ConsumerRecord": "kwire.consumer",
    "GroupMetadata": "kwire.producer",
    "KafkaSelector": "kwire.net",
    "Message": "kwire.producer",
    "NewTopic": "kwire.admin",
    "ProduceResponse": "kwire.producer",
    "Producer": "kwire.producer",
    "ProducerRequest": "kwire.producer",
    "RecordMetadata": "kwire.producer",
    "Sasl": "kwire.session",
    "Tls": "kwire.net",
}

__all__ = ["__version__", *sorted(_HOMES)]  # names that __getattr__ provides


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'kwire' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
