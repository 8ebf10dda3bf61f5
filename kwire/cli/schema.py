"""`kwire schema Metadata@9`: the fields of an API's messages, by version."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple
from uuid import UUID

import click

from kwire.capture.apis import known_apis, message_classes, range_text
from kwire.cli.arguments import complete_api, find_api_at, find_version
from kwire.cli.error_report import ExitCode
from kwire.cli.message_json import default_to_json
from kwire.cli.output import Output, output_options, styled
from kwire.protocol.fields import NO_ID, REQUIRED, Array, Field, type_name
from kwire.protocol.json import camel_case


class Line(NamedTuple):
    """A field and its path in Kafka's names, with [] for array elements."""

    depth: int
    path: str
    field: Field

    @property
    def name(self) -> str:
        return camel_case(self.field.name)


@click.command()
@click.argument("api_text", metavar="[API[@VERSION]]", required=False, shell_complete=complete_api)
@click.option("--request", "only", flag_value="request", help="Show only the request. Default: both.")
@click.option("--response", "only", flag_value="response", help="Show only the response. Default: both.")
@click.option("--diff", nargs=2, metavar="A B", help="Show the differences between versions A and B.")
@output_options
def command(api_text: str | None, only: str | None, diff: tuple[str, str] | None, output: Output) -> ExitCode:
    """Fields and versions of an API's messages.

    Names are those of Kafka's JSON, which `kwire encode` and `kwire send` read. Without an API, all APIs are listed.

    \b
        kwire schema
        kwire schema Metadata
        kwire schema Metadata@12 --request
        kwire schema Metadata --diff 8 12
    """
    if api_text is None:
        if diff:
            raise click.UsageError("--diff needs an API")
        _list_apis(output)
        return ExitCode.OK
    api, version = find_api_at(api_text)
    messages = [(kind, cls) for kind, cls in message_classes(api) if only in (None, kind)]
    for number, (kind, cls) in enumerate(messages):
        if number and output.is_table:
            output.text()
        if diff:
            _show_diff(cls, find_version(diff[0], api), find_version(diff[1], api), output)
        elif output.is_table:
            _show(cls, version, output)
        else:
            output.json(_message_to_json(api.name, kind, cls, version))
    return ExitCode.OK


def _list_apis(output: Output) -> None:
    apis = list(known_apis())
    if not output.is_table:
        for api in apis:
            output.json(
                {"api": api.name, "api_key": int(api.key), "versions": _ends(api.versions), "flexible": _flexible(api)}
            )
        return
    rows = ([int(api.key), api.name, range_text(api.versions), _flexible(api)] for api in apis)
    output.table(["key", "api", "versions", "flexible since"], rows, right=["key", "versions", "flexible since"])


def _flexible(api: Any) -> int | None:
    """Return the first flexible version, if kwire knows one."""
    first: int | None = api.request.FLEXIBLE
    return first if first is not None and first in api.versions else None


def lines(cls: Any, version: int | None, depth: int = 0, prefix: str = "") -> Iterator[Line]:
    """Yield the fields of a message and of its structs, in one version or in all."""
    for field in cls.FIELDS:
        if version is not None and not field.exists(version):
            continue
        path = f"{prefix}{camel_case(field.name)}"
        yield Line(depth, path, field)
        inner, suffix = field.type, ""
        while isinstance(inner, Array):
            inner, suffix = inner.element, suffix + "[]"
        if hasattr(inner, "FIELDS"):
            yield from lines(inner, version, depth + 1, f"{path}{suffix}.")


def _show(cls: Any, version: int | None, output: Output) -> None:
    title = f"{cls.__name__}{'' if version is None else f' v{version}'}"
    details = [f"key {cls.API_KEY}", f"versions {range_text(cls.VERSIONS)}"]
    if cls.FLEXIBLE is not None and cls.FLEXIBLE in cls.VERSIONS:
        details.append(f"flexible since {cls.FLEXIBLE}")
    found = list(lines(cls, version))
    heading = styled(title, "bold")
    heading.append(f"  {', '.join(details)}", "not bold")
    output.draw(heading)
    if not found:
        output.draw("no fields")
        return
    rows = []
    for line in found:
        field = line.field
        span_text = "" if version is not None else _span(field.since, field.until, cls)
        cells = ["  " * line.depth + line.name, type_name(field.type), span_text]
        rows.append([*cells, _nullable(field, version, cls), _default(field), field.tag])
    output.table(["field", "type", "versions", "nullable", "default", "tag"], rows, whole=["field", "type"])


def _span(since: int, until: int, cls: Any) -> str:
    if until >= cls.VERSIONS.stop - 1:
        return f"{since}+"
    return str(since) if since == until else f"{since}-{until}"


def _nullable(field: Field, version: int | None, cls: Any) -> str:
    if version is not None:
        return "yes" if field.is_nullable(version) else ""
    if field.nullable_since > field.nullable_until:
        return ""
    covers_all = field.nullable_since <= field.since and field.nullable_until >= min(field.until, cls.VERSIONS.stop - 1)
    return "yes" if covers_all else _span(field.nullable_since, field.nullable_until, cls)


def _default(field: Field) -> str:
    if field.default is REQUIRED:
        return ""
    if isinstance(field.default, UUID):
        return "no id" if field.default == NO_ID else str(field.default)
    return json.dumps(default_to_json(field))


def _message_to_json(api_name: str, kind: str, cls: Any, version: int | None) -> dict[str, Any]:
    return {
        "api": api_name,
        "api_key": cls.API_KEY,
        "kind": kind,
        "versions": _ends(cls.VERSIONS),
        "flexible": cls.FLEXIBLE,
        **({} if version is None else {"version": version}),
        "fields": [_field_to_json(line, cls) for line in lines(cls, version)],
    }


def _ends(versions: range) -> list[int]:
    return [versions[0], versions[-1]]


def _field_to_json(line: Line, cls: Any) -> dict[str, Any]:
    field = line.field
    last = cls.VERSIONS.stop - 1
    json_field: dict[str, Any] = {
        "path": line.path,
        "type": type_name(field.type),
        "versions": [field.since, min(field.until, last)],
        "nullable": [max(field.nullable_since, field.since), min(field.nullable_until, last)]
        if field.nullable_since <= field.nullable_until
        else None,
    }
    if field.default is not REQUIRED:
        json_field["default"] = default_to_json(field)
    if field.tag is not None:
        json_field["tag"] = field.tag
    return json_field


def _show_diff(cls: Any, first: int, second: int, output: Output) -> None:
    changes = list(_changes(cls, first, second))
    if not output.is_table:
        for change, path, was, now in changes:
            output.json({"message": cls.__name__, "change": change, "path": path, "was": was, "now": now})
        return
    output.draw(styled(f"{cls.__name__} from v{first} to v{second}", "bold"))
    if not changes:
        output.draw("no difference")
        return
    signs = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow")}
    rows = [[styled(*signs[change]), path, was, now] for change, path, was, now in changes]
    output.table([" ", "field", f"v{first}", f"v{second}"], rows)


def _changes(cls: Any, first: int, second: int) -> Iterator[tuple[str, str, str | None, str | None]]:
    """Yield (added, removed or changed; path; old; new)."""
    if (was := _form(cls, first)) != (now := _form(cls, second)):
        yield "changed", "(encoding)", was, now
    before, after = ({line.path: _shape(line, v) for line in lines(cls, v)} for v in (first, second))
    for path in [*after, *(path for path in before if path not in after)]:
        old, new = before.get(path), after.get(path)
        if old != new:
            yield "added" if old is None else "removed" if new is None else "changed", path, old, new


def _form(cls: Any, version: int) -> str:
    return "flexible" if cls.FLEXIBLE is not None and version >= cls.FLEXIBLE else "fixed lengths"


def _shape(line: Line, version: int) -> str:
    field = line.field
    shape = type_name(field.type)
    if field.is_nullable(version):
        shape += ", nullable"
    return shape if field.tag is None else f"{shape}, tag {field.tag}"
