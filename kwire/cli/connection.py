"""The options of every command that connects to brokers, as keyword arguments for the clients.

A password comes from the environment, a file or a prompt. It is never printed, and the repr of Sasl hides it.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kwire.cli.finite_range import SECONDS_MAX, FiniteRange
from kwire.errors import ConfigurationError

if TYPE_CHECKING:
    from kwire.cluster import ClientConfig
    from kwire.net import Tls
    from kwire.session import Sasl

Command = TypeVar("Command", bound=Callable[..., Any])
# The mechanisms with a password; the others are for --command-config.
_MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
_STEP = 0.8
_FILE = click.Path(exists=True, dir_okay=False, readable=True)


@dataclass(frozen=True, slots=True, eq=False)
class ConnectionOptions:
    """What the options say. `timeout` is seconds per response, connecting included; `extra` comes from -X."""

    bootstrap: str
    timeout: float
    tls: Tls | bool | None
    sasl: Sasl | None
    extra: Mapping[str, Any]

    @property
    def step_ms(self) -> int:
        """Milliseconds for one connection or one response: less than the timeout, so that the cause is known when it
        expires.
        """
        return max(1, round(self.timeout * 1000 * _STEP))

    def client_options(self) -> dict[str, Any]:
        """Return keyword arguments for kwire.Producer, kwire.Consumer and ClientConfig, `bootstrap` among them."""
        return {
            "bootstrap": self.bootstrap,
            "tls": self.tls,
            "sasl": self.sasl,
            "request_timeout_ms": self.step_ms,
            "connect_timeout_ms": self.step_ms,
            **self.extra,
        }

    def config(self) -> ClientConfig:
        from kwire.cluster import client_config

        options = self.client_options()
        return client_config(options.pop("bootstrap"), options, client="this command")


# Outermost last, so that --help lists them in this order.
_OPTIONS = [
    click.option(
        "--profile", metavar="NAME", envvar="KWIRE_PROFILE", show_envvar=True,
        help="Connection options under this name in ~/.config/kwire/config.toml.",
    ),
    click.option(
        "-b", "--bootstrap", metavar="HOST:PORT,...", envvar="KWIRE_BOOTSTRAP", show_envvar=True,
        help="Brokers to connect to first; one reachable broker is enough.",
    ),
    click.option("--timeout", type=FiniteRange(min=0, min_open=True, max=SECONDS_MAX), default=10.0, show_default=True,
                 metavar="SECONDS", help="Time for each response, connecting included."),
    click.option("--tls", is_flag=True, help="Use TLS; --cafile, --cert and --insecure imply it. Default: plaintext."),
    click.option("--cafile", type=_FILE, help="Certificate authorities to trust, PEM. Default: the system's."),
    click.option("--cert", type=_FILE, help="Certificate chain of this client, PEM."),
    click.option("--key", type=_FILE, help="Private key of --cert, PEM. Password: KWIRE_KEY_PASSWORD, or a prompt."),
    click.option("--insecure", is_flag=True, help="Use TLS without verifying the broker's certificate."),
    click.option("--sasl-mechanism", type=click.Choice(_MECHANISMS, case_sensitive=False),
                 help="Default with --username: PLAIN with TLS, SCRAM-SHA-512 without."),
    click.option("--username", envvar="KWIRE_USERNAME", show_envvar=True, help="SASL user. Default: no SASL."),
    click.option("--password", envvar="KWIRE_PASSWORD", show_envvar=True,
                 help="SASL password; default: a prompt. `ps` shows this option to all users: prefer the variable."),
    click.option("--password-file", type=_FILE, help="Read the SASL password from the first line of this file."),
    click.option("--command-config", type=_FILE, envvar="KWIRE_COMMAND_CONFIG", show_envvar=True,
                 help="TLS and SASL by Java's names, as Kafka's tools read them: OAUTHBEARER, delegation tokens, ..."),
]  # fmt: skip
NO_ADDRESS = "no broker given: add -b HOST:PORT, or set KWIRE_BOOTSTRAP"
_EXTRA_HELP = "Any other option of the {owner}, by its Python name: -X {example}."


def connection_options(
    command: Command, owner: str = "client", example: str = "metadata_max_age_ms=60000", *, needs_address: bool = True
) -> Command:
    """Add -b and its kind; the command gets `connection=ConnectionOptions`. -X takes the options of `owner`.

    Without `needs_address` the bootstrap may be empty.
    """

    @functools.wraps(command)
    def wrapped(
        *args: Any, profile: str | None, bootstrap: str | None, timeout: float, tls: bool, cafile: str | None,
        cert: str | None, key: str | None, insecure: bool, sasl_mechanism: str | None, username: str | None,
        password: str | None, password_file: str | None, command_config: str | None, extra: tuple[str, ...],
        **kwargs: Any,
    ) -> Any:  # fmt: skip
        if profile:
            given_options: dict[str, Any] = {
                "bootstrap": bootstrap, "timeout": timeout, "tls": tls, "cafile": cafile, "cert": cert, "key": key,
                "insecure": insecure, "sasl_mechanism": sasl_mechanism, "username": username,
                "password_file": password_file, "command_config": command_config,
            }  # fmt: skip
            read = _of_profile(profile, given_options)
            bootstrap, timeout, tls, cafile, cert, key, insecure = (read[name] for name in list(read)[:7])
            sasl_mechanism, username, password_file, command_config = (read[name] for name in list(read)[7:11])
            of_profile = read["options"]
        else:
            of_profile = {}
        if not bootstrap and needs_address:
            raise click.UsageError(NO_ADDRESS)
        if password is not None and _is_typed("password"):  # never passed over; the variable may be for other commands
            if command_config:
                raise click.UsageError("--command-config says TLS and SASL: leave out --password")
            if not username:
                raise click.UsageError("--password needs --username")
            if password_file and _is_typed("password_file"):
                raise click.UsageError("--password and --password-file are given: leave one out")
            password_file = None  # of a profile
        given = {"tls": tls, "cafile": cafile, "cert": cert, "key": key, "insecure": insecure}
        chosen = connection_tls(given)
        if command_config:
            if chosen is not None or username or sasl_mechanism or password_file:
                raise click.UsageError("--command-config says TLS and SASL: leave out their options")
            chosen, sasl = read_command_config(command_config)
        else:
            sasl = _sasl(sasl_mechanism, username, password, password_file, chosen is not None)
        connection = ConnectionOptions(
            bootstrap=bootstrap or "",
            timeout=timeout,
            tls=chosen,
            sasl=sasl,
            extra={**of_profile, **named_values(extra)},
        )
        return command(*args, connection=connection, **kwargs)

    decorated: Any = wrapped
    extra_option = click.option(
        "-X", "--option", "extra", multiple=True, metavar="NAME=VALUE",
        help=_EXTRA_HELP.format(owner=owner, example=example),
    )  # fmt: skip
    for option in reversed([*_OPTIONS, extra_option]):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


def _of_profile(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return the options, those that were not given taken from a profile, and `options`, those of -X there."""
    from click.core import ParameterSource

    from kwire.cli.profiles import read_profile

    context = click.get_current_context()
    weaker = {ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP}
    if context.get_parameter_source("profile") == ParameterSource.COMMANDLINE:
        weaker.add(ParameterSource.ENVIRONMENT)
    profile = read_profile(name)
    found = {
        option: profile[option] if option in profile and context.get_parameter_source(option) in weaker else value
        for option, value in given.items()
    }
    return {**found, "options": profile.get("options", {})}


def producer_options(command: Command) -> Command:
    return connection_options(command, "producer", "linger_ms=50")


def consumer_options(command: Command) -> Command:
    return connection_options(command, "consumer", "max_wait_ms=100")


def named_values(texts: Iterable[str]) -> dict[str, Any]:
    """Parse -X options, each NAME=VALUE. A value is JSON if it parses as JSON (50, true), else a string."""
    return dict(_named(text) for text in texts)


def _named(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise click.UsageError(f"-X {text}: must be NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def connection_tls(given: Mapping[str, Any]) -> Tls | bool | None:
    """Return what the TLS options say; None if none was given."""
    names = ("cafile", "cert", "key", "insecure")
    cafile, cert, key, insecure = (given.get(name) for name in names)
    if not (given.get("tls") or insecure or cafile or cert or key):
        return None
    return _tls(cafile, cert, key, bool(insecure))


def read_command_config(path: str) -> tuple[Tls | None, Sasl | None]:
    """Return TLS and SASL of a file of Java properties; any other property is an error."""
    from pathlib import Path  # 5 ms that no other command need wait

    from kwire.cluster.security_properties import SECURITY_PROPERTIES, tls_and_sasl
    from kwire.option_checks import near_names
    from kwire.properties.file import read_properties

    properties = read_properties(Path(path))
    if unknown := sorted(properties.keys() - set(SECURITY_PROPERTIES)):
        near = near_names(unknown[0], SECURITY_PROPERTIES, max_names=3)
        raise ConfigurationError(
            f"{path}: {unknown[0]} is no option of TLS or SASL here",
            remedy=f"alternatives: {', '.join(near)}" if near else "give other options by -X",
        )
    return tls_and_sasl(properties)


def _tls(cafile: str | None, cert: str | None, key: str | None, insecure: bool) -> Tls | bool:
    from kwire.net import Tls

    if key and not cert:
        raise click.UsageError("--key needs --cert, its certificate")
    if not any((cafile, cert, insecure)):
        return True
    return Tls(
        ca_file=cafile,
        cert_file=cert,
        key_file=key,
        key_password=_key_password(key or cert),
        check_hostname=not insecure,
        verify=not insecure,
    )


def _key_password(key: str | None) -> str | None:
    if key is None:
        return None
    with open(key, "rb") as file:
        if b"ENCRYPTED" not in file.read():
            return None
    return os.environ.get("KWIRE_KEY_PASSWORD") or _ask(f"Password of {key}", "set KWIRE_KEY_PASSWORD")


def _sasl(
    mechanism: str | None, username: str | None, password: str | None, password_file: str | None, has_tls: bool
) -> Sasl | None:
    if not username:
        if mechanism or password_file:
            raise click.UsageError("SASL needs --username")
        return None
    from kwire.session import Sasl

    if password_file:
        password = _first_line(password_file)
    if password is None:
        password = _ask(f"Password of {username}", "set KWIRE_PASSWORD or give --password-file")
    # PLAIN sends the password in clear text; without TLS the user must choose it.
    return Sasl(mechanism or ("PLAIN" if has_tls else "SCRAM-SHA-512"), username, password)


def _first_line(path: str) -> str:
    try:
        with open(path, encoding="utf-8-sig") as file:  # some editors put a byte order mark in front
            line = file.readline().removesuffix("\n")
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path} is not UTF-8", remedy="write the password in UTF-8") from None
    if not line:
        raise ConfigurationError(f"the first line of {path} is empty", remedy="put the password there")
    return line


def _is_typed(option: str) -> bool:
    """Return whether an option is on the command line, not in the environment."""
    from click.core import ParameterSource

    return click.get_current_context().get_parameter_source(option) == ParameterSource.COMMANDLINE


def is_terminal() -> bool:
    return sys.stdin.isatty()


def _ask(question: str, remedy: str) -> str:
    """Prompt on the terminal without echo. A pipe is never prompted: its bytes are the data."""
    if not is_terminal():
        raise click.UsageError(f"no {question[0].lower()}{question[1:]}: {remedy}")
    text: str = click.prompt(question, hide_input=True, err=True)
    return text
