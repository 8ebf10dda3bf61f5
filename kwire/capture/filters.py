"""The filter language of `-w`: one grammar for decode, tap, stats, lint and diff.

    api in (Produce, Fetch) and topic ~ "order*" and partition == 3 and client == billing and ms > 100
    error != NONE and not group ~ "console-*"
    request.acks == 0 or records.value ~ "42"

A name has one value in each exchange, or several: `topic` has every topic that the two messages name. A comparison is
true if it is for one of them; `!=` and `!~` are true if `==` and `~` are not. `~` finds text within a value; with `*`
or `?` it matches the whole value; between slashes it is a regular expression. Words without blanks need no quotes. A
name alone is true if it has a value that is neither empty, 0, false nor null.

`request.`, `response.` and `records.` lead to fields, by Kafka's JSON names or with underscores; lists on the way are
searched through.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import translate
from functools import cache
from itertools import islice
from typing import Any

from kwire.capture.apis import known_apis, message_classes
from kwire.capture.exchange import Exchange
from kwire.capture.json import bytes_to_json
from kwire.capture.names import names_in, partitions_in, values_of
from kwire.errors import FilterError, KwireError
from kwire.option_checks import did_you_mean
from kwire.protocol import ApiKey

Values = Callable[[Exchange], Iterator[Any]]
Test = Callable[[Exchange], bool]


class Filter:
    """A compiled expression: `Filter("ms > 100").accepts(exchange)`. Raises FilterError for one that is wrong."""

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            self._accepts = _Parser(text).parse()
        except RecursionError:
            raise FilterError("the expression has too many brackets within brackets") from None

    def accepts(self, exchange: Exchange) -> bool:
        return self._accepts(exchange)

    def __repr__(self) -> str:
        return f"Filter({self.text!r})"


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str  # word, string, regex, op, end
    text: str
    at: int


_TOKEN = re.compile(
    r"""\s*(?:(?P<op>==|!=|<=|>=|!~|[<>~(),])
      |"(?P<string>(?:[^"\\]|\\.)*)"|'(?P<single>(?:[^'\\]|\\.)*)'
      |/(?P<regex>(?:[^/\\]|\\.)+)/
      |(?P<word>[^\s()<>=!~,"']+))""",
    re.VERBOSE,
)
_COMPARISONS = {"==", "!=", "<", "<=", ">", ">=", "~", "!~"}
_KEYWORDS = {"and", "or", "not", "in"}


def _tokens(text: str) -> list[_Token]:
    found = []
    pos = 0
    while text[pos:].strip():
        match = _TOKEN.match(text, pos)
        if match is None:
            at = pos + len(text[pos:]) - len(text[pos:].lstrip())
            remedy = "close the quotes" if text[at] in "\"'" else "write == to compare" if text[at] == "=" else None
            raise _error(text, at, f"{text[at]} makes no sense here", remedy)
        kind = match.lastgroup or ""
        value = match[kind]
        at = match.start(kind)
        if kind in ("string", "single"):
            found.append(_Token("string", re.sub(r"\\(.)", r"\1", value), at - 1))
        else:
            found.append(_Token(kind, value.replace("\\/", "/") if kind == "regex" else value, at))
        pos = match.end()
    return [*found, _Token("end", "", len(text))]


def _error(text: str, at: int, message: str, remedy: str | None = None) -> FilterError:
    return FilterError(f"{message}\n  {text}\n  {' ' * at}^", remedy=remedy, offset=at)


class _Parser:
    """A parser by recursive descent: or, and, not, comparison."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._next = 0

    def parse(self) -> Test:
        if self._peek.kind == "end":
            raise self._wrong("the expression is empty", "such as: api == Produce and ms > 100")
        test = self._any()
        if self._peek.kind != "end":
            raise self._wrong(f"{self._peek.text} is not expected here", "join comparisons by and, or")
        return test

    @property
    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._peek
        self._next += 1
        return token

    def _is(self, *texts: str) -> bool:
        return self._peek.kind in ("word", "op") and self._peek.text.lower() in texts

    def _wrong(self, message: str, remedy: str | None = None, token: _Token | None = None) -> FilterError:
        return _error(self._text, (token or self._peek).at, message, remedy)

    def _any(self) -> Test:
        tests = [self._all()]
        while self._is("or"):
            self._take()
            tests.append(self._all())
        return tests[0] if len(tests) == 1 else lambda exchange: any(test(exchange) for test in tests)

    def _all(self) -> Test:
        tests = [self._not()]
        while self._is("and"):
            self._take()
            tests.append(self._not())
        return tests[0] if len(tests) == 1 else lambda exchange: all(test(exchange) for test in tests)

    def _not(self) -> Test:
        if self._is("not"):
            self._take()
            test = self._not()
            return lambda exchange: not test(exchange)
        if self._is("("):
            opened = self._take()
            test = self._any()
            if not self._is(")"):
                raise self._wrong("this bracket is not closed", token=opened)
            self._take()
            return test
        return self._comparison()

    def _comparison(self) -> Test:
        name = self._take()
        if name.kind != "word" or name.text.lower() in _KEYWORDS:
            what = name.text or "the end"
            raise self._wrong(f"a name is expected, not {what}", f"names are {', '.join(_NAMES)}", name)
        values = self._values(name)
        is_negated = False
        if self._is("not"):
            self._take()
            is_negated = True
            if not self._is("in"):
                raise self._wrong("`in` is expected after not")
        if self._is("in"):
            self._take()
            test = _one_of([self._test(name, "==", literal) for literal in self._list()])
        elif self._peek.text in _COMPARISONS and self._peek.kind == "op":
            op = self._take().text
            is_negated = op in ("!=", "!~")
            test = self._test(name, {"!=": "==", "!~": "~"}.get(op, op), self._literal())
        else:
            return lambda exchange: any(value not in (None, "", 0, False, "NONE") for value in values(exchange))
        if is_negated:
            return lambda exchange: not any(test(value) for value in values(exchange))
        return lambda exchange: any(test(value) for value in values(exchange))

    def _list(self) -> list[_Token]:
        if not self._is("("):
            raise self._wrong("a list in brackets is expected after in", "such as: api in (Produce, Fetch)")
        self._take()
        literals = [self._literal()]
        while self._is(","):
            self._take()
            literals.append(self._literal())
        if not self._is(")"):
            raise self._wrong("a comma or a closing bracket is expected")
        self._take()
        return literals

    def _literal(self) -> _Token:
        token = self._take()
        if token.kind not in ("word", "string", "regex"):
            raise self._wrong(f"a value is expected, not {token.text or 'the end'}", 'such as 100 or "order*"', token)
        return token

    def _values(self, name: _Token) -> Values:
        first, *path = name.text.split(".")
        if first.lower() in _PATHS and (path or first.lower() not in _NAMES):
            if not path:
                raise self._wrong(f"a field is expected after {first}", f"such as {_PATHS[first.lower()]}", name)
            return self._path(first.lower(), path, name)
        if path or first.lower() not in _NAMES:
            known = [*_NAMES, *(f"{one}.FIELD" for one in _PATHS)]
            remedy = did_you_mean(first.lower(), list(_NAMES)) or f"names are {', '.join(known)}"
            raise self._wrong(f"there is no name {name.text}", remedy, name)
        return _NAMES[first.lower()]

    def _path(self, first: str, path: list[str], name: _Token) -> Values:
        wanted = [_plain(part) for part in path]
        known = _RECORD_FIELDS if first == "records" else _field_names()
        for part, plain in zip(path, wanted, strict=True):
            if plain not in known and not (first == "records" and wanted[0] == "headers"):
                remedy = did_you_mean(plain, list(known)) or "`kwire schema API` lists the fields"
                raise self._wrong(f"no message has a field {part}", remedy, name)
        if first == "records":
            return lambda exchange: _record_values(exchange, wanted)
        return lambda exchange: _walk(_message(exchange, first), wanted)

    def _test(self, name: _Token, op: str, literal: _Token) -> Callable[[Any], bool]:
        is_api = name.text.lower() == "api"
        if op == "~" or literal.kind == "regex":
            return _like(literal, self._text)
        if is_api and literal.kind == "word":
            self._check_api(literal)
            wanted = _plain(literal.text)
            return lambda value: _plain(str(value)) == wanted
        if op == "==":
            return _equal(literal)
        number = _number(literal.text)
        if number is None:
            raise self._wrong(f"{literal.text} is not a number", "<, <=, > and >= compare numbers", literal)
        compare = _ORDER[op]
        return lambda value: isinstance(value, int | float) and compare(value, number)

    def _check_api(self, literal: _Token) -> None:
        names = {_plain(key.api_name): key.api_name for key in ApiKey}
        plain = _plain(literal.text)
        if plain not in names:
            near = did_you_mean(plain, list(names)) or "`kwire schema` lists them"
            for found, shown in names.items():
                near = re.sub(rf"\b{found}\b", shown, near)
            raise self._wrong(f"there is no API {literal.text}", near, literal)


_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def _one_of(tests: list[Callable[[Any], bool]]) -> Callable[[Any], bool]:
    return lambda value: any(test(value) for test in tests)


_NOT_CONSTANT: Any = object()
_CONSTANTS: dict[str, Any] = {"true": True, "false": False, "null": None}


def _equal(literal: _Token) -> Callable[[Any], bool]:
    text = literal.text
    number = _number(text) if literal.kind == "word" else None
    constant = _CONSTANTS.get(text.lower(), _NOT_CONSTANT) if literal.kind == "word" else _NOT_CONSTANT

    def equals(value: Any) -> bool:
        if constant is not _NOT_CONSTANT:
            return value is constant or value == text
        if number is not None and isinstance(value, int | float) and not isinstance(value, bool):
            return value == number
        return isinstance(value, str) and value == text

    return equals


def _number(text: str) -> float | None:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return None


def _like(literal: _Token, expression: str) -> Callable[[Any], bool]:
    text = literal.text
    if literal.kind == "regex":
        try:
            pattern = re.compile(text)
        except re.error as error:
            raise _error(expression, literal.at, f"not a regular expression: {error}") from None
        return lambda value: value is not None and pattern.search(str(value)) is not None
    if "*" in text or "?" in text:
        whole = re.compile(translate(text))
        return lambda value: value is not None and whole.match(str(value)) is not None
    return lambda value: value is not None and text in str(value)


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


@cache
def _field_names() -> frozenset[str]:
    """Return the names of all fields of all messages."""
    found: set[str] = set()

    def add(cls: Any) -> None:
        for one in cls.FIELDS:
            found.add(_plain(one.name))
            inner = getattr(one.type, "element", one.type)
            if hasattr(inner, "FIELDS"):
                add(inner)

    for api in known_apis():
        for _, cls in message_classes(api):
            add(cls)
    return frozenset(found)


def _message(exchange: Exchange, which: str) -> Any:
    decoded = exchange.request if which == "request" else exchange.response
    return decoded.message if decoded is not None else None


def _walk(value: Any, path: list[str]) -> Iterator[Any]:
    if isinstance(value, list):
        for item in value:
            yield from _walk(item, path)
    elif not path:
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            if _plain(name) == path[0]:
                yield from _walk(inner, path[1:])


_RECORD_FIELDS = frozenset({"key", "value", "offset", "timestamp", "headers"})


def _record_values(exchange: Exchange, path: list[str]) -> Iterator[Any]:
    name, *rest = path
    for decoded in (exchange.request, exchange.response):
        for _, batch in decoded.record_batches() if decoded is not None else ():
            try:
                records = list(batch.records())
            except KwireError:
                continue  # the exchange's problems tell it
            for record in records:
                if name == "headers":
                    for key, value in record.headers:
                        if not rest or _plain(key) == rest[0]:
                            yield _text(value)
                elif name in ("key", "value"):
                    yield _text(getattr(record, name))
                else:
                    yield record.offset if name == "offset" else record.timestamp_ms


def _text(data: bytes | None) -> Any:
    found = bytes_to_json(data)
    return data.decode(errors="replace") if isinstance(found, dict) and data is not None else found


def _messages(exchange: Exchange) -> Iterator[Any]:
    for decoded in (exchange.request, exchange.response):
        if decoded is not None and decoded.message is not None:
            yield decoded.message


def _named(kind: str) -> Values:
    def values(exchange: Exchange) -> Iterator[Any]:
        for message in _messages(exchange):
            for what, name in names_in(message):
                if what == kind:
                    yield name

    return values


def _topics(exchange: Exchange) -> Iterator[Any]:
    yield from _named("topic")(exchange)
    yield from exchange.topic_names.values()


def _partitions(exchange: Exchange) -> Iterator[Any]:
    for message in _messages(exchange):
        yield from partitions_in(message)


def _fields(*names: str) -> Values:
    wanted = frozenset(names)

    def values(exchange: Exchange) -> Iterator[Any]:
        for message in _messages(exchange):
            yield from values_of(message, wanted)

    return values


def _errors(exchange: Exchange) -> Iterator[Any]:
    if exchange.errors:
        for error in exchange.errors:
            yield error.name
            yield error.code
    elif exchange.response is not None:
        yield "NONE"
        yield 0


def _one(get: Callable[[Exchange], Any]) -> Values:
    def values(exchange: Exchange) -> Iterator[Any]:
        yield get(exchange)

    return values


def _records(exchange: Exchange) -> Iterator[Any]:
    yield sum(batch.count for one in (exchange.request, exchange.response) if one for _, batch in one.record_batches())


# Short names, in the order in which help lists them.
_NAMES: dict[str, Values] = {
    "api": _one(lambda exchange: exchange.api_name),
    "version": _one(lambda exchange: exchange.version),
    "error": _errors,
    "ms": _one(lambda exchange: exchange.latency_ms),
    "topic": _topics,
    "partition": _partitions,
    "group": _named("group"),
    "member": _named("member"),
    "txn": _named("transaction"),
    "offset": _fields("offset", "fetchOffset", "baseOffset", "committedOffset"),
    "key": lambda exchange: _record_values(exchange, ["key"]),
    "records": _records,
    "client": _one(lambda exchange: exchange.client_id),
    "software": _one(lambda exchange: exchange.software),
    "broker": _one(lambda exchange: exchange.connection.broker),
    "conn": _one(lambda exchange: exchange.connection.number),
    "corr": _one(lambda exchange: exchange.correlation_id),
    "packet": lambda exchange: iter(exchange.packets),
    "bytes": _one(lambda exchange: exchange.request_bytes + exchange.response_bytes),
    "throttle": _fields("throttleTimeMs"),
    "problem": lambda exchange: (problem.message for problem in exchange.problems),
}
_PATHS = {"request": "request.acks", "response": "response.throttleTimeMs", "records": "records.value"}


_VALUES_MAX = 200


def short_values(exchange: Exchange) -> dict[str, list[Any]]:
    """Return the values of all short names, without empty ones, each at most 200 different: for filters elsewhere."""
    found = {}
    for name, values in _NAMES.items():
        kept = list(islice(dict.fromkeys(value for value in values(exchange) if value is not None), _VALUES_MAX))
        if kept:
            found[name] = kept
    return found
