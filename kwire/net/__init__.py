"""The only room with sockets, selectors, TLS and time. It moves frames and knows no message.

`KafkaSelector` is whole by itself: a program that brings its own messages needs nothing above this room.

Imports: wire.
"""
from kwire.net.clock import Clock, SystemClock, VirtualClock
from kwire.net.resolver import Address, Resolver, ThreadResolver, show_address
from kwire.net.results import Disconnection, Node, Receive, Sent
from kwire.net.selector import KafkaSelector
from kwire.net.tls import Tls

__all__ = [
    "Address",
    "Clock",
    "Disconnection",
    "KafkaSelector",
    "Node",
    "Receive",
    "Resolver",
    "Sent",
    "SystemClock",
    "ThreadResolver",
    "Tls",
    "VirtualClock",
    "show_address",
]
