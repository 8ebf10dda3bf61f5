"""The bytes below any message: varints, checksums, hashes and size-prefixed frames.

Imports: nothing.
"""
