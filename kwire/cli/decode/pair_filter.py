"""The options of `kwire decode` that choose what is shown of a capture."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kwire.cli.arguments import find_api, find_version, key_log_option, where_option
from kwire.cli.finite_range import FiniteRange
from kwire.protocol import ApiKey

if TYPE_CHECKING:
    from kwire.capture import CapturedConnection, Exchange, KeyLog, RequestPair
    from kwire.capture.filters import Filter


@dataclass(frozen=True, slots=True)
class PairFilter:
    """Which pairs are printed. Pairs of unknown APIs pass only without --api."""

    apis: frozenset[ApiKey] = frozenset()
    version: int | None = None
    connections: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    errors_only: bool = False
    all_errors: bool = False  # also those of normal operation
    slower_than_ms: float | None = None
    where: Filter | None = None
    key_log: KeyLog | None = None

    def for_api(self, api_text: str | None, version_text: str | None) -> PairFilter:
        """Return the filter for one API, or several separated by commas. Raises UsageError."""
        apis = [find_api(text.strip()) for text in api_text.split(",")] if api_text is not None else []
        if version_text is not None and len(apis) != 1:
            raise click.UsageError("--version needs --api with one API")
        version = find_version(version_text, apis[0]) if version_text is not None else None
        return replace(self, apis=frozenset(api.key for api in apis), version=version)

    def accepts_decoded(self, one: Exchange) -> bool:
        """Return whether an exchange passes, as far as that needs its messages."""
        if (self.errors_only or self.all_errors) and not one.problems:
            from kwire.capture.summary import is_routine  # of captures, which most runs do not read

            is_trouble = bool(one.errors) and (self.all_errors or not is_routine(one))
            if not is_trouble:
                return False
        return self.where is None or self.where.accepts(one)

    def accepts(self, pair: RequestPair) -> bool:
        """Return whether a pair passes, as far as that is known before decoding."""
        frame = pair.frame
        if self.apis and (frame.api is None or frame.api.key not in self.apis):
            return False
        if self.version is not None and frame.version != self.version:
            return False
        if self.slower_than_ms is not None and (pair.latency_ms is None or pair.latency_ms <= self.slower_than_ms):
            return False
        return not self.connections or any(is_of(pair.connection, text) for text in self.connections)


Command = TypeVar("Command", bound=Callable[..., Any])
_OPTIONS = [
    click.option(
        "--connection", "connections", multiple=True, metavar="N|HOST:PORT|:PORT",
        help="In a capture: show only this connection, or those of this side.",
    ),
    click.option(
        "--port", "ports", multiple=True, type=click.IntRange(1, 65535), metavar="PORT",
        help="In a capture: read only brokers on this port. Default: detect brokers by their requests.",
    ),
    click.option(
        "--errors-only", is_flag=True,
        help="In a capture: show only undecodable frames and error responses, but for errors of normal operation.",
    ),
    click.option(
        "--all-errors", is_flag=True, help="As --errors-only, with errors of normal operation, such as rebalances."
    ),
    click.option(
        "--slower-than", "slower_than_ms", type=FiniteRange(min=0), metavar="MS",
        help="In a capture: show only requests whose response took longer, in milliseconds.",
    ),
    where_option,
    key_log_option,
]  # fmt: skip


def filter_options(command: Command) -> Command:
    """Add --connection, --port, --errors-only and --slower-than; the command gets `filters=PairFilter`."""

    @functools.wraps(command)
    def wrapped(
        *args: Any, connections: tuple[str, ...], ports: tuple[int, ...], errors_only: bool, all_errors: bool,
        slower_than_ms: float | None, where: Filter | None, key_log: KeyLog | None, **kwargs: Any,
    ) -> Any:  # fmt: skip
        filters = PairFilter(
            connections=connections,
            ports=ports,
            errors_only=errors_only,
            all_errors=all_errors,
            slower_than_ms=slower_than_ms,
            where=where,
            key_log=key_log,
        )
        return command(*args, filters=filters, **kwargs)

    decorated: Any = wrapped
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


def is_of(connection: CapturedConnection, text: str) -> bool:
    """Return whether the text names the connection: its number, HOST:PORT of one side, HOST or :PORT."""
    if text == str(connection.number):
        return True
    for end in (connection.client, connection.broker):
        address, _, port = end.rpartition(":")
        if text in (end, address, address.strip("[]"), f":{port}"):
            return True
    return False
