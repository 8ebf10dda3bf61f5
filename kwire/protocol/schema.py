"""What a declaration is made of: Struct, Message, Request[R] and Response, and the metaclass that reads them.

A class body lists the fields in the order of the wire (`fields` has the grammar). The metaclass only collects: it sets
`__slots__` and FIELDS, and compiles nothing. Constructors and codecs are compiled when first used, because a process
uses a few dozen of the several hundred classes. One object stands for a message in every version, as in Kafka's own
classes: the version is an argument of encode and decode, not a type.
"""

import sys
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, ClassVar, Generic, Self, TypeAlias, TypeVar, dataclass_transform

from kwire.errors import EncodeError, UnsupportedVersionError
from kwire.protocol import codegen, diagnose, documentation
from kwire.protocol import json as kafka_json
from kwire.protocol.fields import REQUIRED, Field, field_of, since, tagged

__all__ = ["BytesLike", "Message", "Request", "Response", "Struct", "since", "tagged"]

BytesLike: TypeAlias = bytes | bytearray | memoryview


@dataclass_transform(kw_only_default=True, field_specifiers=(since, tagged))
class _Declaration(type):
    """Reads a class body into FIELDS. Everything else waits for the first use."""

    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        key: int | None = None,
        versions: tuple[int, int] | None = None,
        flexible: int | None = None,
    ) -> "_Declaration":
        if namespace["__module__"] == __name__:  # Struct, Message, Request and Response: no declarations
            namespace.setdefault("__slots__", ())
            return super().__new__(mcs, name, bases, namespace)
        annotations = _annotations(namespace)
        namespace["FIELDS"] = fields = tuple(
            field_of(namespace["__qualname__"], field, annotation, namespace.pop(field, REQUIRED))
            for field, annotation in annotations.items()
        )
        namespace["__slots__"] = names = tuple(field.name for field in fields)
        namespace["_values"] = attrgetter(*names, "unknown_tagged_fields")
        if versions is not None:
            namespace.update(
                API_KEY=key, VERSIONS=range(versions[0], versions[1] + 1), FLEXIBLE=flexible, _decoders={}, _encoders={}
            )
        cls = super().__new__(mcs, name, bases, namespace)
        if key is not None and name.endswith("Response"):
            _join_to_request(cls)
        return cls

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **_: Any) -> None:
        super().__init__(name, bases, namespace)

    @property
    def __doc__(cls) -> str | None:  # type: ignore[override]
        """What `help` shows: the fields with their types, versions and defaults."""
        own: str | None = cls.__dict__.get("__doc__")
        return documentation.documentation(cls, own)

    @property
    def __signature__(cls) -> Any:
        """What `inspect.signature` and `help` show of the constructor, which is compiled with the first use."""
        return documentation.signature(cls)


def _annotations(namespace: dict[str, Any]) -> Mapping[str, Any]:
    """The class body's annotations, evaluated. From Python 3.14 (PEP 649) a body leaves a function that does it."""
    if sys.version_info >= (3, 14):
        import annotationlib

        diagnose = annotationlib.get_annotate_from_class_namespace(namespace)
        if diagnose is None:
            return {}
        return annotationlib.call_annotate_function(diagnose, annotationlib.Format.VALUE)
    annotations: dict[str, Any] = namespace.get("__annotations__", {})
    return annotations


def _join_to_request(response: Any) -> None:
    """A request stands before its response in their file, so the later one makes the pair."""
    request: Any = getattr(sys.modules[response.__module__], response.__name__.removesuffix("Response") + "Request")
    request.RESPONSE = response


class Struct(metaclass=_Declaration):
    """A group of fields. Construction is by keyword; a field without a default must be given.

    `unknown_tagged_fields` holds the tagged fields that a newer peer sent, {tag: bytes}, or None. They survive a round
    trip, count in ==, and are not part of the JSON form (Kafka's neither).
    """

    __slots__ = ("unknown_tagged_fields",)

    FIELDS: ClassVar[tuple[Field, ...]] = ()
    _values: ClassVar[Any]

    def __init__(self, **fields: Any) -> None:
        # Only ever the first construction of a class comes here: from then on the class has its own, compiled.
        self.unknown_tagged_fields: dict[int, bytes] | None = None
        cls = type(self)
        constructor = codegen.constructor(cls)
        cls.__init__ = constructor  # type: ignore[method-assign]
        constructor(self, **fields)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        values = type(self)._values
        return bool(values(self) == values(other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """The fields that differ from their defaults, as a call that would make the same object."""
        shown = []
        for field in self.FIELDS:
            value = getattr(self, field.name)
            if field.default is REQUIRED or value != field.default:
                text = f"<{value.nbytes} bytes>" if isinstance(value, memoryview) else repr(value)
                shown.append(f"{field.name}={text}")
        if self.unknown_tagged_fields:
            shown.append(f"unknown_tagged_fields={self.unknown_tagged_fields!r}")
        return f"{type(self).__qualname__}({', '.join(shown)})"


class Message(Struct):
    """A struct that stands for itself on the wire. VERSIONS are those that we know, FLEXIBLE the first with compact
    lengths and tagged fields, or None (KIP-482).
    """

    API_KEY: ClassVar[int | None] = None
    VERSIONS: ClassVar[range]
    FLEXIBLE: ClassVar[int | None]
    _decoders: ClassVar[dict[int, codegen.Decoder]]
    _encoders: ClassVar[dict[int, codegen.Encoder]]

    @classmethod
    def decode(cls, data: BytesLike, version: int, start: int = 0) -> Self:
        """Read a message that is the whole of `data`, or `data` from `start` to its end. For bad bytes raises
        DecodeError (path, offset), nothing else. Records are views into `data` if that is bytes or a read-only
        memoryview, else into a copy.
        """
        try:
            decoder = cls._decoders[version]  # a small message takes so little time that a call of `get` is seen in it
        except KeyError:
            decoder = None
        if decoder is None:
            decoder = cls._decoders[version] = codegen.decoder(cls.supported(version), version)
        if type(data) is not bytes and not (type(data) is memoryview and data.readonly):
            data = bytes(data)  # the views handed out must not change under their reader
        try:
            message: Self | None = decoder(data, start)
        except codegen.UNDECODABLE:
            message = None
        if message is None:
            raise diagnose.decode_error(cls, data, start, version)
        return message

    def encode(self, version: int) -> bytes:
        """The message's bytes. Raises EncodeError (path) for a value that its type or this version cannot carry."""
        return b"".join(self.encode_after(b"", version))

    def encode_parts(self, version: int) -> list[BytesLike]:
        """The same as a list, in which large `records` stand alone: they are the caller's objects, not copied."""
        return self.encode_after(b"", version)

    def encode_after(self, header: bytes, version: int) -> list[BytesLike]:
        """`encode_parts` with a header's bytes before it."""
        encoder = self._encoders.get(version)
        if encoder is None:
            encoder = self._encoders[version] = codegen.encoder(self.supported(version), version)
        parts: list[BytesLike] = [header]
        alone: list[int] = []
        try:
            encoder(self, parts, alone)
            return _joined(parts, alone) if alone else [b"".join(parts)]
        except codegen.UNENCODABLE as error:
            raise diagnose.encode_error(self, version) from error

    def to_json(self, version: int) -> dict[str, Any]:
        """The message as Kafka's JsonConverter shows it (see `json`): dicts, lists, str, int, float, bool, None."""
        cls = self.supported(version)
        try:
            return kafka_json.to_json(self, cls, version)
        except EncodeError:
            raise
        except (AttributeError, TypeError, ValueError) as error:
            raise diagnose.encode_error(self, version) from error

    @classmethod
    def from_json(cls, obj: Mapping[str, Any], version: int) -> Self:
        """The reverse of to_json. Raises EncodeError (path) for a field that is missing or of the wrong kind."""
        return kafka_json.from_json(cls.supported(version), obj, version)  # type: ignore[no-any-return]

    @classmethod
    def supported(cls, version: int) -> type[Self]:
        """The class itself, if it has this version."""
        if version not in cls.VERSIONS:
            known = f"{cls.VERSIONS.start} to {cls.VERSIONS.stop - 1}"
            raise UnsupportedVersionError(f"{cls.__name__} has versions {known}", api=cls.__name__, version=version)
        return cls


def _joined(parts: Sequence[BytesLike], alone: Sequence[int]) -> list[BytesLike]:
    """Join the small parts between those that stand alone."""
    joined: list[BytesLike] = []
    start = 0
    for index in alone:
        joined += (b"".join(parts[start:index]), parts[index])
        start = index + 1
    joined.append(b"".join(parts[start:]))
    return joined


R_co = TypeVar("R_co", bound="Response", covariant=True)


class Request(Message, Generic[R_co]):
    """A request of a response: a call that is given a Request[R] can be typed to answer R."""

    API_KEY: ClassVar[int]
    RESPONSE: ClassVar[type["Response"]]


class Response(Message):
    """A response. Its file declares it below its request."""

    API_KEY: ClassVar[int]
