"""What arguments name (APIs, versions, topics, error codes): how the text is parsed and completed by the shell."""

from __future__ import annotations

from contextlib import closing, suppress
from typing import Any

import click

from kwire.capture.apis import range_text
from kwire.errors import UnsupportedVersionError
from kwire.protocol import Api, ApiKey, api


def find_api(text: str) -> Api:
    """Return the API of a name or number, such as Metadata, MetadataRequest or 3.

    Raises UsageError with similar names.
    """
    try:
        return api(_key(text))
    except UnsupportedVersionError:
        raise click.UsageError(f"kwire has no messages of {text}; `kwire schema` lists those it has") from None


def _key(text: str) -> ApiKey:
    by_name = {key.name.replace("_", "").lower(): key for key in ApiKey}
    bare = text.replace("_", "").replace("-", "").lower()
    found = by_name.get(bare) or by_name.get(bare.removesuffix("request").removesuffix("response"))
    if found is not None:
        return found
    if text.isascii() and text.isdigit() and int(text) in set(ApiKey):
        return ApiKey(int(text))
    from kwire.option_checks import near_names  # only a wrong name pays for it

    near = [by_name[name].api_name for name in near_names(bare, by_name, max_names=3)]
    hint = f"did you mean {' or '.join(near)}?" if near else "`kwire schema` lists them"
    raise click.UsageError(f"there is no API {text}; {hint}")


def find_version(text: str, found: Api) -> int:
    """Return a version of an API. Raises UsageError if kwire does not know it."""
    if not text.isascii() or not text.isdigit() or int(text) not in found.versions:
        raise click.UsageError(f"{found.name} has versions {range_text(found.versions)}, not {text}")
    return int(text)


def find_api_at(text: str) -> tuple[Api, int | None]:
    """Parse `Metadata@9` as (Metadata, 9), and `Metadata` as (Metadata, None)."""
    name, at, version = text.partition("@")
    found = find_api(name)
    return found, find_version(version, found) if at else None


_TIMEOUT_SECONDS = 1.0


def complete_topic(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the topics of the cluster that -b or KWIRE_BOOTSTRAP names.

    Never fails, prints or prompts; waits one second.
    """
    if ":" in incomplete:  # a partition is being typed
        return []
    with suppress(Exception):
        return [name for name in _topics(ctx.params) if name.startswith(incomplete)]
    return []


def _topics(given: dict[str, Any]) -> list[str]:
    """Return the topic names of the cluster that the options or the environment name."""
    from kwire.cli.connection import ConnectionOptions, connection_tls, named_values
    from kwire.cli.metadata import request_metadata
    from kwire.cluster import LoopThread
    from kwire.session import Sasl

    username, password = given.get("username"), given.get("password")
    tls = connection_tls(given)
    sasl = None
    if username and password:
        sasl = Sasl(given.get("sasl_mechanism") or ("PLAIN" if tls else "SCRAM-SHA-512"), username, password)
    bootstrap = given.get("bootstrap")
    if not bootstrap or (username and sasl is None):
        return []
    connection = ConnectionOptions(bootstrap, _TIMEOUT_SECONDS, tls, sasl, named_values(given.get("extra") or ()))
    with closing(LoopThread(connection.config())) as loop_thread:
        found = request_metadata(loop_thread, None, _TIMEOUT_SECONDS).topics
    return sorted(topic.name for topic in found if topic.name and not topic.is_internal)


def complete_api(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the APIs that begin with the last name of a comma-separated list."""
    from kwire.protocol import ApiKey

    before, comma, last = incomplete.rpartition(",")  # decode --api takes several
    wanted = last.lower()
    return [f"{before}{comma}{key.api_name}" for key in ApiKey if key.api_name.lower().startswith(wanted)]


def complete_error(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of error codes that begin with the text."""
    from kwire.errors import ErrorCode

    wanted = incomplete.upper().replace("-", "_")
    return [code.name for code in ErrorCode if code.name.startswith(wanted)]


def _parse_where(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    if value is None:
        return None
    from kwire.capture.filters import Filter

    return Filter(value)


def _read_key_log(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    if value is None:
        return None
    from kwire.capture import KeyLog

    return KeyLog(value)


key_log_option = click.option(
    "--keylog", "key_log", metavar="FILE", callback=_read_key_log,
    help="In a capture: decrypt TLS by this key log, which a client or broker wrote (SSLKEYLOGFILE).",
)  # fmt: skip
where_option = click.option(
    "-w", "--where", "where", metavar="EXPR", callback=_parse_where,
    help='Only exchanges for which this is true: api == Produce and ms > 100, topic ~ "order*", error != NONE, '
    "request.acks == 0. See docs/howto/debug.md.",
)  # fmt: skip
redaction_options = [
    click.option("--show-secrets", is_flag=True, help="Show passwords, SCRAM proofs and tokens instead of asterisks."),
    click.option(
        "--redact", "redacts", multiple=True, type=click.Choice(["payloads"]),
        help="payloads: keys, values and headers of records as asterisks, too.",
    ),
]  # fmt: skip


def redaction(show_secrets: bool, redacts: tuple[str, ...]) -> Any:
    """Return what --show-secrets and --redact ask for. Raises UsageError if they contradict each other."""
    from kwire.capture.secrets import Redaction

    if show_secrets and redacts:
        raise click.UsageError("--show-secrets and --redact contradict each other")
    return Redaction(secrets=not show_secrets, payloads="payloads" in redacts)
