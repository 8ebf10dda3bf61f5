"""What the clients of Kafka's system tests share: events as JSON lines, Java's property files, the end by a signal.

kafkatest starts a client per node, reads its events from stdout, and checks them. The commands have the arguments and
print the lines of Kafka's own programs (org.apache.kafka.tools), so that its tests can run them in their place.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from kwire.net import SystemClock
from kwire.properties.file import read_properties

Command = TypeVar("Command", bound=Callable[..., Any])

# Options whose value is text even if it looks like a number.
_TEXTS = frozenset({"client_id", "group", "group_instance_id", "rack", "remote_assignor", "transactional_id"})
# What says nothing to kwire: records have bytes, and nothing is written in Java.
_JAVA_ONLY = re.compile(
    r".*\.(de)?serializer|interceptor\.classes|metric\.reporters|(socket\.)?(send|receive)\.buffer\.bytes"
)


def bootstrap_option(command: Command) -> Command:
    return click.option(
        "--bootstrap-server", "--broker-list", "bootstrap", required=True, metavar="HOST:PORT,...",
        help="Brokers to connect to first.",
    )(command)  # fmt: skip


def config_option(*names: str) -> Callable[[Command], Command]:
    """Return the option for a property file; `names` are those that Kafka's program had before."""
    return click.option(
        "--command-config", *names, "config", type=click.Path(exists=True, dir_okay=False, readable=True),
        metavar="FILE", help="A property file with options by Java's names.",
    )  # fmt: skip


class Events:
    """Writes JSON lines to stdout, each at once: a client that is killed has written everything it did."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clock = SystemClock()

    def write(self, name: str, **fields: object) -> None:
        """Write the event `name`, with the time in ms since 1970. From any thread."""
        self.write_line({"timestamp": self._clock.time_ms(), "name": name, **fields})

    def write_line(self, fields: Mapping[str, object]) -> None:
        line = json.dumps(fields, separators=(",", ":")) + "\n"
        with self._lock:
            sys.stdout.write(line)
            sys.stdout.flush()


def partition_list(partitions: Iterable[tuple[str, int]]) -> list[dict[str, object]]:
    return [{"topic": topic, "partition": partition} for topic, partition in partitions]


def text_of(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")


def client_options(path: str | None, names: Collection[str]) -> dict[str, Any]:
    """Return the options in a property file as keywords of a client that has the options `names`.

    Names may be Java's or kwire's. Those that kwire has no use for are named on stderr. Raises ConfigurationError.
    """
    if path is None:
        return {}
    from kwire.cluster.security_properties import SECURITY_PROPERTIES, tls_and_sasl

    properties = read_properties(Path(path))
    found: dict[str, Any] = {}
    for name, value in properties.items():
        if name not in SECURITY_PROPERTIES and not _JAVA_ONLY.fullmatch(name):
            found.update(_translated(name, value.strip(), names))
    tls, sasl = tls_and_sasl(properties)
    return found | ({"tls": tls} if tls else {}) | ({"sasl": sasl} if sasl else {})


def _translated(name: str, value: str, names: Collection[str]) -> dict[str, Any]:
    from kwire.option_names import FOREIGN, normalized

    plain = normalized(name)
    if plain == "enable_auto_commit" and "commit" in names:
        return {"commit": "auto" if _typed(value) is True else "manual"}
    if plain == "auto_offset_reset" and "on_no_offset" in names:
        return reset_policy(value)
    if plain == "partition_assignment_strategy" and "assignors" in names:
        return {"assignors": [assignor_name(one) for one in value.split(",")]}
    if plain == "share_acknowledgement_mode":
        plain = "acknowledgement_mode"
    keyword = FOREIGN.get(plain, plain)
    if keyword not in names:
        click.echo(f"kwire: {name} is ignored: this client has no such option", err=True)
        return {}
    return {keyword: value if keyword in _TEXTS else _typed(value)}


def _typed(value: str) -> object:
    if re.fullmatch(r"-?\d+", value):
        return int(value)
    return {"true": True, "false": False}.get(value.lower(), value)


def reset_policy(name: str) -> dict[str, Any]:
    """Return the options for Java's auto.offset.reset, which is also for offsets that the log does not have."""
    policy = "error" if name == "none" else name
    return {"on_no_offset": policy, "on_out_of_range": policy}


def assignor_name(text: str) -> str:
    """Return the name of an assignor, given by name or by its Java class.

    >>> assignor_name("org.apache.kafka.clients.consumer.CooperativeStickyAssignor")
    'cooperative-sticky'
    """
    found = re.fullmatch(r"\s*(?:[\w.]*\.)?(\w+)Assignor\s*", text)
    if found is None:
        return text.strip()
    if found[1] == "RoundRobin":
        return "roundrobin"
    return re.sub(r"(?<!^)(?=[A-Z])", "-", found[1]).lower()
