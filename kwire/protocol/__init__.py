"""Every message of Kafka, declared by hand and compiled on first use.

Imports: wire.
"""
