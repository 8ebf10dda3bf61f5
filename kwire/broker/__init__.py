"""An in-process broker that any Kafka client can talk to.

Imports: net, session, protocol, records, wire.
"""
