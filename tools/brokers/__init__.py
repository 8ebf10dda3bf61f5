"""Run real Apache Kafka brokers of a chosen version on loopback, for tests, recordings, benchmarks and people.

    jars             fetches the jars by Maven
    configuration    writes the configuration files of every version
    certificates     makes TLS certificates (needs the package cryptography, of the `test` extra)
    process          starts and ends the Java processes; `cluster` makes clusters of them
    probe            asks whether a broker is up

This package does not import kwire, which is tested against these brokers. Other than `certificates`, it needs only the
standard library.
"""

from brokers.cluster import KafkaCluster
from brokers.jars import fetch_jars

__all__ = ["KafkaCluster", "fetch_jars"]
