"""What a client knows of a cluster, and the one event loop that everything runs on.

Imports: net, session, protocol.
"""
