"""`kwire decode`: the bytes of Kafka frames, and captures of the network, explained.

command.py         the command and its options
input_formats.py   bytes out of hex, dumps, base64
frame.py           frames found in bytes, and one frame decoded as far as it makes sense
field_reader.py    headers and record batches, field by field
render.py          a decoded frame as JSON or as lines
capture_view.py    the requests of a capture with their responses
secrets.py         passwords and tokens masked
"""

from kwire.cli.decode.command import command

__all__ = ["command"]
