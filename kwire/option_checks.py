"""Declarations and checks of the keyword options of the clients.

Each option is declared once, as a field of a frozen dataclass (`ClientConfig`, `ProducerSettings`, `ConsumerOptions`):

    linger_ms: int = option(5, Whole(0), "how long a record may wait for others", unit="milliseconds")

A declaration has the type, the default, the constraint, the unit and one line of documentation. `check_values` checks
an instance, `check_names` the keywords of a constructor, and `option_table` returns the lines in the docstrings of the
clients. An option may be None if and only if its default is None.

Imports: nothing but the errors and other checks.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, fields
from functools import wraps
from types import FunctionType
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

from kwire.arguments import STRING_BYTES_MAX, fits_string
from kwire.errors import ConfigurationError
from kwire.option_names import FOREIGN, NOT_SUPPORTED, OWNERS, kwire_name, normalized

C = TypeVar("C")
T = TypeVar("T")
P = ParamSpec("P")

_SHORT_UNITS = {"milliseconds": "ms"}


class Kind(Protocol):
    """The values that an option may have."""

    def accepts(self, value: object) -> bool: ...

    def wanted(self, unit: str | None) -> str:
        """Return what to give, as a noun phrase: "a whole number of milliseconds from 0 up"."""
        ...


class Whole(NamedTuple):
    """An int from `least` to `most`, both included, and not a bool."""

    least: int
    most: int | None = None

    def accepts(self, value: object) -> bool:
        if not isinstance(value, int) or isinstance(value, bool):
            return False
        return self.least <= value and (self.most is None or value <= self.most)

    def wanted(self, unit: str | None) -> str:
        of = f" of {unit}" if unit else ""
        return f"a whole number{of} from {self.least} {'up' if self.most is None else f'to {self.most}'}"


class Flag:
    """True or False."""

    def accepts(self, value: object) -> bool:
        return isinstance(value, bool)

    def wanted(self, unit: str | None) -> str:
        return "True or False"


class Text(NamedTuple):
    """A str that a request can carry; an empty one only where `may_be_empty`."""

    may_be_empty: bool = False

    def accepts(self, value: object) -> bool:
        return isinstance(value, str) and (self.may_be_empty or value != "") and fits_string(value)

    def wanted(self, unit: str | None) -> str:
        text = "a str" if self.may_be_empty else "a str that is not empty"
        return f"{text}, of at most {STRING_BYTES_MAX:,} bytes in UTF-8"


class Choice:
    """One of some values; True is not 1."""

    def __init__(self, *values: str | int) -> None:
        self.values = values

    def accepts(self, value: object) -> bool:
        return any(type(value) is type(known) and value == known for known in self.values)

    def wanted(self, unit: str | None) -> str:
        *others, last = [_quoted(value) for value in self.values]
        return f"{', '.join(others)} or {last}" if others else last


class Where(NamedTuple):
    """A value for which `test` returns True; `words` describe it."""

    words: str
    test: Callable[[object], bool]

    def accepts(self, value: object) -> bool:
        return self.test(value)

    def wanted(self, unit: str | None) -> str:
        return self.words


class Option(NamedTuple):
    """The declaration of one option."""

    name: str
    default: Any
    kind: Kind
    unit: str | None
    doc: str
    is_secret: bool = False  # errors do not show the value

    def check(self, value: object) -> None:
        """Raise ConfigurationError, with name, value, type, default and unit, unless the value is allowed."""
        if (value is None and self.default is None) or self.kind.accepts(value):
            return
        kind, none = type(value).__name__, ", or None" if self.default is None else ""
        raise ConfigurationError(
            f"{self.name} is {_shown(value)} ({kind})" if not self.is_secret else f"{self.name} is of type {kind}",
            remedy=f"give {self.kind.wanted(self.unit)}{none}; the default is {self.shown_default}",
        )

    @property
    def shown_default(self) -> str:
        """Return the default with its unit: "5 ms"."""
        if self.default is None or self.unit is None:
            return _quoted(self.default)
        return f"{self.default:_} {_SHORT_UNITS.get(self.unit, self.unit)}"


def option(default: Any, kind: Kind, doc: str, *, unit: str | None = None, is_secret: bool = False) -> Any:
    """Return a dataclass field that declares an option. `doc` begins in lower case and has no full stop."""
    return field(default=default, metadata={"option": (kind, unit, doc, is_secret)})


def options_of(declaring: type[Any]) -> Mapping[str, Option]:
    """Return the options that a dataclass declares, by name, in the order of declaration."""
    declared = (one for one in fields(declaring) if "option" in one.metadata)
    return {one.name: Option(one.name, one.default, *one.metadata["option"]) for one in declared}


def check_values(settings: Any) -> None:
    """Check each option of an instance of a declaring dataclass; ConfigurationError for the first that is wrong."""
    for name, declared in options_of(type(settings)).items():
        declared.check(getattr(settings, name))


def check_names(client: str, bootstrap: object, given: Mapping[str, object], *declaring: type[Any]) -> None:
    """Check the arguments of a client's constructor for unknown options and for a dict of properties.

    `client` is the class as users write it, "kwire.Producer". Raises a ConfigurationError that lists the
    client's options and the likely one. Names of other libraries are translated.
    """
    known = {name: one for each in declaring for name, one in options_of(each).items()}
    if isinstance(bootstrap, Mapping):
        raise ConfigurationError(
            f"{client} takes options as keywords, not as a dict", remedy=_translated(client, bootstrap, given, known)
        )
    unknown = [name for name in given if name not in known]
    if unknown:
        hints = [hint for name in unknown if (hint := name_hint(client, name, known))]
        if len(unknown) == 1:  # the message has named it
            hints = [hint.removeprefix(f"{unknown[0]}: ") for hint in hints]
        listed = ", ".join(sorted(known))
        raise ConfigurationError(
            f"unknown option{'s' if len(unknown) > 1 else ''} {', '.join(unknown)}",
            remedy="; ".join([*hints, f"the options of {client} are {listed}"]),
        )


def translate_bootstrap(
    client: str,
) -> Callable[[Callable[Concatenate[T, P], None]], Callable[Concatenate[T, P], None]]:
    """Decorate the constructor of `client`, whose first argument is `bootstrap`.

    Where another library's name of it is given, such as bootstrap_servers, the constructor raises a ConfigurationError
    that translates it: alone, or beside topics as in `KafkaConsumer("orders", bootstrap_servers=...)`.
    """

    def decorate(constructor: Callable[Concatenate[T, P], None]) -> Callable[Concatenate[T, P], None]:
        @wraps(constructor)
        def checked(self: T, /, *args: P.args, **options: P.kwargs) -> None:
            if "bootstrap" not in options:
                for name, value in options.items():
                    if kwire_name(name) == "bootstrap":
                        topics = ", and give topics to subscribe" if args else ""
                        raise ConfigurationError(
                            f"unknown option {name}",
                            remedy=f"{name} is called bootstrap: write {client}({_shown(value)}, ...){topics}",
                        )
            constructor(self, *args, **options)

        return checked

    return decorate


def typed(declared: Option, value: object) -> object:
    """Return a property's value in the option's type: properties may be texts such as "5" or "true"."""
    if isinstance(value, str) and not declared.kind.accepts(value):
        word = value.strip().lower()
        candidates: list[object] = [int(word)] if word.removeprefix("-").isdecimal() else []
        for candidate in [*candidates, {"true": True, "false": False}.get(word), word]:
            if candidate is not None and declared.kind.accepts(candidate):
                return candidate
    return value


def near_names(name: str, known: Iterable[str], *, max_names: int = 1, cutoff: float = 0.6) -> list[str]:
    """Return the known names that are similar to an unknown one, the nearest first; `cutoff` is as in `difflib`."""
    from difflib import get_close_matches  # most programs never need it

    return get_close_matches(name, list(known), n=max_names, cutoff=cutoff)


def did_you_mean(name: str, known: Iterable[str], *, max_names: int = 1) -> str | None:
    """Return the question for the known names that are similar to an unknown one, or None if there are none.

    >>> did_you_mean("tims", ["after", "times"])
    'did you mean times?'
    """
    near = near_names(name, known, max_names=max_names)
    return f"did you mean {' or '.join(near)}?" if near else None


def name_hint(client: str, name: str, known: Iterable[str]) -> str | None:
    """Return what to write instead of an unknown option, or None if no option is similar.

    >>> name_hint("kwire.Producer", "batch_size", ["batch_bytes", "linger_ms"])
    'batch_size is called batch_bytes'
    >>> name_hint("kwire.Producer", "lingr_ms", ["batch_bytes", "linger_ms"])
    'did you mean linger_ms?'
    """
    known = [*known, "bootstrap"]
    meant = kwire_name(name)
    if meant in known:
        return f"{name} is called {meant}"
    plain = normalized(name)
    if plain in NOT_SUPPORTED:
        return f"{name}: {NOT_SUPPORTED[plain]}"
    owner = OWNERS.get(meant or plain)
    if owner is not None and owner != client:
        return f"{meant or plain} is an option of {owner}"
    foreign = {other: own for other, own in FOREIGN.items() if own in known}
    for near in near_names(plain, [*known, *foreign], cutoff=0.7) or near_names(plain, known):
        return f"did you mean {foreign.get(near, near)}?"
    return None


def option_table(declaring: type[Any], *, width: int = 116, defaults: Mapping[str, object] | None = None) -> str:
    """Return the options with defaults, units and documentation, as the docstrings of the clients show them.

    `defaults` overrides the declared defaults, for a client that has others.
    """
    lines = []
    for name, declared in options_of(declaring).items():
        shown = _quoted(defaults[name]) if defaults and name in defaults else declared.shown_default
        text = f"[{shown}] {declared.doc}"
        first, indent = f"{name:<24} ", " " * 25
        lines += textwrap.wrap(text, width, initial_indent=first, subsequent_indent=indent, break_on_hyphens=False)
    return "\n".join(lines)


def documents_options(
    *declaring: type[Any], defaults: Mapping[str, object] | None = None
) -> Callable[[type[C]], type[C]]:
    """Add the options to the docstring of a client, from their declarations, so that `help` shows all of them.

    `declaring` are the classes that declare them, the one for every client last; `defaults` is for `option_table`.
    """

    def tables() -> str:
        *own, shared = (option_table(one, defaults=defaults) for one in declaring)
        bootstrap = '"host:port,host:port" of any brokers of the cluster, a list of such, or a `kwire.Cluster`'
        heading = "Options, with their defaults:" if not own else "Options of every client:"
        parts = [f"Options, with their defaults:\n\n{table}" for table in own]
        return "\n\n".join([*parts, f"{heading}\n\n{'bootstrap':<24} {bootstrap}\n{shared}"])

    def document(client: type[C]) -> type[C]:
        if client.__doc__ is not None:  # python -OO
            client.__doc__ = f"{client.__doc__.rstrip()}\n\n{textwrap.indent(tables(), ' ' * 4)}\n"
        return client

    return document


def documents_keywords(declaring: type[Any]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Add the options that a method takes as keywords to its docstring, from their declarations."""

    def document(method: Callable[P, T]) -> Callable[P, T]:
        if method.__doc__ is not None:  # python -OO
            table = f"Options, with their defaults:\n\n{option_table(declaring, width=112)}"
            method.__doc__ = f"{method.__doc__.rstrip()}\n\n{textwrap.indent(table, ' ' * 8)}\n"
        return method

    return document


def _quoted(value: object) -> str:
    """Return a default as documentation shows it: a function by its name."""
    if isinstance(value, str):
        return f'"{value}"'
    return value.__name__.lstrip("_") if isinstance(value, FunctionType) else str(value)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


# -- a dict of properties, as confluent-kafka takes it, written as a call


def _translated(
    client: str, properties: Mapping[Any, object], given: Mapping[str, object], known: Mapping[str, Option]
) -> str:
    """Return the call to write instead of one with a dict, without secrets."""
    values = {normalized(str(name)): value for name, value in {**properties, **given}.items()}
    bootstrap = values.pop("bootstrap_servers", values.pop("metadata_broker_list", "host:9092"))
    arguments = [repr(bootstrap)]
    hints = []
    security = {name: values.pop(name) for name in list(values) if name.startswith(("security_", "sasl_", "ssl_"))}
    for name, value in values.items():
        meant = name if name in known else kwire_name(name)
        if meant is not None and meant in known:
            arguments.append(f"{meant}={typed(known[meant], value)!r}")
        else:
            hints.append(name_hint(client, name, known) or f"{name} has no counterpart")
    arguments += _security_arguments(security)
    return "; ".join([f"write {client}({', '.join(arguments)})", *hints])


def _security_arguments(properties: Mapping[str, object]) -> list[str]:
    protocol = str(properties.get("security_protocol", "")).upper()
    arguments = []
    authorities = properties.get("ssl_ca_location", properties.get("ssl_cafile"))
    if "SSL" in protocol or any(name.startswith("ssl_") for name in properties):
        arguments.append(f"tls=kwire.Tls(ca_file={authorities!r})" if authorities else "tls=True")
    mechanism = properties.get("sasl_mechanism", properties.get("sasl_mechanisms"))
    user = properties.get("sasl_username", properties.get("sasl_plain_username"))
    if "SASL" in protocol or mechanism or user:
        arguments.append(f"sasl=kwire.Sasl({mechanism or 'PLAIN'!r}, {user or 'user'!r}, ...)")
    return arguments
