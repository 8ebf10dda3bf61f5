"""The options of an admin client, beside those of every client."""

from __future__ import annotations

from dataclasses import dataclass, fields

from kwire.cluster.config import ClientKwargs
from kwire.option_checks import Flag, check_values, option


class AdminKwargs(ClientKwargs, total=False):
    """The keywords of an admin client: those of `AdminOptions` and of `ClientConfig`."""

    telemetry: bool


@dataclass(frozen=True)
class AdminOptions:
    """What an admin client tells the brokers about itself."""

    telemetry: bool = option(
        False,
        Flag(),
        "push metrics to brokers that subscribe to those of this client (KIP-714); off as in Java's Admin",
    )

    def __post_init__(self) -> None:
        check_values(self)

    @classmethod
    def option_names(cls) -> frozenset[str]:
        return frozenset(field.name for field in fields(cls))
