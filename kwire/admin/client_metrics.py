"""Subscriptions to the metrics of clients (KIP-714, Kafka 3.7), which are configs of the type "client_metrics"."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kwire.admin.configs import ConfigAdmin
from kwire.admin.noun import checked_mapping, checked_name, checked_names
from kwire.cluster.waiting import blocking
from kwire.errors import ConfigurationError

_METRICS, _INTERVAL, _MATCH = "metrics", "interval.ms", "match"


@dataclass(frozen=True, slots=True)
class MetricsSubscription:
    """What clients are to push: metrics by the beginning of their names, how often, and which clients.

    match  `{"client_instance_id" or "client_id" or "client_software_name" ...: regular expression}`; all must match
    """

    name: str
    metrics: tuple[str, ...]
    interval_ms: int
    match: Mapping[str, str]


class ClientMetricsAdmin(ConfigAdmin):
    """What both faces share."""

    async def _subscriptions(self, *, timeout: float | None = None) -> list[str]:
        """Return the names of the subscriptions."""
        return [one.name for one in await self._resources(["client_metrics"], timeout=timeout)]

    async def _subscription(self, name: str, *, timeout: float | None = None) -> MetricsSubscription:
        """Return a subscription. One that was never set has no metrics."""
        configs = await self._get(client_metrics=name, timeout=timeout)
        texts = {key: entry.value or "" for key, entry in configs.items()}
        match = dict(one.split("=", 1) for one in texts.get(_MATCH, "").split(",") if "=" in one)
        metrics = tuple(one for one in texts.get(_METRICS, "").split(",") if one)
        return MetricsSubscription(name, metrics, int(texts.get(_INTERVAL) or 0), match)

    async def _subscribe(
        self,
        name: str,
        metrics: Iterable[str],
        *,
        interval_ms: int | None = None,
        match: Mapping[str, str] | None = None,
        dry_run: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Have clients push metrics whose names begin with one of `metrics`; "*" means all.

        match  which clients: `{"client_software_name": "kwire", "client_id": "etl-.*"}`
        """
        configs: dict[str, str | int | list[str]] = {_METRICS: checked_names("metrics", metrics)}
        if interval_ms is not None:
            if isinstance(interval_ms, bool) or not isinstance(interval_ms, int) or interval_ms < 1:
                raise ConfigurationError(f"interval_ms is {interval_ms!r:.60}", remedy="give milliseconds, 1 or more")
            configs[_INTERVAL] = interval_ms
        if match is not None:
            for key, pattern in checked_mapping("match", match, '{"client_id": "etl-.*"}').items():
                try:
                    re.compile(checked_name(f"match[{key!r}]", pattern))
                except re.error as error:
                    raise ConfigurationError(
                        f"match[{key!r}] is {pattern!r}: {error}", remedy="give a regular expression"
                    ) from error
            configs[_MATCH] = [f"{key}={pattern}" for key, pattern in match.items()]
        await self._set(configs, client_metrics=name, dry_run=dry_run, timeout=timeout)

    async def _unsubscribe(self, name: str, *, dry_run: bool = False, timeout: float | None = None) -> None:
        """Remove a subscription."""
        await self._reset([_METRICS, _INTERVAL, _MATCH], client_metrics=name, dry_run=dry_run, timeout=timeout)


class ClientMetrics(ClientMetricsAdmin):
    """`Admin.client_metrics`, for threads."""

    list = blocking(ClientMetricsAdmin._subscriptions)
    get = blocking(ClientMetricsAdmin._subscription)
    set = blocking(ClientMetricsAdmin._subscribe)
    delete = blocking(ClientMetricsAdmin._unsubscribe)
