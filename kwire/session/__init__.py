"""The sans-IO connection, for both roles: negotiation, authentication, the FIFO of requests in flight.

Imports: wire, protocol.
"""
