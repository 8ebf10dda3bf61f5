"""The consumer protocol of classic groups: data that members exchange through the coordinator, which does not read it.

The subscription is the metadata of JoinGroup, the assignment that of SyncGroup's response. Two bytes of
version precede each (`encode_versioned`, `decode_versioned`). A reader of a newer version reads the fields it knows and
ignores the rest. So no version may remove or move a field, and none is flexible.

v0   topics and user data
v1   partitions owned already, for cooperative rebalances (KIP-429)
v2   the generation in which they were owned (KIP-792)
v3   the member's rack (KIP-881)
"""

from struct import Struct as Packer
from typing import TypeVar

from kwire.errors import DecodeError
from kwire.protocol.diagnose import decode_prefix
from kwire.protocol.fields import bytes_, int32, string
from kwire.protocol.schema import Message, Struct, since

_VERSION = Packer(">h")


class ConsumerProtocolSubscription(Message, versions=(0, 3), flexible=None):
    class TopicPartition(Struct):
        topic: string
        partitions: list[int32]

    topics: list[string]
    user_data: bytes_ | None = None
    owned_partitions: list[TopicPartition] = since(1, default=[], ignorable=True)
    generation_id: int32 = since(2, default=-1, ignorable=True)
    rack_id: string | None = since(3, default=None, ignorable=True)


class ConsumerProtocolAssignment(Message, versions=(0, 3), flexible=None):
    class TopicPartition(Struct):
        topic: string
        partitions: list[int32]

    assigned_partitions: list[TopicPartition]
    user_data: bytes_ | None = None


M = TypeVar("M", bound=Message)


def encode_versioned(message: Message, version: int) -> bytes:
    """Return the message behind its version. Raises EncodeError."""
    return _VERSION.pack(version) + message.encode(version)


def decode_versioned(cls: type[M], data: bytes) -> tuple[int, M]:
    """(version, message), from a writer of any version. Raises DecodeError."""
    if len(data) < _VERSION.size:
        raise DecodeError(f"{len(data)} bytes hold no version", api=cls.__name__, path="version", offset=0)
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise DecodeError(f"a version of {version}", api=cls.__name__, path="version", offset=0)
    if version in cls.VERSIONS:
        try:
            return version, cls.decode(data, version, _VERSION.size)  # ten times as fast; refuses bytes behind the end
        except DecodeError:
            pass
    known = min(version, cls.VERSIONS.stop - 1)
    message: M = decode_prefix(cls, data, known, _VERSION.size)[0]
    return version, message
