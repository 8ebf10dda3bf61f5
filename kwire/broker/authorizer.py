"""Access rules, and who may do what (Kafka's StandardAuthorizer).

A rule (ACL) allows or denies a principal from a host an operation on a resource: one name, all names with a prefix, or
`*`. A rule that denies wins. Without `Options.authorizer` everything is allowed, and the APIs of rules return
SECURITY_DISABLED, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from kwire.errors import BrokerError, ErrorCode, broker_error

WILDCARD = "*"
ANY_PRINCIPAL = "User:*"
ANONYMOUS = "User:ANONYMOUS"
CLUSTER_NAME = "kafka-cluster"


class Operation(IntEnum):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


_REFUSED = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
# A rule that allows one of these allows the operation, too. A rule that denies one does not deny it.
_IMPLIED_BY = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}
# What exists for each type of resource (Kafka's AclEntry.supportedOperations): the bits of "authorized operations".
_OPERATIONS = {
    ResourceType.TOPIC: (3, 4, 5, 6, 7, 8, 10, 11),
    ResourceType.CLUSTER: (5, 7, 8, 9, 10, 11, 12),
    ResourceType.GROUP: (3, 6, 8, 10, 11),
}


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """One rule. The numbers are those of the protocol."""

    resource_type: int
    name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int

    def check(self) -> None:
        """Raise INVALID_REQUEST for a rule that cannot be stored."""
        if self.resource_type not in _REFUSED:
            raise _invalid(f"Invalid resourceType {self.resource_type}")
        if self.resource_type == ResourceType.CLUSTER and self.name != CLUSTER_NAME:
            raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
        if not self.name:
            raise _invalid("Invalid empty resource name")
        if self.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
            raise _invalid(f"Invalid patternType {self.pattern_type}")
        if self.operation in (Operation.UNKNOWN, Operation.ANY) or self.operation not in list(Operation):
            raise _invalid(f"Invalid operation type {self.operation}")
        if self.permission not in (Permission.DENY, Permission.ALLOW):
            raise _invalid(f"Invalid permissionType {self.permission}")
        if ":" not in self.principal:
            raise _invalid(f"Could not parse principal from `{self.principal}` (no colon is present)")

    def covers(self, resource_type: int, name: str) -> bool:
        """Return whether the rule is about a resource."""
        if self.resource_type != resource_type:
            return False
        if self.pattern_type == PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD)

    def is_for(self, principal: str, host: str) -> bool:
        return self.principal in (principal, ANY_PRINCIPAL) and self.host in (host, WILDCARD)

    def dominates(self, other: Acl) -> bool:
        """Return whether this rule is about every resource that another rule of the same type is about."""
        if self.pattern_type == PatternType.PREFIXED:
            return other.name.startswith(self.name)
        return self.name == WILDCARD or (self.name == other.name and other.pattern_type == PatternType.LITERAL)


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Which rules a request means. None, ANY, and the pattern type MATCH leave a field open."""

    resource_type: int
    name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def check(self) -> None:
        """Raise INVALID_REQUEST for a number that Kafka does not know."""
        numbers = (self.resource_type, self.pattern_type, self.operation, self.permission)
        enums = (ResourceType, PatternType, Operation, Permission)
        if any(not number or number not in list(kind) for number, kind in zip(numbers, enums, strict=True)):
            raise _invalid("The AclBindingFilter must not contain UNKNOWN elements.")

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._matches_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _matches_name(self, acl: Acl) -> bool:
        if self.name is None:
            return self.pattern_type in (PatternType.ANY, PatternType.MATCH, acl.pattern_type)
        if self.pattern_type == PatternType.MATCH:
            return acl.covers(acl.resource_type, self.name)
        return self.pattern_type in (PatternType.ANY, acl.pattern_type) and self.name == acl.name


def _invalid(why: str) -> BrokerError:
    return broker_error(ErrorCode.INVALID_REQUEST, why)


class Authorizer:
    """The rules of a cluster."""

    def __init__(self, *, is_enabled: bool = False, super_users: str = "", allow_without_acl: bool = False) -> None:
        self.is_enabled = is_enabled
        self._super_users = frozenset(name.strip() for name in super_users.split(";") if name.strip())
        self._allow_without_acl = allow_without_acl
        self._acls: dict[Acl, None] = {}  # an ordered set

    def __iter__(self) -> Iterator[Acl]:
        return iter(list(self._acls))

    def check_enabled(self, message: str = "No Authorizer is configured.") -> None:
        """Raise SECURITY_DISABLED where there is no authorizer."""
        if not self.is_enabled:
            raise broker_error(ErrorCode.SECURITY_DISABLED, message)

    def add(self, acl: Acl) -> None:
        """Add a rule. Raises INVALID_REQUEST."""
        acl.check()
        self._acls[acl] = None

    def find(self, wanted: AclFilter) -> list[Acl]:
        return [acl for acl in self._acls if wanted.matches(acl)]

    def remove(self, wanted: AclFilter) -> list[Acl]:
        """Remove the rules that match. Return them."""
        found = self.find(wanted)
        for acl in found:
            del self._acls[acl]
        return found

    def allows(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        if not self.is_enabled or principal in self._super_users:
            return True
        about = [acl for acl in self._acls if acl.covers(resource_type, name)]
        mine = [acl for acl in about if acl.is_for(principal, host)]
        if any(acl.permission == Permission.DENY and acl.operation in (operation, Operation.ALL) for acl in mine):
            return False
        if any(acl.permission == Permission.ALLOW and acl.operation in _allowing(operation) for acl in mine):
            return True
        return not about and self._allow_without_acl

    def allows_any(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Return whether the operation is allowed on some resource of this type, whatever its name."""
        if self.allows(principal, host, operation, resource_type, "hardcode"):
            return True
        mine = [acl for acl in self._acls if acl.resource_type == resource_type and acl.is_for(principal, host)]
        denied = [
            acl for acl in mine if acl.permission == Permission.DENY and acl.operation in (operation, Operation.ALL)
        ]
        return any(
            not any(deny.dominates(acl) for deny in denied)
            for acl in mine
            if acl.permission == Permission.ALLOW and acl.operation in _allowing(operation)
        )


def _allowing(operation: int) -> tuple[int, ...]:
    implied = _IMPLIED_BY.get(Operation(operation), ())
    return (operation, Operation.ALL, *implied)


class Access:
    """What the client of one connection may do."""

    __slots__ = ("_authorizer", "host", "is_by_token", "principal")

    def __init__(
        self, authorizer: Authorizer, principal: str = ANONYMOUS, host: str = "", *, is_by_token: bool = False
    ) -> None:
        self._authorizer = authorizer
        self.principal = principal
        self.host = host
        self.is_by_token = is_by_token  # it logged in by a delegation token, which cannot make or change tokens

    def allows(self, operation: int, resource_type: int, name: str) -> bool:
        authorizer = self._authorizer
        return not authorizer.is_enabled or authorizer.allows(self.principal, self.host, operation, resource_type, name)

    def allows_any(self, operation: int, resource_type: int) -> bool:
        """Return whether the operation is allowed on some resource of this type, whatever its name."""
        return self._authorizer.allows_any(self.principal, self.host, operation, resource_type)

    def require(self, operation: int, resource_type: int, name: str) -> None:
        """Raise the error that Kafka has for a resource of this type, unless the operation is allowed."""
        if not self.allows(operation, resource_type, name):
            raise broker_error(_REFUSED[ResourceType(resource_type)])

    def require_topic(self, operation: int, name: str) -> None:
        self.require(operation, ResourceType.TOPIC, name)

    def require_group(self, operation: int, name: str) -> None:
        self.require(operation, ResourceType.GROUP, name)

    def require_cluster(self, operation: int) -> None:
        self.require(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def operations(self, resource_type: int, name: str) -> int:
        """Return the operations that are allowed, one bit for each of Kafka's codes."""
        return sum(
            1 << code for code in _OPERATIONS[ResourceType(resource_type)] if self.allows(code, resource_type, name)
        )

    def describes(self, topic: str) -> bool:
        """Return whether the client may know that a topic exists."""
        return self.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic)

    def cluster_operations(self) -> int:
        """Return the operations on the cluster; none without the right to describe it, as in Kafka."""
        if not self.allows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
            return 0
        return self.operations(ResourceType.CLUSTER, CLUSTER_NAME)


FULL_ACCESS = Access(Authorizer())
