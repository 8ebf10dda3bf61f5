"""The codecs and constructors of the declared classes, compiled on first use.

One flat Python function per (message, version): adjacent fields of fixed size, the length of the string that follows
and the first byte of a varint are read or written in one `struct` call. `decoding` and `encoding` write the text.

Where there is the accelerator, it decodes instead of a function: it is given a plan, which is the same knowledge as
data, and walks it in C (`plans`).

They only *detect* that something is wrong, by None or any exception of UNDECODABLE or UNENCODABLE; which field it was
is found by a second, interpretive pass (`annotate`, `validate`), so that good messages do not pay for the error
messages of bad ones.
"""
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial
from struct import error as _struct_error
from typing import Any, TypeAlias

from kwire.protocol.decoding import DecoderSource
from kwire.protocol.encoding import EncoderSource
from kwire.protocol.fields import REQUIRED
from kwire.protocol.plans import plan
from kwire.protocol.source import Source

Decoder: TypeAlias = Callable[[bytes | memoryview, int], Any]
Encoder: TypeAlias = Callable[[Any, list[Any], list[int]], None]

UNDECODABLE = (IndexError, ValueError, OverflowError, _struct_error)
UNENCODABLE = (
    AttributeError, BufferError, IndexError, KeyError, OverflowError, TypeError, ValueError, _struct_error
)  # fmt: skip


def decoder(cls: Any, version: int) -> Decoder:
    """decode(data, start) -> the message that is `data` from `start` to its end."""
    from kwire.wire import accel  # brings its own specification with it, of which who only encodes needs nothing

    return accel.message_reader(plan(cls, version, is_flexible(cls, version))) or python_decoder(cls, version)


def python_decoder(cls: Any, version: int) -> Decoder:
    """The same as a function in Python, which says what the accelerator has to answer."""
    source = DecoderSource(version, is_flexible(cls, version))
    source.whole(cls)
    return source.function(f"decode_{cls.__name__}_v{version}(buf, pos)")


def encoder(cls: Any, version: int) -> Encoder:
    """encode(message, parts, alone): append to `parts`; to `alone` the indexes of the parts not to be copied."""
    source = EncoderSource(version, is_flexible(cls, version))
    source.whole(cls)
    return source.function(f"encode_{cls.__name__}_v{version}(message, parts, alone)")


def is_flexible(cls: Any, version: int) -> bool:
    """Whether a message has compact lengths and tagged fields in a version (KIP-482)."""
    return cls.FLEXIBLE is not None and version >= cls.FLEXIBLE


def constructor(cls: Any) -> Callable[..., None]:
    """`__init__` with one keyword for each field."""
    source = Source()
    source.names["REQUIRED"] = REQUIRED  # as the default of a parameter: not given
    source.names["wrong_fields"] = partial(wrong_fields, cls)
    parameters, values = [], []
    for field in cls.FIELDS:
        name, default = field.name, field.default
        value = name
        if default is REQUIRED or isinstance(default, list) or hasattr(default, "FIELDS"):
            parameters.append(f"{name}=REQUIRED")
            if default is not REQUIRED:
                fresh = "[]" if isinstance(default, list) else f"{source.constant(type(default))}()"
                value = f"{fresh} if {name} is REQUIRED else {name}"
        else:
            parameters.append(f"{name}={source.constant(default)}")
        values.append(f"self.{name} = {value}")
    required = [field.name for field in cls.FIELDS if field.default is REQUIRED]
    with source.block(f"if {' or '.join(['_unknown', *(f'{name} is REQUIRED' for name in required)])}:"):
        given = ", ".join(f"{name!r}: {name}" for name in required)
        source.line(f"raise wrong_fields(_unknown, {{{given}}})")
    for line in values:
        source.line(line)
    source.line("self.unknown_tagged_fields = None")
    star = "*, " if parameters else ""
    return source.function(f"__init__(self, {star}{', '.join([*parameters, '**_unknown'])})", f"{cls.__qualname__}.")


def wrong_fields(cls: Any, unknown: Mapping[str, object], required: Mapping[str, object]) -> TypeError:
    """Return the error for keywords that are no fields, with the fields that come closest, or for missing fields."""
    names = [field.name for field in cls.FIELDS]
    missing = [name for name, value in required.items() if value is REQUIRED]
    if not unknown:
        return TypeError(f"{cls.__qualname__} needs {', '.join(missing)}")
    near = [name for wrong in unknown for name in get_close_matches(wrong, names, n=1)]
    hint = f"did you mean {', '.join(near)}?" if near else f"it has {', '.join(names) or 'none'}"
    return TypeError(f"{cls.__qualname__} has no field {', '.join(unknown)}: {hint}")
