"""Every message of Kafka, declared by hand and compiled on first use.

    from kwire.protocol.messages.metadata import MetadataRequest
    MetadataRequest(topics=None).encode(12)

`message_class` and `api` find the classes by name and number, `decode_internal_record` and its kin those of the records
that Kafka keeps for itself. A message has `encode`, `encode_parts`, `decode`,
`to_json` and `from_json`, all with a version as argument. To add a version to an API: raise `versions=` in its file
under messages/, add the lines of its fields and the line of its history, and let tests/conformance compare it with
Kafka's own schema and classes. This room knows nothing of connections, and leaves records as the bytes that they are.

Imports: nothing.
"""

from typing import TYPE_CHECKING, Any

from kwire.protocol.api import Api, ApiKey, api, message_class

if TYPE_CHECKING:
    from kwire.protocol.internal_topics import (
        InternalRecord,
        decode_control_record,
        decode_internal_record,
        encode_internal_record,
    )
    from kwire.protocol.schema import Message, Request, Response, Struct

__all__ = [
    "Api", "ApiKey", "InternalRecord", "Message", "Request", "Response", "Struct", "api", "decode_control_record",
    "decode_internal_record", "encode_internal_record", "message_class",
]  # fmt: skip

_SCHEMA = ("Message", "Request", "Response", "Struct")


def __getattr__(name: str) -> Any:
    # The schema brings the compiler with it; who only asks for an ApiKey does not pay for that.
    if name in _SCHEMA:
        from kwire.protocol import schema

        return getattr(schema, name)
    if name in __all__:
        from kwire.protocol import internal_topics

        return getattr(internal_topics, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
