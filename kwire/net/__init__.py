"""The only room with sockets, selectors, TLS and time. It moves frames and knows no message.

Imports: wire.
"""
