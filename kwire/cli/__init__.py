"""The command line: `kwire ...`.

Imports: broker, consumer, producer, cluster, net, session, protocol, records, wire.
"""
