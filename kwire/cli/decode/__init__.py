"""`kwire decode`: the bytes of Kafka frames, and captures of the network, explained. `kwire.capture` decodes.

command.py         the command and its options
input_formats.py   bytes out of hex, dumps, base64
render.py          a decoded frame as JSON or as lines
capture_view.py    the requests of a capture with their responses
pair_filter.py     the options that choose among them
"""

from kwire.cli.decode.command import command

__all__ = ["command"]
