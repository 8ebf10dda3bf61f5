"""Record batches v2, message sets v0 and v1, control records, and their compression.

Imports: wire.
"""
