"""Real Apache Kafka brokers on loopback, of a chosen version, for tests, recordings, benchmarks and people.

Owns: fetching the jars by Maven (`jars`), the configuration files of every version (`configuration`), certificates
(`certificates`), the Java processes and their end (`process`), and clusters made of them (`cluster`). Refuses: to
know kwire. It is the other side that kwire is tested against, so it asks brokers whether they are up with a few bytes
of its own (`probe`). Only the standard library, but for `certificates` (package cryptography, of the `test` extra).
"""

from brokers.cluster import KafkaCluster
from brokers.jars import fetch_jars

__all__ = ["KafkaCluster", "fetch_jars"]
