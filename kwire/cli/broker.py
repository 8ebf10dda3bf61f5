"""`kwire broker`: run a cluster of embedded brokers, for clients in any language."""

from __future__ import annotations

import json
import re
import shlex
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO

import click

from kwire.cli.connection import named_values
from kwire.cli.error_report import ExitCode, writes_file
from kwire.cli.output import Output, counted, output_options

if TYPE_CHECKING:
    from kwire.broker import Listener, RequestRecord

_FILE = click.Path(exists=True, dir_okay=False, readable=True)


@click.command()
@click.option("--brokers", type=click.IntRange(1), default=3, show_default=True, metavar="N", help="Number of brokers.")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="The address where the brokers listen, and which they advertise to clients.",
)
@click.option(
    "--listen-host", metavar="HOST", help="The address where the brokers listen, if not --host: 0.0.0.0 in a container."
)
@click.option("--advertise", metavar="HOST", help="The address that the brokers advertise, if not --host.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=9092,
    show_default=True,
    help="Port of the first broker; the others get the next ports. 0: any free ports.",
)
@click.option(
    "--listener",
    "listeners",
    multiple=True,
    metavar="NAME=PROTOCOL://HOST:PORT",
    help="A further listener: EXTERNAL=SASL_SSL://0.0.0.0:19092. Further brokers get the next ports. May be repeated.",
)
@click.option(
    "--advertised-listener",
    "advertised",
    multiple=True,
    metavar="NAME=HOST[:PORT]",
    help="What clients of a listener are told, if not its address.",
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="NAME[:PARTITIONS]",
    help="Create a topic. Default partitions: --default-partitions.",
)
@click.option("--auto-create/--no-auto-create", default=True, help="Create unknown topics on first use. Default: yes.")
@click.option(
    "--default-partitions",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="N",
    help="Partitions of a topic that is created without a number.",
)
@click.option("--cert", type=_FILE, help="Certificate chain of the brokers, PEM; turns TLS on.")
@click.option("--key", type=_FILE, help="Private key of --cert, PEM.")
@click.option("--cafile", type=_FILE, help="Require client certificates from these authorities, PEM.")
@click.option(
    "--user",
    "users",
    multiple=True,
    metavar="NAME:PASSWORD",
    help="Require SASL (PLAIN or SCRAM) and accept this user.",
)
@click.option(
    "--as-version",
    "--kafka-version",
    "kafka_version",
    metavar="RELEASE",
    help="Imitate a Kafka release, such as 4.0: its API versions and rules. Default: the newest, all versions.",
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="Keep topics, records and committed offsets in this directory, in Kafka's format. Default: in memory.",
)
@click.option("--faults", type=_FILE, metavar="FILE", help="Faults for the brokers' responses, TOML; see the docs.")
@click.option(
    "--control",
    metavar="PORT",
    type=click.IntRange(0, 65535),
    help="Serve HTTP on 127.0.0.1 for tests in other languages: faults, brokers, topics, requests. 0: any free port.",
)
@click.option(
    "--request-log",
    type=click.Path(dir_okay=False, writable=True, allow_dash=True),
    metavar="FILE",
    help="Write each request as a line of JSON: API, client, principal, latency. -: stderr.",
)
@click.option(
    "-X",
    "--option",
    "extra",
    multiple=True,
    metavar="NAME=VALUE",
    help="Any other option of kwire.broker.Options: -X min_insync_replicas=2.",
)
@output_options
def command(
    brokers: int, host: str, listen_host: str | None, advertise: str | None, port: int,
    listeners: tuple[str, ...], advertised: tuple[str, ...], topics: tuple[str, ...],
    auto_create: bool, default_partitions: int,
    cert: str | None, key: str | None, cafile: str | None, users: tuple[str, ...],
    kafka_version: str | None, data_dir: str | None, faults: str | None, control: int | None, request_log: str | None,
    extra: tuple[str, ...],
    output: Output,
) -> ExitCode:  # fmt: skip
    """Run a cluster of embedded brokers until Ctrl-C.

    Any Kafka client can use it. Records stay in memory and are lost at the end, unless --data-dir keeps them. The first
    line of stdout has the address:
    `bootstrap HOST:PORT,...` on a terminal, {"bootstrap": "HOST:PORT,...", "brokers": [...]} in a pipe.

    \b
        kwire broker --topic orders:3
        kwire broker --brokers 1 --port 0 | head -1 | jq -r .bootstrap
        kwire broker --listen-host 0.0.0.0 --advertise kafka  # in a container that others call kafka
    """
    from kwire.broker import Cluster, Options
    from kwire.broker.control import ControlServer
    from kwire.broker.fault_file import read_faults

    settings = named_values(extra)
    if unknown := sorted(settings.keys() - {field.name for field in fields(Options)}):
        raise click.UsageError(f"-X {unknown[0]}: kwire.broker.Options has no such option")
    tls = _tls(cert, key, cafile)
    options: dict[str, Any] = {
        "host": advertise or host,
        "listen_host": listen_host or host,
        "ports": [port + index if port else 0 for index in range(brokers)],
        "tls": tls,
        "sasl": dict(_user(text) for text in users) or None,
        "listeners": _listeners(listeners, advertised, brokers, tls),
        "topics": dict(_topic(text, default_partitions) for text in topics),
        "auto_create_topics": auto_create,
        "default_partitions": default_partitions,
        "version": kafka_version,
        "data_dir": data_dir,
        **settings,
    }
    injected = read_faults(Path(faults)) if faults else []
    stop = threading.Event()
    # SIGTERM is a clean end; Ctrl-C too, but with its usual exit code.
    signal.signal(signal.SIGTERM, lambda number, frame: _stop(stop, number, frame))
    with ExitStack() as stack:
        log = _request_log(request_log, stack)
        cluster = stack.enter_context(Cluster(brokers, **options))
        for fault in injected:
            cluster.inject(fault)
        if log is not None:
            cluster.on_request(log)
        said: dict[str, Any] = {"bootstrap": cluster.bootstrap, "brokers": cluster.bootstrap.split(",")}
        said.update({f"bootstrap_{name.lower()}": cluster.bootstrap_of(name) for name in options["listeners"]})
        if control is not None:
            server = stack.enter_context(ControlServer(cluster, port=control))
            said["control"] = f"http://{server.address[0]}:{server.address[1]}"
        if output.is_table:
            for name, value in said.items():
                if name != "brokers":
                    output.text(f"{name} {value}")
        else:
            output.json(said)
        output.note(f"{counted(brokers, 'broker')} until Ctrl-C. In another terminal:")
        output.note(f"  export KWIRE_BOOTSTRAP={shlex.quote(cluster.bootstrap)}")
        stop.wait()
    return ExitCode.OK


def _request_log(path: str | None, stack: ExitStack) -> Callable[[RequestRecord], None] | None:
    """Return what writes a request as a line of JSON, None without a file."""
    if path is None:
        return None
    file: TextIO = sys.stderr
    if path != "-":
        with writes_file(f"the request log {path}"):
            file = stack.enter_context(open(path, "w", encoding="utf-8"))  # noqa: SIM115 - the stack closes it

    def write(record: RequestRecord) -> None:
        file.write(json.dumps(record.as_json()) + "\n")
        file.flush()

    return write


def _stop(stop: threading.Event, number: int, frame: FrameType | None) -> None:
    stop.set()


def _tls(cert: str | None, key: str | None, cafile: str | None) -> Any:
    if cert is None:
        if key or cafile:
            raise click.UsageError("--key and --cafile need --cert")
        return None
    from kwire.net import Tls

    return Tls(ca_file=cafile, cert_file=cert, key_file=key)


_LISTENER = re.compile(r"([A-Z][A-Z0-9_]*)=(PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL)://(.+):(\d{1,5})")


def _listeners(texts: tuple[str, ...], advertised: tuple[str, ...], brokers: int, tls: Any) -> dict[str, Listener]:
    from kwire.broker import Listener

    told: dict[str, tuple[str, int | None]] = {}
    for text in advertised:
        name, _, address = text.partition("=")
        host, colon, port = address.rpartition(":")
        if not colon:
            host, port = address, ""
        if not name or not host or (colon and not port.isdigit()):
            raise click.UsageError(f"--advertised-listener {text} is not NAME=HOST or NAME=HOST:PORT")
        told[name] = host, int(port) if port else None
    found = {}
    for text in texts:
        matched = _LISTENER.fullmatch(text)
        if matched is None:
            raise click.UsageError(
                f"--listener {text} is not NAME=PROTOCOL://HOST:PORT, such as IN=PLAINTEXT://::1:9192"
            )
        name, protocol, host, number = *matched.group(1, 2), matched[3].strip("[]"), int(matched[4])
        if protocol.endswith("SSL") and tls is None:
            raise click.UsageError(f"--listener {name} with {protocol} needs --cert")
        told_host, told_port = told.pop(name, (host, None))
        found[name] = Listener(
            host=told_host, listen_host=host, ports=[number + index if number else 0 for index in range(brokers)],
            advertised_ports=[told_port + index for index in range(brokers)] if told_port else (),
            tls=tls if protocol.endswith("SSL") else None, sasl=protocol.startswith("SASL"),
        )  # fmt: skip
    if told:
        raise click.UsageError(f"--advertised-listener {next(iter(told))}: there is no such --listener")
    return found


def _user(text: str) -> tuple[str, str]:
    name, colon, password = text.partition(":")
    if not name or not colon:
        raise click.UsageError("--user must be NAME:PASSWORD")
    return name, password


def _topic(text: str, default_partitions: int) -> tuple[str, int]:
    name, colon, partitions = text.partition(":")
    if not name or (colon and not partitions.isdigit()):
        raise click.UsageError(f"--topic {text} is not NAME or NAME:PARTITIONS")
    return name, int(partitions) if colon else default_partitions
