"""An extension of griffe that turns the columns of kwire's docstrings into lists that Markdown understands.

    linger_ms    [5 ms] how long a record may wait for others
                 to share its batch

becomes the item `linger_ms` of a list. Examples that begin with >>> become blocks of code.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Docstring, Extension, Object

_ITEM = re.compile(r"^(?P<name>[\w.*]+(?:, [\w.*]+)*)(?: {2,}| (?=\[))(?P<text>\S.*)$")


class Columns(Extension):
    """Rewrite each docstring when it has been collected."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring = Docstring(rewritten(obj.docstring.value), lineno=obj.docstring.lineno, parent=obj)


def rewritten(text: str) -> str:
    """Return a docstring as Markdown.

    >>> print(rewritten("Sizes.\\n\\na_bytes   of one fetch\\n          from one broker\\nb   of all"))
    Sizes.
    <BLANKLINE>
    - `a_bytes`: of one fetch
      from one broker
    - `b`: of all
    """
    lines: list[str] = []
    indent = 0  # of the text of the item that goes on, 0 outside of one
    in_example = False
    for line in text.splitlines():
        if in_example and not line.strip():
            lines += ["```", ""]
            in_example = False
        elif in_example:
            lines.append(line.strip() if line.lstrip().startswith((">>>", "...")) else line)
        elif line.lstrip().startswith(">>>"):
            lines += ["```pycon", line.strip()]
            in_example, indent = True, 0
        elif found := _ITEM.match(line):
            if not indent and lines and lines[-1]:
                lines.append("")
            lines.append(f"- `{found['name']}`: {found['text']}")
            indent = found.start("text")
        elif indent and line.startswith(" " * (indent - 1)):
            lines.append(f"  {line.strip()}")
        else:
            indent = 0
            lines.append(line)
    if in_example:
        lines.append("```")
    return "\n".join(lines)
