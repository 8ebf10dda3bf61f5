"""Records in: assignments, positions, and the fetcher.

Imports: cluster, protocol, records, wire.
"""
