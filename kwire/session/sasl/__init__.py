"""SASL: the messages of the mechanisms, for client and broker. Bytes in, bytes out; nothing of Kafka's requests.

PLAIN (RFC 4616), SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677).
"""

from kwire.session.sasl.client import MECHANISMS, Sasl, SaslClient
from kwire.session.sasl.server import SaslExchange, SaslServer

__all__ = ["MECHANISMS", "Sasl", "SaslClient", "SaslExchange", "SaslServer"]
