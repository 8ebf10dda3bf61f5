"""Every declaration, field by field and version by version, against Kafka's schemas as read out of the jars."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from kwire.protocol import Message
from kwire.protocol.fields import NO_ID, REQUIRED, Array, Field, Fixed, Sized
from kwire.protocol.json import camel_case
from tests.conformance import oracle
from tests.protocol.samples import declared_messages

# Fields were renamed between releases, which changes no bytes; names are compared with the newest that has a message.
_ANY_NAME = re.compile(r"[A-Za-z0-9]+")

# Versions of early access features, which the next release changed.
_CHANGED_EARLY_ACCESS = {
    ("ReadShareGroupStateSummaryResponse", 0),
    ("LeaderChangeMessage", 0),
    ("ShareGroupMetadataValue", 0),
}


class Line(NamedTuple):
    """One field at one version, with all that determines its bytes and JSON."""

    path: str
    type: str
    nullable: bool
    tag: int | None


@pytest.mark.parametrize("cls", declared_messages(), ids=lambda cls: cls.__name__)
def test_versions_are_those_of_all_releases(cls: type[Message]) -> None:
    found: set[int] = set()
    for schema in _schemas_of(cls.__name__).values():
        valid = oracle.versions(schema["validVersions"])
        found |= set(valid)
        flexible = oracle.versions(schema.get("flexibleVersions"), valid)
        ours = [version for version in valid if cls.FLEXIBLE is not None and version >= cls.FLEXIBLE]
        assert list(flexible) == ours
        if schema["type"] != "data" or not cls.__name__.endswith("Value"):  # before 4.0 only keys say of what type
            assert schema.get("apiKey") == cls.API_KEY
    assert set(cls.VERSIONS) == found


@pytest.mark.parametrize("cls", declared_messages(), ids=lambda cls: cls.__name__)
def test_every_version_has_the_fields_of_every_release(cls: type[Message]) -> None:
    newest = next(iter(_schemas_of(cls.__name__).values()))
    for release, schema in _schemas_of(cls.__name__).items():
        for version in oracle.versions(schema["validVersions"]):
            theirs = _their_lines(schema, schema["fields"], version, "")
            ours = _our_lines(cls, version, "")
            if schema is not newest:
                if (cls.__name__, version) in _CHANGED_EARLY_ACCESS:
                    continue
                # A tagged field may join a version that is out already; older releases do not know it.
                ours = _without_later_tags(_nameless(ours), {line.tag for line in theirs})
                theirs = _nameless(theirs)
            assert ours == theirs, f"v{version} of {release}"


@pytest.mark.parametrize("cls", declared_messages(), ids=lambda cls: cls.__name__)
def test_defaults_and_what_may_be_lost_are_the_newest_releases(cls: type[Message]) -> None:
    newest = next(iter(_schemas_of(cls.__name__).values()))
    wrong: list[str] = []
    _compare_defaults(cls, newest, newest["fields"], oracle.versions(newest["validVersions"]), "", wrong)
    assert not wrong


def test_every_message_of_every_release_is_declared() -> None:
    declared = {cls.__name__ for cls in declared_messages()}
    headers = {"RequestHeader", "ResponseHeader"}
    for release in oracle.RELEASES:
        assert set(oracle.schemas(release)) - headers <= declared


def _schemas_of(name: str) -> Mapping[str, Any]:
    """{release: schema}, newest first."""
    return {release: oracle.schemas(release)[name] for release in oracle.RELEASES if name in oracle.schemas(release)}


def _without_later_tags(lines: list[Line], tags: set[int | None]) -> list[Line]:
    """The lines without tagged fields that are not in `tags`, and what is inside them."""
    kept: list[Line] = []
    depth_left_out: int | None = None
    for line in lines:
        depth = line.path.count(".")
        if depth_left_out is not None and depth > depth_left_out:
            continue
        depth_left_out = depth if line.tag not in tags else None
        if depth_left_out is None:
            kept.append(line)
    return kept


def _nameless(lines: list[Line]) -> list[Line]:
    """The lines with only the depth of their paths."""
    return [line._replace(path=_ANY_NAME.sub("", line.path)) for line in lines]


def _our_lines(cls: Any, version: int, path: str) -> list[Line]:
    lines = []
    for field in cls.FIELDS:
        if not field.exists(version):
            continue
        here = f"{path}.{camel_case(field.name)}"
        lines.append(Line(here, _our_type(field.type), field.is_nullable(version), field.tag))
        struct = _struct_of(field)
        if struct is not None:
            lines += _our_lines(struct, version, here)
    return lines


def _our_type(wire_type: Any) -> str:
    if isinstance(wire_type, Array):
        return f"[]{_our_type(wire_type.element)}"
    if isinstance(wire_type, Fixed | Sized):
        return "bool" if wire_type.name == "boolean" else wire_type.name
    return "struct"


def _struct_of(field: Field) -> Any:
    element = field.type.element if isinstance(field.type, Array) else field.type
    return element if hasattr(element, "FIELDS") else None


def _their_lines(schema: Any, fields: Any, version: int, path: str) -> list[Line]:
    lines = []
    for field in fields:
        if version not in _versions(field):
            continue
        here = f"{path}.{_camel(field['name'])}"
        is_tagged = version in oracle.versions(field.get("taggedVersions"))
        nullable = version in oracle.versions(field.get("nullableVersions"))
        lines.append(Line(here, _their_type(field["type"]), nullable, int(field["tag"]) if is_tagged else None))
        lines += _their_lines(schema, _inner_fields(schema, field), version, here)
    return lines


def _versions(field: Any, valid: range = range(2**15)) -> range:
    return oracle.versions(field.get("versions", field.get("taggedVersions")), valid)


def _their_type(name: str) -> str:
    if name.startswith("[]"):
        return f"[]{_their_type(name[2:])}"
    return "struct" if name[0].isupper() else name


def _inner_fields(schema: Any, field: Any) -> Any:
    """A struct's fields stand under the field or, for a struct used twice, apart."""
    if "fields" in field:
        return field["fields"]
    for struct in schema.get("commonStructs", ()):
        if struct["name"] == field["type"].removeprefix("[]"):
            return struct["fields"]
    return ()


def _camel(name: str) -> str:
    return name[0].lower() + name[1:]


def _compare_defaults(cls: Any, schema: Any, fields: Any, valid: range, path: str, wrong: list[str]) -> None:
    by_name = {_camel(field["name"]): field for field in fields if _versions(field, valid)}
    for field in cls.FIELDS:
        theirs = by_name.get(camel_case(field.name))
        if theirs is None:
            continue  # of versions that the newest release dropped
        here = f"{path}.{field.name}"
        if field.default is not REQUIRED and field.default != _their_default(theirs, field):
            wrong.append(f"{here}: default {field.default!r}, theirs {theirs.get('default')!r}")
        if theirs.get("default") is not None and field.default is REQUIRED:
            wrong.append(f"{here}: no default, theirs {theirs['default']!r}")
        can_be_absent = set(_versions(theirs, valid)) != set(valid)
        if can_be_absent and field.ignorable != (str(theirs.get("ignorable", False)).lower() == "true"):
            wrong.append(f"{here}: ignorable {field.ignorable}, theirs {theirs.get('ignorable')}")
        struct = _struct_of(field)
        if struct is not None:
            inner = _versions(theirs, valid)
            _compare_defaults(struct, schema, _inner_fields(schema, theirs), inner, here, wrong)


def _their_default(theirs: Any, field: Field) -> Any:
    text = theirs.get("default")  # null without quotes is none, for Kafka's generator too
    struct = _struct_of(field)
    if isinstance(field.type, Array):
        return None if text == "null" else []
    if struct is not None:
        return None if text == "null" else struct()
    if text is None:
        return {"string": "", "bool": False, "uuid": NO_ID, "bytes": b"", "float64": 0.0}.get(theirs["type"], 0)
    if text == "null":
        return None
    if theirs["type"] == "bool":
        return str(text).lower() == "true"
    return text if theirs["type"] == "string" else int(str(text), 0)
