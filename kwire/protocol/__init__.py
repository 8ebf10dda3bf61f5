"""Every message of Kafka, declared by hand and compiled on first use.

    from kwire.protocol.messages.metadata import MetadataRequest
    MetadataRequest(topics=None).encode(12)

`message_class` and `api` find the classes by name and number. A message has `encode`, `encode_parts`, `decode`, `to_json`
and `from_json`, all with a version as argument. To add a version to an API: raise `versions=` in its file under
messages/, add the lines of its fields and the line of its history, and let tests/conformance compare it with Kafka's own
schema and classes. This room knows nothing of connections, and leaves records as the bytes that they are.

Imports: nothing.
"""
from kwire.protocol.api import Api, ApiKey, api, message_class

__all__ = ["Api", "ApiKey", "api", "message_class"]
