"""Quotas of users, client ids and addresses: get and set (DescribeClientQuotas, AlterClientQuotas, Kafka 2.6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypedDict, Unpack

from kwire.admin.noun import Noun, check_code, checked_name, error_or_none
from kwire.cluster import ToAny
from kwire.cluster.waiting import blocking
from kwire.errors import ConfigurationError
from kwire.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from kwire.protocol.messages.describe_client_quotas import (
    DEFAULT,
    EXACT,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

# The name of all entities of a type that have no quota of their own.
DEFAULT_ENTITY: Final = None
_ANY: Final = "*"
_TYPES = {"user": "user", "client_id": "client-id", "ip": "ip"}
_KEYWORDS = {kafka: keyword for keyword, kafka in _TYPES.items()}


class QuotaValues(TypedDict, total=False):
    """The limits. None removes one.

    producer_byte_rate        bytes a second that producers may send to one broker
    consumer_byte_rate        bytes a second that consumers may fetch from one broker
    request_percentage        the share of the time of one broker's threads, in percent of one thread
    controller_mutation_rate  partitions created or deleted a second
    connection_creation_rate  connections a second from an address
    """

    producer_byte_rate: float | None
    consumer_byte_rate: float | None
    request_percentage: float | None
    controller_mutation_rate: float | None
    connection_creation_rate: float | None


@dataclass(frozen=True, slots=True)
class Quota:
    """The limits of an entity, such as `{"user": "alice", "client_id": None}`; None is the default of a type."""

    entity: Mapping[str, str | None]
    values: Mapping[str, float]


class QuotaAdmin(Noun):
    """What both faces share. An entity is named by user, client_id and ip; None is the default of that type."""

    async def _get(
        self,
        *,
        user: str | None = _ANY,
        client_id: str | None = _ANY,
        ip: str | None = _ANY,
        strict: bool = False,
        timeout: float | None = None,
    ) -> list[Quota]:
        """Return the quotas of the entities that match; "*" matches any.

        With `strict` an entity with a type that is not given here does not match.
        """
        given = _checked_entity(user, client_id, ip)
        components = [_component(name, value) for name, value in given.items() if value != _ANY]
        request = DescribeClientQuotasRequest(components=components, strict=strict)
        response: DescribeClientQuotasResponse = await self._ask(
            ToAny(), DescribeClientQuotasRequest, lambda version: request, self._deadline(timeout)
        )
        check_code(response.error_code, "DescribeClientQuotas", response.error_message)
        return [
            Quota(
                {_KEYWORDS.get(one.entity_type, one.entity_type): one.entity_name for one in entry.entity},
                {one.key: one.value for one in entry.values},
            )
            for entry in response.entries or []
        ]

    async def _set(
        self,
        *,
        user: str | None = _ANY,
        client_id: str | None = _ANY,
        ip: str | None = _ANY,
        dry_run: bool = False,
        timeout: float | None = None,
        **values: Unpack[QuotaValues],
    ) -> None:
        """Set limits of one entity, and remove those that are None. Limits that are not given stay."""
        given = _checked_entity(user, client_id, ip)
        entity = {name: value for name, value in given.items() if value != _ANY}
        if not entity:
            raise ConfigurationError(
                "no entity is named", remedy="give user, client_id, both, or ip; None: the default"
            )
        unknown = sorted(values.keys() - QuotaValues.__annotations__.keys())
        if unknown:
            raise TypeError(f"{unknown[0]!r} is no quota: give one of {', '.join(QuotaValues.__annotations__)}")
        if not values:
            raise ConfigurationError("no limit is given", remedy="give producer_byte_rate=... or another one")
        for name, value in values.items():
            if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0):
                raise ConfigurationError(f"{name} is {value!r}", remedy="give a number, or None to remove the limit")
        entities = [
            AlterClientQuotasRequest.Entry.Entity(entity_type=_TYPES[name], entity_name=value)
            for name, value in entity.items()
        ]
        ops = [
            AlterClientQuotasRequest.Entry.Op(key=name, value=float(value or 0), remove=value is None)
            for name, value in values.items()
            if isinstance(value, (int, float)) or value is None
        ]
        named = " and ".join(f"{name} {value or 'default'}" for name, value in entity.items())
        entry = AlterClientQuotasRequest.Entry(entity=entities, ops=ops)

        def parse(response: AlterClientQuotasResponse) -> None:
            (result,) = response.entries
            error = error_or_none(result.error_code, "AlterClientQuotas", result.error_message, resource=named)
            if error is not None:
                raise error

        await self._controlled(
            AlterClientQuotasRequest,
            lambda version: AlterClientQuotasRequest(entries=[entry], validate_only=dry_run),
            parse,
            self._deadline(timeout),
        )


class Quotas(QuotaAdmin):
    """`Admin.quotas`, for threads."""

    get = blocking(QuotaAdmin._get)
    set = blocking(QuotaAdmin._set)


def _checked_entity(user: str | None, client_id: str | None, ip: str | None) -> dict[str, str | None]:
    given = {"user": user, "client_id": client_id, "ip": ip}
    for what, name in given.items():
        if name is not None:
            checked_name(what, name)
    return given


def _component(name: str, value: str | None) -> DescribeClientQuotasRequest.Component:
    match = DEFAULT if value is None else EXACT
    return DescribeClientQuotasRequest.Component(entity_type=_TYPES[name], match_type=match, match=value)
