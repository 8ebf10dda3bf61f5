"""A Python function in the making: its lines, the values that its names stand for, and its compilation.

The way of `dataclasses` and `namedtuple`. The source is registered in `linecache`, so that tracebacks and debuggers
show it. Knows nothing of Kafka.
"""
import linecache
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Source:
    """The lines of one function, and the values that its names stand for."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {}
        self._depth = 1
        self._counter = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """What is written inside stands indented below the header."""
        self.line(header)
        self._depth += 1
        yield
        self._depth -= 1

    def fresh(self, prefix: str) -> str:
        """A name that the function does not use yet."""
        self._counter += 1
        return f"{prefix}{self._counter}"

    def constant(self, value: Any) -> str:
        """An expression for a value: a literal, or a name bound to it."""
        if value is None or isinstance(value, bool | int | str | bytes | float):
            return repr(value)
        if isinstance(value, type):
            name = value.__qualname__.replace(".", "_")
        else:
            name = f"{type(value).__name__}_{len(self.names)}"
        self.names[name] = value
        return name

    def function(self, signature: str, owner: str = "") -> Callable[..., Any]:
        """Compile `def signature`, with the lines as its body. `owner` only tells equal names apart in tracebacks."""
        text = f"def {signature}:\n" + "\n".join(self.lines) + "\n"
        name = signature.partition("(")[0]
        filename = f"<kwire.protocol {owner}{name}>"
        namespace = dict(self.names)
        exec(compile(text, filename, "exec"), namespace)
        # None for the modification time: linecache.checkcache() leaves the entry alone.
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        function: Callable[..., Any] = namespace[name]
        return function
