"""Checks of the arguments of methods: a TypeError names the argument, its value, its type and what to give.

For slow paths only: a call that returns at once is not checked.

Imports: nothing.
"""

from __future__ import annotations

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


def fits_string(text: str) -> bool:
    """Return whether a text can be a string of Kafka's protocol: UTF-8 of at most 32,767 bytes."""
    try:
        return len(text.encode()) <= STRING_BYTES_MAX
    except UnicodeEncodeError:  # half of a surrogate pair, as of an environment variable that is not UTF-8
        return False


def is_int(value: object) -> bool:
    """Return whether a value is an int and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def check_timeout(timeout: object, name: str = "timeout", *, none: str = "wait without a limit") -> None:
    """Raise TypeError unless a timeout is a number of seconds or None, which means to do `none`."""
    is_number = is_int(timeout) or (isinstance(timeout, float) and not isnan(timeout))  # nan is never over
    if timeout is not None and not is_number:
        raise wrong_type(name, timeout, f"seconds as a number, or None to {none}")
