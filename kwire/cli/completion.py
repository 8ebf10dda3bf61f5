"""What the shell offers for a half-typed argument: topics, APIs, names of errors.

Owns the asking: topics come from the brokers that -b or KWIRE_BOOTSTRAP name, with a second to answer. Refuses to fail,
to print or to ask for a password: who presses the tab key gets names or nothing.
"""

from __future__ import annotations

from contextlib import closing, suppress
from typing import Any

import click

_TIMEOUT_SECONDS = 1.0


def complete_topic(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    if ":" in incomplete:  # a partition is being typed
        return []
    with suppress(Exception):
        return [name for name in _topics(ctx.params) if name.startswith(incomplete)]
    return []


def _topics(given: dict[str, Any]) -> list[str]:
    """The topics of the cluster that the options on the line, or the environment, name."""
    from kwire.cli.connection import Connection, connection_tls, named_values
    from kwire.cli.metadata import ask_metadata
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
    connection = Connection(bootstrap, _TIMEOUT_SECONDS, tls, sasl, named_values(given.get("extra") or ()))
    with closing(LoopThread(connection.config())) as runtime:
        found = ask_metadata(runtime, None, _TIMEOUT_SECONDS).topics
    return sorted(topic.name for topic in found if topic.name and not topic.is_internal)


def complete_api(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from kwire.protocol import ApiKey

    before, comma, last = incomplete.rpartition(",")  # decode --api takes several
    wanted = last.lower()
    return [f"{before}{comma}{key.api_name}" for key in ApiKey if key.api_name.lower().startswith(wanted)]


def complete_error(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from kwire.errors import ErrorCode

    wanted = incomplete.upper().replace("-", "_")
    return [code.name for code in ErrorCode if code.name.startswith(wanted)]
