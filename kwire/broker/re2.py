"""RE2's regular expressions, for subscriptions that the coordinator evaluates (KIP-848): whether a whole name matches.

Kafka uses RE2/J there. Python's `re` has another syntax and can take exponential time, so this is a small engine of its
own: a parser of RE2's syntax, and a simulation of all states at once, in time linear in the name. Captures and
greediness change nothing about a match of the whole name; both are parsed and ignored.

Classes of Unicode (`\\p{Greek}`) hold ASCII characters only: topic names have no others.
Syntax: https://github.com/google/re2/wiki/Syntax
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

_MAX_CODE = 0x10FFFF
_MAX_REPEAT = 1000
# A pattern may not become larger than this; RE2 limits its memory in the same way.
_MAX_PROGRAM = 50_000
_MAX_DEPTH = 200
_MAX_CACHE = 10_000

Ranges = tuple[tuple[int, int], ...]  # sorted, without overlaps, both ends included


class Re2Error(ValueError):
    """A pattern that RE2 does not accept."""


class _Assertion(Enum):
    BEGIN_TEXT = "\\A"
    END_TEXT = "\\z"
    BEGIN_LINE = "(?m)^"
    END_LINE = "(?m)$"
    WORD = "\\b"
    NOT_WORD = "\\B"


@dataclass(frozen=True, slots=True)
class _Flags:
    fold: bool = False  # i
    multi_line: bool = False  # m
    dot_newline: bool = False  # s
    ungreedy: bool = False  # U, without effect


# Nodes of the syntax tree.


@dataclass(frozen=True, slots=True)
class _Chars:
    ranges: Ranges


@dataclass(frozen=True, slots=True)
class _Assert:
    kind: _Assertion


@dataclass(frozen=True, slots=True)
class _Concat:
    parts: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Alternate:
    parts: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Repeat:
    node: _Node
    least: int
    most: int | None


_Node = _Chars | _Assert | _Concat | _Alternate | _Repeat


def _ranges(text: str) -> Ranges:
    """Return ranges written as pairs: "AZaz09"."""
    return _union([(ord(text[at]), ord(text[at + 1])) for at in range(0, len(text), 2)])


def _union(ranges: Iterable[tuple[int, int]]) -> Ranges:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)


def _complement(ranges: Ranges) -> Ranges:
    found, start = [], 0
    for low, high in ranges:
        if start < low:
            found.append((start, low - 1))
        start = high + 1
    if start <= _MAX_CODE:
        found.append((start, _MAX_CODE))
    return tuple(found)


def _folded(ranges: Ranges) -> Ranges:
    """Return the ranges with both cases of each ASCII letter."""
    more = list(ranges)
    for low, high in ranges:
        for first, last, shift in ((65, 90, 32), (97, 122, -32)):
            start, end = max(low, first), min(high, last)
            if start <= end:
                more.append((start + shift, end + shift))
    return _union(more)


_DIGIT, _SPACE, _WORD = _ranges("09"), _ranges("\t\n\f\r  "), _ranges("AZaz09__")
_PERL = {"d": _DIGIT, "s": _SPACE, "w": _WORD}
_POSIX = {
    "alnum": _ranges("AZaz09"), "alpha": _ranges("AZaz"), "ascii": ((0, 127),), "blank": _ranges("\t\t  "),
    "cntrl": ((0, 31), (127, 127)), "digit": _DIGIT, "graph": _ranges("!~"), "lower": _ranges("az"),
    "print": _ranges(" ~"), "punct": _ranges("!/:@[`{~"), "space": _ranges("\t\r  "), "upper": _ranges("AZ"),
    "word": _WORD, "xdigit": _ranges("09AFaf"),
}  # fmt: skip
_CATEGORIES = frozenset(
    {"C", "Cc", "Cf", "Co", "Cs", "L", "Ll", "Lm", "Lo", "Lt", "Lu", "M", "Mc", "Me", "Mn", "N", "Nd", "Nl", "No", "P",
     "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S", "Sc", "Sk", "Sm", "So", "Z", "Zl", "Zp", "Zs"}
)  # fmt: skip
_SCRIPTS = frozenset(
    {"Arabic", "Armenian", "Bengali", "Common", "Cyrillic", "Devanagari", "Georgian", "Greek", "Han", "Hangul",
     "Hebrew", "Hiragana", "Katakana", "Latin", "Tamil", "Thai", "Tibetan"}
)  # fmt: skip
_ESCAPES = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}


def _unicode_class(name: str) -> Ranges:
    letters = _ranges("AZaz")
    if name == "Any":
        return ((0, _MAX_CODE),)
    if name in _SCRIPTS:
        ascii_scripts = {"Latin": letters, "Common": tuple(r for r in _complement(letters) if r[0] < 128)}
        return ascii_scripts.get(name, ())
    if name in _CATEGORIES:
        codes = [code for code in range(128) if unicodedata.category(chr(code)).startswith(name)]
        return _union([(code, code) for code in codes])
    raise Re2Error(f"invalid character class range: `{name}`")


class _Parser:
    """A recursive descent parser."""

    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._flags = _Flags()
        self._depth = 0
        self._names: set[str] = set()

    def parse(self) -> _Node:
        node = self._alternate()
        if self._at < len(self._text):
            raise Re2Error(f"unexpected `)`: `{self._text}`")
        return node

    @property
    def _rest(self) -> str:
        return self._text[self._at :]

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _accept(self, text: str) -> bool:
        if self._text.startswith(text, self._at):
            self._at += len(text)
            return True
        return False

    def _alternate(self) -> _Node:
        parts = [self._concat()]
        while self._accept("|"):
            parts.append(self._concat())
        return parts[0] if len(parts) == 1 else _Alternate(tuple(parts))

    def _concat(self) -> _Node:
        parts: list[_Node] = []
        while self._at < len(self._text) and self._peek() not in "|)":
            if self._accept("\\Q"):
                end = self._text.find("\\E", self._at)
                stop = len(self._text) if end < 0 else end
                parts += [self._literal(ord(char)) for char in self._text[self._at : stop]]
                self._at = stop if end < 0 else stop + 2
                if parts:
                    parts[-1] = self._quantified(parts[-1])
                continue
            node = self._atom()
            if node is not None:
                parts.append(self._quantified(node))
        return parts[0] if len(parts) == 1 else _Concat(tuple(parts))

    def _quantified(self, node: _Node) -> _Node:
        start = self._at
        limits = self._quantifier()
        if limits is None:
            return node
        self._accept("?")
        if self._quantifier() is not None:
            raise Re2Error(f"invalid nested repetition operator: `{self._text[start : self._at]}`")
        return _Repeat(node, *limits)

    def _quantifier(self) -> tuple[int, int | None] | None:
        for sign, limits in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._accept(sign):
                return limits
        end = self._text.find("}", self._at)
        if self._peek() != "{" or end < 0:
            return None
        first, comma, last = self._text[self._at + 1 : end].partition(",")
        if not (first.isascii() and first.isdigit() and (not last or (last.isascii() and last.isdigit()))):
            return None  # not a repetition, so a literal brace
        text = self._text[self._at : end + 1]
        self._at = end + 1
        least = int(first)
        most = least if not comma else int(last) if last else None
        if least > _MAX_REPEAT or (most is not None and not least <= most <= _MAX_REPEAT):
            raise Re2Error(f"invalid repeat count: `{text}`")
        return least, most

    def _literal(self, code: int) -> _Node:
        return self._chars(((code, code),))

    def _chars(self, ranges: Ranges) -> _Node:
        return _Chars(_folded(ranges) if self._flags.fold else ranges)

    def _atom(self) -> _Node | None:
        """Return the next atom; None for one that only changes flags."""
        char = self._peek()
        if char in "*+?" or (char == "{" and self._is_repetition()):
            raise Re2Error(f"missing argument to repetition operator: `{char}`")
        if char == "(":
            return self._group()
        if char == "[":
            return self._class()
        if char == "\\":
            return self._escape()
        self._at += 1
        if char == ".":
            return _Chars(((0, _MAX_CODE),) if self._flags.dot_newline else _complement(_ranges("\n\n")))
        if char == "^":
            return _Assert(_Assertion.BEGIN_LINE if self._flags.multi_line else _Assertion.BEGIN_TEXT)
        if char == "$":
            return _Assert(_Assertion.END_LINE if self._flags.multi_line else _Assertion.END_TEXT)
        return self._literal(ord(char))

    def _is_repetition(self) -> bool:
        at = self._at
        found = self._quantifier() is not None
        self._at = at
        return found

    def _group(self) -> _Node | None:
        before = self._flags
        self._at += 1
        if self._accept("?") and not self._group_prefix():
            return None
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise Re2Error("expression nests too deeply")
        node = self._alternate()
        self._depth -= 1
        if not self._accept(")"):
            raise Re2Error(f"missing closing ): `{self._text}`")
        self._flags = before
        return node

    def _group_prefix(self) -> bool:
        """Read what follows `(?`. Return whether a group follows; else it was a change of flags."""
        start = self._at - 2
        if self._accept("P<") or (self._peek() == "<" and self._rest[1:2] not in ("=", "!") and self._accept("<")):
            name, close, _ = self._rest.partition(">")
            if not close or not name or not all(char.isascii() and (char.isalnum() or char == "_") for char in name):
                raise Re2Error(f"invalid named capture: `{self._text[start:]}`")
            if name in self._names:
                raise Re2Error(f"duplicate capture group name: `{name}`")
            self._names.add(name)
            self._at += len(name) + 1
            return True
        value, any_flag = True, False
        values = {"i": self._flags.fold, "m": self._flags.multi_line, "s": self._flags.dot_newline}
        values["U"] = self._flags.ungreedy
        while (char := self._peek()) and char not in ":)":
            self._at += 1
            if char == "-" and value:
                value, any_flag = False, False
            elif char in values:
                values[char], any_flag = value, True
            else:
                raise Re2Error(f"invalid or unsupported Perl syntax: `{self._text[start : self._at]}`")
        if not char or (not value and not any_flag):
            raise Re2Error(f"missing argument to flags: `{self._text[start : self._at]}`")
        self._at += 1
        flags = _Flags(values["i"], values["m"], values["s"], values["U"])
        # The caller of a group restores the flags; without a group they apply to the rest of the group around.
        self._flags = flags
        return char == ":"

    def _escape(self) -> _Node:
        for text, kind in (
            ("\\A", _Assertion.BEGIN_TEXT), ("\\z", _Assertion.END_TEXT), ("\\b", _Assertion.WORD),
            ("\\B", _Assertion.NOT_WORD),
        ):  # fmt: skip
            if self._accept(text):
                return _Assert(kind)
        if self._accept("\\C"):
            return _Chars(((0, _MAX_CODE),))
        ranges = self._class_escape()
        return self._chars(ranges) if ranges is not None else self._literal(self._char_escape())

    def _class_escape(self) -> Ranges | None:
        """Read \\d, \\pL and their like. None if the text has something else."""
        letter = self._rest[1:2]
        if letter in ("p", "P"):
            self._at += 2
            name = self._peek()
            self._at += 1
            if name == "{":
                name, close, _ = self._rest.partition("}")
                if not close:
                    raise Re2Error(f"invalid character class range: `{self._text}`")
                self._at += len(name) + 1
            negated = (letter == "P") != name.startswith("^")
            ranges = _unicode_class(name.removeprefix("^"))
            return _complement(ranges) if negated else ranges
        if letter and letter.lower() in _PERL:
            self._at += 2
            ranges = _PERL[letter.lower()]
            return _complement(ranges) if letter.isupper() else ranges
        return None

    def _char_escape(self) -> int:
        start = self._at
        self._at += 1
        char = self._peek()
        if not char:
            raise Re2Error("trailing backslash at end of expression: ``")
        self._at += 1
        if char in _ESCAPES:
            return _ESCAPES[char]
        if ord(char) < 128 and not char.isalnum() and char != "_":
            return ord(char)
        if char == "0" or (char in "1234567" and self._peek() and self._peek() in "01234567"):
            digits = char
            while len(digits) < 3 and self._peek() and self._peek() in "01234567":
                digits += self._peek()
                self._at += 1
            return int(digits, 8)
        if char == "x":
            digits = self._rest[:2]
            size = 2
            if self._peek() == "{":
                digits = self._rest[1:].partition("}")[0]
                size = len(digits) + 2
            if digits and all(digit in "0123456789abcdefABCDEF" for digit in digits):
                code = int(digits, 16)
                if code <= _MAX_CODE and (size != 2 or len(digits) == 2) and self._rest[size - 1 : size] != "":
                    self._at += size
                    return code
        raise Re2Error(f"invalid escape sequence: `{self._text[start : self._at]}`")

    def _class(self) -> _Node:
        start = self._at
        self._at += 1
        negated = self._accept("^")
        found: list[tuple[int, int]] = []
        is_first = True
        while is_first or self._peek() != "]":
            if self._at >= len(self._text):
                raise Re2Error(f"missing closing ]: `{self._text[start:]}`")
            if not (is_first or self._rest[:2] == "-]") and self._peek() == "-":
                # A hyphen in the middle is a range's only; Perl would take it literally.
                raise Re2Error(f"invalid character class range: `{self._rest[:2]}`")
            is_first = False
            found += self._class_item()
        self._at += 1
        ranges = _union(found)
        if self._flags.fold:
            ranges = _folded(ranges)
        return _Chars(_complement(ranges) if negated else ranges)

    def _class_item(self) -> Iterable[tuple[int, int]]:
        if self._rest.startswith("[:") and ":]" in self._rest:
            name = self._rest[2:].partition(":]")[0]
            known = _POSIX.get(name.removeprefix("^"))
            if known is None:
                raise Re2Error(f"invalid character class range: `[:{name}:]`")
            self._at += len(name) + 4
            return _complement(known) if name.startswith("^") else known
        if self._peek() == "\\":
            ranges = self._class_escape()
            if ranges is not None:
                return ranges
        start = self._at
        low = high = self._class_char()
        if self._peek() == "-" and self._rest[1:2] not in ("]", ""):
            self._at += 1
            high = self._class_char()
            if high < low:
                raise Re2Error(f"invalid character class range: `{self._text[start : self._at]}`")
        return [(low, high)]

    def _class_char(self) -> int:
        if self._peek() == "\\":
            return self._char_escape()
        char = self._peek()
        if not char:
            raise Re2Error(f"missing closing ]: `{self._text}`")
        self._at += 1
        return ord(char)


# The program: each instruction is a set of characters to consume, an assertion to pass, or a choice of next ones.
_Instruction = tuple[Ranges | _Assertion | None, tuple[int, ...]]


class _Compiler:
    def __init__(self) -> None:
        self.program: list[_Instruction] = []

    def add(self, what: Ranges | _Assertion | None, *next: int) -> int:
        if len(self.program) >= _MAX_PROGRAM:
            raise Re2Error("expression is too large")
        self.program.append((what, next))
        return len(self.program) - 1

    def compile(self, node: _Node, then: int) -> int:
        """Return the instruction at which `node` begins, followed by the instruction `then`."""
        match node:
            case _Chars(ranges):
                return self.add(ranges, then)
            case _Assert(kind):
                return self.add(kind, then)
            case _Concat(parts):
                for part in reversed(parts):
                    then = self.compile(part, then)
                return then
            case _Alternate(parts):
                return self.add(None, *[self.compile(part, then) for part in parts])
            case _Repeat(inner, least, most):
                if most is None:
                    loop = self.add(None)
                    self.program[loop] = (None, (self.compile(inner, loop), then))
                    then = loop
                else:
                    end = then
                    for _ in range(most - least):
                        then = self.add(None, self.compile(inner, then), end)
                for _ in range(least):
                    then = self.compile(inner, then)
                return then


def _is_word(char: str) -> bool:
    return bool(char) and any(low <= ord(char) <= high for low, high in _WORD)


_HOLDS: dict[_Assertion, Callable[[str, str], bool]] = {
    _Assertion.BEGIN_TEXT: lambda before, after: not before,
    _Assertion.END_TEXT: lambda before, after: not after,
    _Assertion.BEGIN_LINE: lambda before, after: before in ("", "\n"),
    _Assertion.END_LINE: lambda before, after: after in ("", "\n"),
    _Assertion.WORD: lambda before, after: _is_word(before) != _is_word(after),
    _Assertion.NOT_WORD: lambda before, after: _is_word(before) == _is_word(after),
}


class Re2:
    """A compiled pattern. Raises Re2Error for one that RE2 rejects."""

    def __init__(self, pattern: str) -> None:
        compiler = _Compiler()
        self._accept = compiler.add(None)
        self._start = compiler.compile(_Parser(pattern).parse(), self._accept)
        self._program = compiler.program
        self._cache: dict[tuple[frozenset[int], str, str], frozenset[int]] = {}

    def matches(self, text: str) -> bool:
        """Return whether the whole text matches."""
        states = frozenset({self._start})
        before = ""
        for char in text:
            key = (states, before, char)
            after = self._cache.get(key)
            if after is None:
                after = self._step(states, before, char)
                if len(self._cache) < _MAX_CACHE:
                    self._cache[key] = after
            if not after:
                return False
            states, before = after, char
        return self._accept in self._closure(states, before, "")

    def _step(self, states: frozenset[int], before: str, char: str) -> frozenset[int]:
        """Return the states after one character."""
        code = ord(char)
        found: set[int] = set()
        for state in self._closure(states, before, char):
            what, next = self._program[state]
            if isinstance(what, tuple) and any(low <= code <= high for low, high in what):
                found.update(next)
        return frozenset(found)

    def _closure(self, states: Iterable[int], before: str, after: str) -> set[int]:
        """Return all states that are reached without a character, between these two."""
        found: set[int] = set()
        pending = list(states)
        while pending:
            state = pending.pop()
            if state in found:
                continue
            found.add(state)
            what, next = self._program[state]
            if what is None or (isinstance(what, _Assertion) and _HOLDS[what](before, after)):
                pending += next
        return found
