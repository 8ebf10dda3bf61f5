"""Records out: partitioners, partition queues, and the sender that owns order.

Imports: cluster, protocol, records, wire.
"""
