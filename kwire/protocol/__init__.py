"""Every message of Kafka, declared by hand, with codecs generated on first use.

    from kwire.protocol.messages.metadata import MetadataRequest
    MetadataRequest(topics=None).encode(12)

`message_class` and `api` find classes by name and number; `decode_internal_record` decodes records of Kafka's internal
topics. A message has `encode`, `encode_parts`, `decode`, `to_json` and `from_json`, all with a version as argument.
Connections and record batches belong to other rooms.

    messages/         the declarations, one file per API
    fields            wire types and the grammar of a declaration
    schema            Struct, Message, Request and Response
    codegen           generated codecs and constructors; `primitives` holds the functions that they call
    diagnose          which bytes are which field, and what is wrong with bytes or values
    headers           request and response headers, frames
    api               API keys, and the classes by name
    json              Kafka's JSON form
    internal_topics   records of internal topics and control records
    documentation     what `help` shows

To add a version to an API, raise `versions=` in its file in messages/, add its fields and the line of its history, and
run tests/conformance, which compares it with Kafka's own schema and classes.

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

if not TYPE_CHECKING:  # or checkers would accept every name

    def __getattr__(name: str) -> Any:
        # `schema` imports the code generator, which a caller that only needs ApiKey should not pay for.
        if name in _SCHEMA:
            from kwire.protocol import schema

            return getattr(schema, name)
        if name in __all__:
            from kwire.protocol import internal_topics

            return getattr(internal_topics, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
