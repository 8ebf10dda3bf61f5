"""A PySpark data source: `format("kwire")`.

Imports: consumer, producer, cluster, net, session, protocol, records, wire.
"""
