"""What `help` shows for a message or a struct: its fields with types, versions and defaults, and its constructor."""

from __future__ import annotations

from typing import Any

from kwire.protocol.fields import LAST, REQUIRED, Field, type_name


def documentation(cls: Any, own: str | None) -> str | None:
    """Return a class's docstring: its own, if it has one, and a line for each field."""
    fields: tuple[Field, ...] = getattr(cls, "FIELDS", ())
    if not fields:
        return own
    versions = getattr(cls, "VERSIONS", None)
    title = own or f"{cls.__qualname__}: the fields, by keyword."
    if versions is not None:
        key = "" if getattr(cls, "API_KEY", None) is None else f"API key {cls.API_KEY}, "
        title = own or f"{cls.__qualname__}: {key}versions {versions.start} to {versions.stop - 1}."
    rows = [(field.name, _type(field), _versions(field), _default(field)) for field in fields]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    cells = ([*(text.ljust(width) for text, width in zip(row, widths, strict=False)), row[3]] for row in rows)
    return "\n".join([title, "", *(f"    {'  '.join(row)}" for row in cells)])


def signature(cls: Any) -> Any:
    """Return the `inspect.Signature` of the constructor."""
    from inspect import Parameter, Signature  # imported here because `inspect` is slow to import

    return Signature(
        [
            Parameter(
                field.name,
                Parameter.KEYWORD_ONLY,
                default=Parameter.empty if field.default is REQUIRED else field.default,
            )
            for field in getattr(cls, "FIELDS", ())
        ]
    )


def _type(field: Field) -> str:
    return type_name(field.type) + (" or None" if field.nullable_since <= field.nullable_until else "")


def _versions(field: Field) -> str:
    until = "+" if field.until == LAST else f" to v{field.until}"
    tag = "" if field.tag is None else f", tag {field.tag}"
    nullable = f", None from v{field.nullable_since}" if _is_nullable_later(field) else ""
    return f"v{field.since}{until}{tag}{nullable}"


def _is_nullable_later(field: Field) -> bool:
    return field.since < field.nullable_since <= field.nullable_until


def _default(field: Field) -> str:
    return "required" if field.default is REQUIRED else f"default {field.default!r}"
