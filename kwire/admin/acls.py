"""Access rules (ACLs): add, find, remove. CreateAcls, DescribeAcls, DeleteAcls (Kafka 0.11)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from kwire.admin.noun import Noun, check_code, checked_items, error_or_none, one_of
from kwire.admin.results import Results
from kwire.cluster import ToAny
from kwire.cluster.waiting import blocking
from kwire.errors import ConfigurationError, KwireError, UnsupportedVersionError
from kwire.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from kwire.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from kwire.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

_ANY = "any"
_RESOURCES: Mapping[str, int] = {
    _ANY: 1, "topic": 2, "group": 3, "cluster": 4, "transactional_id": 5, "delegation_token": 6, "user": 7,
}  # fmt: skip
_OPERATIONS: Mapping[str, int] = {
    _ANY: 1, "all": 2, "read": 3, "write": 4, "create": 5, "delete": 6, "alter": 7, "describe": 8,
    "cluster_action": 9, "describe_configs": 10, "alter_configs": 11, "idempotent_write": 12, "create_tokens": 13,
    "describe_tokens": 14, "two_phase_commit": 15,
}  # fmt: skip
_PERMISSIONS: Mapping[str, int] = {_ANY: 1, "deny": 2, "allow": 3}
_PATTERNS: Mapping[str, int] = {_ANY: 1, "match": 2, "literal": 3, "prefixed": 4}
_CLUSTER_NAME = "kafka-cluster"
_PREFIXES_SINCE = 1
_LITERAL = "literal"


def _name(names: Mapping[str, int], number: int) -> str:
    return next((name for name, one in names.items() if one == number), f"unknown {number}")


@dataclass(frozen=True, slots=True)
class Acl:
    """A rule: whether a principal may do something with a resource.

    >>> print(Acl.allow("User:alice", "read").on(topic="orders-", prefix=True))
    allow User:alice read on topic orders-* from *
    """

    permission: str
    principal: str
    operation: str
    resource: str = ""
    name: str = ""
    pattern: str = _LITERAL
    host: str = "*"

    @classmethod
    def allow(cls, principal: str, operation: str, *, host: str = "*") -> Self:
        """Return a rule that allows a principal, such as "User:alice" or "User:*", to do something."""
        return cls("allow", principal, operation, host=host)

    @classmethod
    def deny(cls, principal: str, operation: str, *, host: str = "*") -> Self:
        """Return a rule that forbids a principal to do something, whatever else is allowed."""
        return cls("deny", principal, operation, host=host)

    def on(
        self,
        *,
        topic: str | None = None,
        group: str | None = None,
        cluster: bool = False,
        transactional_id: str | None = None,
        delegation_token: str | None = None,
        user: str | None = None,
        prefix: bool = False,
    ) -> Acl:
        """Return the rule for this resource; with `prefix` for all whose name begins like that (Kafka 2.0)."""
        given = {
            "topic": topic, "group": group, "cluster": _CLUSTER_NAME if cluster else None,
            "transactional_id": transactional_id, "delegation_token": delegation_token, "user": user,
        }  # fmt: skip
        named = {kind: name for kind, name in given.items() if name is not None}
        if len(named) != 1:
            raise ConfigurationError(
                f"{' and '.join(named)} are named" if named else "no resource is named",
                remedy="give one of topic, group, cluster=True, transactional_id, delegation_token, user",
            )
        ((kind, name),) = named.items()
        return replace(self, resource=kind, name=name, pattern="prefixed" if prefix else _LITERAL)

    def __str__(self) -> str:
        name = f"{self.name}*" if self.pattern == "prefixed" else self.name
        return f"{self.permission} {self.principal} {self.operation} on {self.resource} {name} from {self.host}"

    def checked(self) -> Self:
        """Return the rule. Raises ConfigurationError for a word that Kafka does not know."""
        if not self.resource:
            raise ConfigurationError(f"the rule {self} has no resource", remedy="add .on(topic=...)")
        for what, value, names in (
            ("permission", self.permission, _PERMISSIONS),
            ("operation", self.operation, _OPERATIONS),
            ("resource", self.resource, _RESOURCES),
            ("pattern", self.pattern, _PATTERNS),
        ):
            one_of(what, value, {name: number for name, number in names.items() if name not in (_ANY, "match")})
        if not isinstance(self.principal, str) or ":" not in self.principal:
            raise ConfigurationError(f"principal is {self.principal!r}", remedy='give its type too: "User:alice"')
        return self


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Which rules are meant; what is not given matches any.

    pattern  "literal" or "prefixed": rules with this pattern; "any"; "match": the rules that apply to the resource
             `name`, whatever their pattern
    """

    resource: str = _ANY
    name: str | None = None
    pattern: str = _ANY
    principal: str | None = None
    host: str | None = None
    operation: str = _ANY
    permission: str = _ANY

    def numbers(self, version: int) -> dict[str, Any]:
        """Return the fields of a filter in a request."""
        fields: dict[str, Any] = {
            "resource_type_filter": one_of("resource", self.resource, _RESOURCES),
            "resource_name_filter": self.name,
            "principal_filter": self.principal,
            "host_filter": self.host,
            "operation": one_of("operation", self.operation, _OPERATIONS),
            "permission_type": one_of("permission", self.permission, _PERMISSIONS),
        }
        pattern = one_of("pattern", self.pattern, _PATTERNS)
        if version >= _PREFIXES_SINCE:
            fields["pattern_type_filter"] = pattern
        elif self.pattern == "prefixed":
            raise UnsupportedVersionError("the brokers have no prefixed names", remedy="this needs Kafka 2.0")
        return fields


class AclAdmin(Noun):
    """What both faces share."""

    async def _add(self, acls: Acl | Iterable[Acl], *, timeout: float | None = None) -> Results[Acl, None]:
        """Add rules. The error of a single rule is raised."""
        given = [acls] if isinstance(acls, Acl) else dict.fromkeys(checked_items("acls", acls, Acl))
        wanted = [one.checked() for one in given]
        if not wanted:
            return Results({})

        def build(version: int) -> CreateAclsRequest:
            return CreateAclsRequest(creations=[_creation(one, version) for one in wanted])

        def parse(response: CreateAclsResponse) -> dict[Acl, KwireError | None]:
            return {
                one: error_or_none(result.error_code, "CreateAcls", result.error_message, resource=f"rule {one}")
                for one, result in zip(wanted, response.results, strict=True)
            }

        results = Results(await self._controlled(CreateAclsRequest, build, parse, self._deadline(timeout)))
        if isinstance(acls, Acl):
            results[acls]
        return results

    async def _find(self, matching: AclFilter | None = None, *, timeout: float | None = None) -> list[Acl]:
        """Return the rules that match, all by default."""
        wanted = AclFilter() if matching is None else matching
        if not isinstance(wanted, AclFilter):
            raise ConfigurationError(f"matching is {matching!r:.60}", remedy="give an AclFilter, or nothing for all")
        wanted.numbers(_PREFIXES_SINCE)
        response: DescribeAclsResponse = await self._ask(
            ToAny(), DescribeAclsRequest, lambda version: DescribeAclsRequest(**wanted.numbers(version)),
            self._deadline(timeout),
        )  # fmt: skip
        check_code(response.error_code, "DescribeAcls", response.error_message)
        found = [
            _acl(one, resource.resource_type, resource.resource_name, resource.pattern_type)
            for resource in response.resources
            for one in resource.acls
        ]
        return sorted(found, key=str)

    async def _remove(
        self, matching: Acl | AclFilter | Iterable[Acl | AclFilter], *, timeout: float | None = None
    ) -> list[Acl]:
        """Remove the rules that match, and return them. A filter without any restriction is refused."""
        given: list[Acl | AclFilter] = (
            [matching]
            if isinstance(matching, (Acl, AclFilter))
            else checked_items("matching", matching, Acl, AclFilter)
        )
        filters = [_exactly(one.checked()) if isinstance(one, Acl) else one for one in given]
        for one in filters:
            if one == AclFilter():
                raise ConfigurationError(
                    "the filter matches every rule", remedy="find() returns them all; pass those to be removed"
                )
            one.numbers(_PREFIXES_SINCE)
        if not filters:
            return []

        def build(version: int) -> DeleteAclsRequest:
            return DeleteAclsRequest(filters=[DeleteAclsRequest.Filter(**one.numbers(version)) for one in filters])

        return await self._controlled(DeleteAclsRequest, build, _removed, self._deadline(timeout))


class Acls(AclAdmin):
    """`Admin.acls`, for threads."""

    add = blocking(AclAdmin._add)
    find = blocking(AclAdmin._find)
    remove = blocking(AclAdmin._remove)


def _creation(acl: Acl, version: int) -> CreateAclsRequest.Creation:
    creation = CreateAclsRequest.Creation(
        resource_type=_RESOURCES[acl.resource],
        resource_name=acl.name,
        principal=acl.principal,
        host=acl.host,
        operation=_OPERATIONS[acl.operation],
        permission_type=_PERMISSIONS[acl.permission],
    )
    if version >= _PREFIXES_SINCE:
        creation.resource_pattern_type = _PATTERNS[acl.pattern]
    elif acl.pattern != _LITERAL:
        raise UnsupportedVersionError(
            "the brokers have no prefixed names", remedy="this needs Kafka 2.0", resource=f"rule {acl}"
        )
    return creation


def _exactly(acl: Acl) -> AclFilter:
    return AclFilter(acl.resource, acl.name, acl.pattern, acl.principal, acl.host, acl.operation, acl.permission)


def _acl(rule: Any, resource_type: int, name: str, pattern: int) -> Acl:
    return Acl(
        _name(_PERMISSIONS, rule.permission_type), rule.principal, _name(_OPERATIONS, rule.operation),
        _name(_RESOURCES, resource_type), name, _name(_PATTERNS, pattern), rule.host,
    )  # fmt: skip


def _removed(response: DeleteAclsResponse) -> list[Acl]:
    found: list[Acl] = []
    for result in response.filter_results:
        check_code(result.error_code, "DeleteAcls", result.error_message)
        for one in result.matching_acls:
            acl = _acl(one, one.resource_type, one.resource_name, one.pattern_type)
            check_code(one.error_code, "DeleteAcls", one.error_message, resource=f"rule {acl}")
            found.append(acl)
    return sorted(dict.fromkeys(found), key=str)
