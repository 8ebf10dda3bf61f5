"""`kwire record FILE`: the tap that shows nothing and writes a capture."""

from __future__ import annotations

import functools

import click

from kwire.cli import tap

_HELP = """Record what clients and brokers say, in a capture.

The same as `kwire tap -q -o FILE`: a proxy between clients and brokers. Passwords and tokens are masked in the file,
which kwire decode, lint, stats, timeline, diff and replay read, and Wireshark.

\b
    kwire record traffic.pcapng -b broker:9092 --listen 127.0.0.1:9092
    kwire record traffic.pcapng -b broker:9092 --exec 'pytest tests/'
"""
_LEFT_OUT = ("record", "where", "has_ui")  # the first is the argument; a capture has everything

assert tap.command.callback is not None
command = click.Command(
    "record",
    params=[
        click.Argument(["record"], metavar="FILE"),
        *(param for param in tap.command.params if param.name not in _LEFT_OUT),
    ],
    callback=functools.partial(tap.command.callback, where=None, has_ui=False, shows=False),
    help=_HELP,
)
