"""Configurations of topics, brokers, groups and client metrics: read, set, append to, subtract from, reset.

Changes go by IncrementalAlterConfigs (Kafka 2.3 and later): what a call does not name stays. The older API resets all
that it does not name, and is not offered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypedDict, Unpack

from kwire.admin.noun import (
    Noun,
    check_code,
    checked_items,
    checked_mapping,
    checked_name,
    checked_names,
    error_or_none,
    one_of,
    raised,
)
from kwire.admin.results import Results
from kwire.cluster import Route, ToAny, ToController, ToNode
from kwire.cluster.waiting import blocking
from kwire.errors import BrokerError, ConfigurationError, ErrorCode, UnsupportedVersionError
from kwire.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from kwire.protocol.messages.incremental_alter_configs import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kwire.protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse

ConfigValue = str | int | float | bool | Iterable[str]

RESOURCE_TYPES: Mapping[str, int] = {"topic": 2, "broker": 4, "broker_logger": 8, "client_metrics": 16, "group": 32}
_RESOURCE_NAMES = {number: name for name, number in RESOURCE_TYPES.items()}
_OF_ONE_BROKER = frozenset({"broker", "broker_logger"})
CLUSTER_DEFAULT = ""  # the name of the resource "broker" that stands for all brokers
_TYPES_SINCE = 1  # ListConfigResources
_DOCUMENTATION_SINCE = 3  # DescribeConfigs

_SOURCES = {
    1: "topic", 2: "broker", 3: "cluster", 4: "file", 5: "default", 6: "broker_logger", 7: "client_metrics",
    8: "group",
}  # fmt: skip
_VALUE_TYPES = {
    1: "boolean", 2: "string", 3: "int", 4: "short", 5: "long", 6: "double", 7: "list", 8: "class", 9: "password",
}  # fmt: skip


class ConfigSynonym(NamedTuple):
    """A value that another config, or another place, gives to a config."""

    name: str
    value: str | None
    source: str


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """The value of one config.

    value          as Kafka prints it; None where it is sensitive
    source         where it comes from: "topic", "broker", "cluster" (the default of all brokers), "file", "default",
                   "group", "client_metrics", "broker_logger"; "" from brokers that do not say
    type           "boolean", "string", "int", "short", "long", "double", "list", "class", "password"; "" before 2.6
    synonyms       the values that it hides, the one in force first
    documentation  where it was asked for, from Kafka 2.6
    """

    name: str
    value: str | None
    source: str
    is_read_only: bool = False
    is_sensitive: bool = False
    type: str = ""
    synonyms: tuple[ConfigSynonym, ...] = ()
    documentation: str = ""

    @property
    def is_default(self) -> bool:
        return self.source == "default"


class ConfigResource(NamedTuple):
    """What a configuration belongs to: its type, such as "topic", and its name."""

    type: str
    name: str


class ResourceName(TypedDict, total=False):
    """What a configuration belongs to, as keyword arguments: exactly one of them.

    broker         the id of a broker, or "" for the default of all brokers
    broker_logger  the id of a broker, whose log levels are meant
    """

    topic: str
    broker: int | Literal[""]
    broker_logger: int
    group: str
    client_metrics: str


class ConfigAdmin(Noun):
    """What both faces share. A resource is named by one keyword: see `ResourceName`."""

    async def _get(
        self,
        names: Iterable[str] | None = None,
        *,
        documentation: bool = False,
        timeout: float | None = None,
        **resource: Unpack[ResourceName],
    ) -> dict[str, ConfigEntry]:
        """Return the configs of one resource by name: all, or those of `names`."""
        wanted = _resource(resource)
        keys = None if names is None else checked_names("names", names)

        def build(version: int) -> DescribeConfigsRequest:
            described = DescribeConfigsRequest.Resource(
                resource_type=RESOURCE_TYPES[wanted.type], resource_name=wanted.name, configuration_keys=keys
            )
            has_documentation = documentation and version >= _DOCUMENTATION_SINCE
            return DescribeConfigsRequest(
                resources=[described], include_synonyms=version >= 1, include_documentation=has_documentation
            )

        deadline = self._deadline(timeout)
        response: DescribeConfigsResponse = await self._ask(
            _route(wanted, ToAny()), DescribeConfigsRequest, build, deadline
        )
        (result,) = response.results
        try:
            check_code(result.error_code, "DescribeConfigs", result.error_message, **_where(wanted))
        except BrokerError as error:
            raise await self._explained(wanted, error, deadline) from None
        return {one.name: _entry(one) for one in sorted(result.configs, key=lambda one: one.name)}

    async def _set(
        self,
        configs: Mapping[str, ConfigValue],
        *,
        dry_run: bool = False,
        timeout: float | None = None,
        **resource: Unpack[ResourceName],
    ) -> None:
        """Set the values of these configs; the others stay. With `dry_run` the cluster only checks them."""
        await self._alter(_resource(resource), _changes(SET, configs), dry_run, timeout)

    async def _append(
        self,
        configs: Mapping[str, ConfigValue],
        *,
        dry_run: bool = False,
        timeout: float | None = None,
        **resource: Unpack[ResourceName],
    ) -> None:
        """Add items to configs whose value is a list."""
        await self._alter(_resource(resource), _changes(APPEND, configs), dry_run, timeout)

    async def _subtract(
        self,
        configs: Mapping[str, ConfigValue],
        *,
        dry_run: bool = False,
        timeout: float | None = None,
        **resource: Unpack[ResourceName],
    ) -> None:
        """Take items from configs whose value is a list."""
        await self._alter(_resource(resource), _changes(SUBTRACT, configs), dry_run, timeout)

    async def _reset(
        self,
        names: Iterable[str],
        *,
        dry_run: bool = False,
        timeout: float | None = None,
        **resource: Unpack[ResourceName],
    ) -> None:
        """Remove the values of these configs, so that their defaults hold."""
        changes = [_change(name, DELETE, None) for name in checked_names("names", names)]
        await self._alter(_resource(resource), changes, dry_run, timeout)

    async def _set_many(
        self,
        configs: Mapping[tuple[str, str], Mapping[str, ConfigValue]],
        *,
        dry_run: bool = False,
        timeout: float | None = None,
    ) -> Results[tuple[str, str], None]:
        """Set configs of several resources: `{("topic", "a"): {"retention.ms": 60_000}, ("group", "g"): {...}}`."""
        deadline = self._deadline(timeout)
        changes = {}
        for resource in checked_mapping("configs", configs, '{("topic", "a"): {"retention.ms": 60_000}}'):
            if not isinstance(resource, tuple) or len(resource) != 2:
                raise ConfigurationError(f"configs has {resource!r:.60}", remedy='give (type, name): ("topic", "a")')
            kind, name = resource
            one_of("the type of a resource", kind, RESOURCE_TYPES)
            checked_name("the name of a resource", name)
            changes[ConfigResource(kind, name)] = _changes(SET, configs[kind, name])
        results = await self._routed(
            {resource: _route(resource, ToController()) for resource in changes},
            IncrementalAlterConfigsRequest,
            lambda resource, version: _alter_request(resource, changes[resource], dry_run),
            _altered,
            deadline,
        )
        return Results(
            {
                (resource.type, resource.name): await self._explained(resource, result, deadline)
                for resource, result in results.items()
            }
        )

    async def _resources(self, types: Iterable[str] = (), *, timeout: float | None = None) -> list[ConfigResource]:
        """Return the resources that have configs of their own, of these types or of all (Kafka 4.1 and later).

        Kafka 3.7 to 4.0 can return those of the type "client_metrics" only.
        """
        wanted = checked_names("types", types)
        numbers = [one_of("a type", name, RESOURCE_TYPES) for name in wanted]

        def build(version: int) -> ListConfigResourcesRequest:
            if version >= _TYPES_SINCE:
                return ListConfigResourcesRequest(resource_types=numbers)
            if wanted != ["client_metrics"]:
                raise UnsupportedVersionError(
                    "the brokers can only list resources of the type client_metrics", remedy="this needs Kafka 4.1"
                )
            return ListConfigResourcesRequest()

        response: ListConfigResourcesResponse = await self._ask(
            ToAny(), ListConfigResourcesRequest, build, self._deadline(timeout)
        )
        check_code(response.error_code, "ListConfigResources")
        found = [
            ConfigResource(_RESOURCE_NAMES.get(one.resource_type, str(one.resource_type)), one.resource_name)
            for one in response.config_resources
        ]
        return sorted(found)

    async def _alter(
        self,
        resource: ConfigResource,
        changes: list[IncrementalAlterConfigsRequest.Resource.Config],
        dry_run: bool,
        timeout: float | None,
    ) -> None:
        deadline = self._deadline(timeout)
        if not changes:
            return
        results = await self._routed(
            {resource: _route(resource, ToController())},
            IncrementalAlterConfigsRequest,
            lambda one, version: _alter_request(one, changes, dry_run),
            _altered,
            deadline,
        )
        raised({resource: await self._explained(resource, results[resource], deadline)}, resource)

    async def _explained(self, resource: ConfigResource, result: Any, deadline: float) -> Any:
        """Return a result, in whose place there is an UnsupportedVersionError where the brokers lack the type.

        No version of these APIs tells: brokers before 3.7 say INVALID_REQUEST for configs of client metrics, and lack
        the API that lists them.
        """
        if resource.type != "client_metrics" or getattr(result, "code", 0) != ErrorCode.INVALID_REQUEST:
            return result
        try:
            await self._ask(ToAny(), ListConfigResourcesRequest, lambda version: ListConfigResourcesRequest(), deadline)
        except UnsupportedVersionError:
            return UnsupportedVersionError(
                "the brokers have no subscriptions to metrics of clients",
                remedy="this needs Kafka 3.7",
                **_where(resource),
            )
        return result


class Configs(ConfigAdmin):
    """`Admin.configs`, for threads."""

    get = blocking(ConfigAdmin._get)
    append = blocking(ConfigAdmin._append)
    subtract = blocking(ConfigAdmin._subtract)
    reset = blocking(ConfigAdmin._reset)
    set_many = blocking(ConfigAdmin._set_many)
    resources = blocking(ConfigAdmin._resources)
    set = blocking(ConfigAdmin._set)


# -- arguments


def _resource(given: ResourceName) -> ConfigResource:
    unknown = sorted(given.keys() - RESOURCE_TYPES.keys())
    if unknown:
        raise TypeError(f"{unknown[0]!r} is no keyword argument: give one of {', '.join(RESOURCE_TYPES)}")
    if len(given) != 1:
        raise ConfigurationError(
            f"{' and '.join(given)} are named" if given else "no resource is named",
            remedy='give one of topic="...", broker=1, broker_logger=1, group="...", client_metrics="..."',
        )
    ((kind, name),) = given.items()
    is_default = kind == "broker" and name == CLUSTER_DEFAULT
    if kind in _OF_ONE_BROKER and not is_default:
        if isinstance(name, bool) or not isinstance(name, int):
            raise ConfigurationError(f"{kind} is {name!r}", remedy="give the id of a broker, a number")
    elif not isinstance(name, str) or not (name or is_default):
        raise ConfigurationError(f"{kind} is {name!r}", remedy="give a str that is not empty")
    return ConfigResource(kind, str(name))


def _route(resource: ConfigResource, otherwise: Route) -> Route:
    if resource.type in _OF_ONE_BROKER and resource.name != CLUSTER_DEFAULT:
        return ToNode(int(resource.name))
    return otherwise


def _where(resource: ConfigResource) -> dict[str, object]:
    if resource.type in ("topic", "group"):
        return {resource.type: resource.name}
    return {"resource": f"{resource.type} {resource.name or 'default'}"}


def _changes(
    operation: int, configs: Mapping[str, ConfigValue]
) -> list[IncrementalAlterConfigsRequest.Resource.Config]:
    if not isinstance(configs, Mapping):
        raise ConfigurationError(f"configs is {configs!r:.60}", remedy='give a dict such as {"retention.ms": 60_000}')
    checked_names("configs", configs)
    for name, value in configs.items():
        if value is None:
            raise ConfigurationError(f"the value of {name} is None", remedy="to have the default, use reset([...])")
    return [_change(name, operation, value) for name, value in configs.items()]


def _text(value: ConfigValue) -> str:
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
    return ",".join(checked_items("the value of a config", value, str))


def _change(name: str, operation: int, value: ConfigValue | None) -> IncrementalAlterConfigsRequest.Resource.Config:
    text = None if value is None else _text(value)
    return IncrementalAlterConfigsRequest.Resource.Config(name=name, config_operation=operation, value=text)


# -- requests and responses


def _alter_request(
    resource: ConfigResource, changes: list[IncrementalAlterConfigsRequest.Resource.Config], dry_run: bool
) -> IncrementalAlterConfigsRequest:
    wanted = IncrementalAlterConfigsRequest.Resource(
        resource_type=RESOURCE_TYPES[resource.type], resource_name=resource.name, configs=changes
    )
    return IncrementalAlterConfigsRequest(resources=[wanted], validate_only=dry_run)


def _altered(resource: ConfigResource, response: IncrementalAlterConfigsResponse, in_doubt: bool) -> None:
    (result,) = response.responses
    error = error_or_none(result.error_code, "IncrementalAlterConfigs", result.error_message, **_where(resource))
    if error is not None:
        raise error


def _entry(config: Any) -> ConfigEntry:
    return ConfigEntry(
        name=config.name,
        value=config.value,
        source=_SOURCES.get(config.config_source, ""),
        is_read_only=config.read_only,
        is_sensitive=config.is_sensitive,
        type=_VALUE_TYPES.get(config.config_type, ""),
        synonyms=tuple(ConfigSynonym(one.name, one.value, _SOURCES.get(one.source, "")) for one in config.synonyms),
        documentation=config.documentation or "",
    )
