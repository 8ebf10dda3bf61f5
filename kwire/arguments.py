"""Checks of the arguments of methods: a TypeError names the argument, its value, its type and what to give.

For slow paths only: a call that returns at once is not checked.

Imports: nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan

STRING_BYTES_MAX = 0x7FFF


def wrong_type(name: str, value: object, wanted: str) -> TypeError:
    """Return the TypeError for an argument of a wrong type.

    >>> wrong_type("partition", "0", "an int from 0 up, or None")
    TypeError("partition is '0' (str): give an int from 0 up, or None")
    """
    shown = repr(value)
    shown = shown if len(shown) <= 60 else f"{shown[:60]}..."
    return TypeError(f"{name} is {shown} ({type(value).__name__}): give {wanted}")


def no_attribute(client: object, name: str, elsewhere: Mapping[str, str]) -> AttributeError:
    """Return Python's error for a missing attribute, with what to use instead of another library's method."""
    advice = f": {elsewhere[name]}" if name in elsewhere else ""
    return AttributeError(f"{type(client).__name__!r} object has no attribute {name!r}{advice}")


def fits_string(text: str) -> bool:
    """Return whether a text can be a string of Kafka's protocol: UTF-8 of at most 32,767 bytes."""
    try:
        return len(text.encode()) <= STRING_BYTES_MAX
    except UnicodeEncodeError:  # half of a surrogate pair, as of an environment variable that is not UTF-8
        return False


def takes(function: object, count: int) -> bool:
    """Return whether a function can be called with so many positional arguments, as far as its signature tells."""
    import inspect  # which most programs need not load

    if not callable(function):
        return False
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions in C have none
        return True
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


def is_int(value: object) -> bool:
    """Return whether a value is an int and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def check_timeout(timeout: object, name: str = "timeout", *, none: str = "wait without a limit") -> None:
    """Raise TypeError unless a timeout is a number of seconds or None, which means to do `none`."""
    is_number = is_int(timeout) or (isinstance(timeout, float) and not isnan(timeout))  # nan is never over
    if timeout is not None and not is_number:
        raise wrong_type(name, timeout, f"seconds as a number, or None to {none}")
