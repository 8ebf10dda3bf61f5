"""Base classes of declarations: Struct, Message, Request[R] and Response, and their metaclass.

A class body lists the fields in wire order (see `fields`). The metaclass sets `__slots__` and FIELDS. Constructors and
codecs are generated on first use, because a process uses a few dozen of several hundred classes. One class serves every
version, as in Kafka's own classes: the version is an argument of `encode` and `decode`.
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
    """The metaclass: it reads a class body into FIELDS."""

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
        if namespace["__module__"] == __name__:  # Struct, Message, Request and Response are not declarations
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
            _set_response_of_request(cls)
        return cls

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **_: Any) -> None:
        super().__init__(name, bases, namespace)

    @property
    def __doc__(cls) -> str | None:  # type: ignore[override]
        """Return what `help` shows: the fields with their types, versions and defaults."""
        own: str | None = cls.__dict__.get("__doc__")
        return documentation.documentation(cls, own)

    @property
    def __signature__(cls) -> Any:
        """Return the constructor's signature for `inspect.signature` and `help`."""
        return documentation.signature(cls)


def _annotations(namespace: dict[str, Any]) -> Mapping[str, Any]:
    """Return the evaluated annotations of a class body. Since Python 3.14 (PEP 649) it holds a function for them."""
    if sys.version_info >= (3, 14):
        import annotationlib

        annotate = annotationlib.get_annotate_from_class_namespace(namespace)
        if annotate is None:
            return {}
        return annotationlib.call_annotate_function(annotate, annotationlib.Format.VALUE)
    annotations: dict[str, Any] = namespace.get("__annotations__", {})
    return annotations


def _set_response_of_request(response: Any) -> None:
    """Set RESPONSE of the request, which its file declares before the response."""
    request: Any = getattr(sys.modules[response.__module__], response.__name__.removesuffix("Response") + "Request")
    request.RESPONSE = response


class Struct(metaclass=_Declaration):
    """A group of fields. The constructor takes keywords; fields without a default are required.

    `unknown_tagged_fields` holds the tagged fields of a newer peer as {tag: bytes}, or None. They are encoded again and
    compared by ==, and, as in Kafka, are not part of the JSON form.
    """

    __slots__ = ("unknown_tagged_fields",)

    FIELDS: ClassVar[tuple[Field, ...]] = ()
    _values: ClassVar[Any]

    def __init__(self, **fields: Any) -> None:
        # Runs for the first instance of a class only: it replaces itself with the generated constructor.
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
        """Return a call that creates an equal object. Fields with their default are omitted."""
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
    """A top-level struct. VERSIONS are the known versions; FLEXIBLE is the first flexible one, or None (KIP-482)."""

    API_KEY: ClassVar[int | None] = None
    VERSIONS: ClassVar[range]
    FLEXIBLE: ClassVar[int | None]
    _decoders: ClassVar[dict[int, codegen.Decoder]]
    _encoders: ClassVar[dict[int, codegen.Encoder]]

    @classmethod
    def decode(cls, data: BytesLike, version: int, start: int = 0) -> Self:
        """Decode the message in `data` from `start` to the end. Raises DecodeError with path and offset.

        Records are views into `data` if it is bytes or a read-only memoryview, else into a copy.
        """
        try:
            decoder = cls._decoders[version]  # faster than a call of `get`, which small messages would notice
        except KeyError:
            decoder = None
        if decoder is None:
            decoder = cls._decoders[version] = codegen.decoder(cls.supported(version), version)
        if type(data) is not bytes and not (
            type(data) is memoryview and data.readonly and data.format == "B" and data.contiguous and data.ndim == 1
        ):
            data = bytes(memoryview(data))  # fields may be views of it, which must not change
        try:
            message: Self | None = decoder(data, start)
        except codegen.DECODE_FAILURES:
            message = None
        if message is None:
            raise diagnose.decode_error(cls, data, start, version)
        return message

    def encode(self, version: int) -> bytes:
        """Encode the message. Raises EncodeError with the path of a value that its type or this version cannot hold."""
        return b"".join(self.encode_after(b"", version))

    def encode_parts(self, version: int) -> list[BytesLike]:
        """Encode the message as a list of buffers. Large `records` are the caller's objects, not copies."""
        return self.encode_after(b"", version)

    def encode_after(self, header: bytes, version: int) -> list[BytesLike]:
        """Do the same as `encode_parts`, with the bytes of a header in front."""
        encoder = self._encoders.get(version)
        if encoder is None:
            encoder = self._encoders[version] = codegen.encoder(self.supported(version), version)
        parts: list[BytesLike] = [header]
        uncopied: list[int] = []
        try:
            encoder(self, parts, uncopied)
            return _join_small(parts, uncopied) if uncopied else [b"".join(parts)]
        except codegen.ENCODE_FAILURES as error:
            raise diagnose.encode_error(self, version) from error

    def to_json(self, version: int) -> dict[str, Any]:
        """Return the message as dicts, lists and scalars, in the form of Kafka's JsonConverter (see `json`)."""
        cls = self.supported(version)
        try:
            return kafka_json.to_json(self, cls, version)
        except EncodeError:
            raise
        except (AttributeError, BufferError, TypeError, ValueError) as error:
            raise diagnose.encode_error(self, version) from error

    @classmethod
    def from_json(cls, obj: Mapping[str, Any], version: int) -> Self:
        """Create a message from the result of `to_json`. Raises EncodeError with the path of a wrong field."""
        return kafka_json.from_json(cls.supported(version), obj, version)  # type: ignore[no-any-return]

    @classmethod
    def supported(cls, version: int) -> type[Self]:
        """Return the class if it has this version. Raises UnsupportedVersionError."""
        if version not in cls.VERSIONS or not isinstance(version, int):
            hint = "" if isinstance(version, int) else f", and a version is an int, not {version!r:.60}"
            known = f"{cls.VERSIONS.start} to {cls.VERSIONS.stop - 1}{hint}"
            raise UnsupportedVersionError(f"{cls.__name__} has versions {known}", api=cls.__name__, version=version)
        return cls


def _join_small(parts: Sequence[BytesLike], uncopied: Sequence[int]) -> list[BytesLike]:
    """Join the parts between those that must not be copied."""
    joined: list[BytesLike] = []
    start = 0
    for index in uncopied:
        joined += (b"".join(parts[start:index]), parts[index])
        start = index + 1
    joined.append(b"".join(parts[start:]))
    return joined


R_co = TypeVar("R_co", bound="Response", covariant=True)


class Request(Message, Generic[R_co]):
    """A request whose response is an R. Functions that take a Request[R] can declare that they return R."""

    API_KEY: ClassVar[int]
    RESPONSE: ClassVar[type["Response"]]


class Response(Message):
    """A response. Its file declares it below its request."""

    API_KEY: ClassVar[int]
