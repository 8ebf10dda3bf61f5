"""Assignors: how classic groups divide partitions among members, on the client of the group's leader.

    assignor    `Assignor`, the interface for your own; subscriptions, assignments; the leader's checked call
    protocol    subscriptions and assignments as bytes                                    (ConsumerProtocol v0 to v3)
    range       ranges per topic, co-partitioned, aware of racks                          (KIP-881)
    roundrobin  one partition after the other
    sticky      sticky and cooperative-sticky: what is whose, and what may move now   (KIP-54, KIP-341, KIP-429)
    constrained the sticky assignment when all members subscribe to the same topics
    general     the sticky assignment when they do not
    user_data   the user data of the sticky assignors

`make_assignors` makes them from names, classes or objects, as a consumer's options have them.
"""

from __future__ import annotations

from collections.abc import Sequence

from kwire.arguments import wrong_type
from kwire.consumer.assignors.assignor import (
    Assignor,
    MemberAssignment,
    MemberSubscription,
    RebalanceProtocol,
    TopicRacks,
    group_assignment,
    subscribed_topics,
    topic_racks,
)
from kwire.consumer.assignors.protocol import (
    assignment_bytes,
    parse_assignment,
    parse_subscription,
    subscription_bytes,
)
from kwire.consumer.assignors.range import RangeAssignor
from kwire.consumer.assignors.roundrobin import RoundRobinAssignor
from kwire.consumer.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from kwire.errors import ConfigurationError
from kwire.option_checks import near_names

__all__ = [
    "ASSIGNORS",
    "Assignor",
    "AssignorChoice",
    "CooperativeStickyAssignor",
    "MemberAssignment",
    "MemberSubscription",
    "RangeAssignor",
    "RebalanceProtocol",
    "RoundRobinAssignor",
    "StickyAssignor",
    "TopicRacks",
    "assignment_bytes",
    "common_protocol",
    "group_assignment",
    "make_assignor",
    "make_assignors",
    "parse_assignment",
    "parse_subscription",
    "subscribed_topics",
    "subscription_bytes",
    "topic_racks",
]

AssignorChoice = str | type[Assignor] | Assignor

# By name, as in Kafka.
ASSIGNORS: dict[str, type[Assignor]] = {
    cls.name: cls for cls in (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
}


def make_assignor(choice: AssignorChoice) -> Assignor:
    """Return an assignor of its own for one consumer: by name, by class, or the object given.

    Raises ConfigurationError for an unknown name, which names the near miss, and TypeError for another type.
    """
    if isinstance(choice, str):
        if choice in ASSIGNORS:
            return ASSIGNORS[choice]()
        raise _unknown(choice)
    if isinstance(choice, type) and issubclass(choice, Assignor):
        choice = choice()
    if not isinstance(choice, Assignor):
        raise wrong_type(
            "assignor", choice, f"a name ({', '.join(ASSIGNORS)}), or a subclass of kwire.consumer.Assignor"
        )
    if not isinstance(getattr(choice, "name", None), str) or not choice.name:
        raise ConfigurationError(
            f"{type(choice).__name__} has no name", remedy="set the class attribute `name`; all members must use it"
        )
    return choice


def make_assignors(choices: AssignorChoice | Sequence[AssignorChoice]) -> list[Assignor]:
    """Return the assignors of one consumer, in its order of preference.

    Raises as `make_assignor`, and ConfigurationError for none, two of one name, or no rebalance protocol in common.
    """
    if isinstance(choices, (str, type, Assignor)):
        choices = [choices]
    elif not isinstance(choices, (list, tuple)):
        raise wrong_type("assignors", choices, 'a list such as ["range", "cooperative-sticky"]')
    made = [make_assignor(choice) for choice in choices]
    if not made:
        raise ConfigurationError("there is no assignor", remedy=f"name at least one of {', '.join(ASSIGNORS)}")
    names = [assignor.name for assignor in made]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"the assignor {name} is listed twice", remedy="list each once")
    common_protocol(made)
    return made


def common_protocol(assignors: Sequence[Assignor]) -> RebalanceProtocol:
    """Return the newest rebalance protocol that all of a consumer's assignors have. Raises ConfigurationError."""
    common = frozenset.intersection(*(frozenset(assignor.protocols) for assignor in assignors))
    if not common:
        listed = ", ".join(f"{assignor.name}: {_protocol_names(assignor)}" for assignor in assignors)
        raise ConfigurationError(
            f"the assignors have no rebalance protocol in common ({listed})",
            remedy="use those of one protocol; cooperative-sticky has both",
        )
    return max(common)


def _protocol_names(assignor: Assignor) -> str:
    return " and ".join(RebalanceProtocol(protocol).name for protocol in sorted(assignor.protocols)) or "none"


# Kafka's assignors that run in the broker.
_ELSEWHERE = {
    "uniform": 'uniform is an assignor of the broker: with group_protocol="consumer", set group_remote_assignor',
    "simple": "simple is the broker's assignor of share groups, and the only one",
}


def _unknown(name: str) -> ConfigurationError:
    """Return the error for an unknown name. Java's class names and other spellings count as near."""
    plain = name.rpartition(".")[2].removesuffix("Assignor").replace("_", "").replace("-", "").replace(" ", "").lower()
    near = near_names(plain, [known.replace("-", "") for known in ASSIGNORS])
    hint = next((f"did you mean {known!r}? " for known in ASSIGNORS if known.replace("-", "") in near), "")
    return ConfigurationError(
        f"there is no assignor {name!r}",
        remedy=_ELSEWHERE.get(plain, f"{hint}kwire has {', '.join(ASSIGNORS)}, or give a subclass of Assignor"),
    )
