"""Queues on share groups: which topic and which share group a queue has, and the configs that the group needs.

Each queue has a topic and a share group. The brokers know which messages are in progress: a lock of
redelivery_timeout_ms is the lease. They also count deliveries, and archive a record at the limit; a program cannot get
an archived record. So the limit of the group is higher than max_deliveries, and the consumer that gets a message once
too often makes it a dead letter. From Kafka 4.4 on the brokers write messages that reach even that limit to the dead
letter topic, if the topic's name begins with the prefix that they want.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from kwire.consumer.offsets import Ago, AtTimestamp
from kwire.errors import AuthorizationError, BrokerError, ConfigurationError, ErrorCode
from kwire.queue.backend import QueuePlace
from kwire.queue.options import SHARE_DELIVERIES_MAX, QueueOptions, Start
from kwire.queue.topics import TopicSetup, message_bytes_max

_GROUP, _BROKER = 32, 4  # types of resources
_FEATURE = "share.version"
_DEAD_LETTERS_LEVEL = 2  # of the feature: the brokers write dead letters
_DEAD_LETTERS_ENABLED = "errors.deadletterqueue.group.enable"
DEAD_LETTERS_PREFIX: Final = "dlq."
_LIMIT, _DEAD_LETTER_TOPIC = "share.delivery.count.limit", "errors.deadletterqueue.topic.name"
_DEAD_LETTER_COPY = "errors.deadletterqueue.copy.record.enable"
# So many deliveries more than max_deliveries are allowed by the group: consumers may die with a message that they
# were about to make a dead letter.
_SPARE = 5
_LIMIT_BEFORE_4_3 = 5  # the broker's, unless its configuration says otherwise
_TOPIC_NAME_MAX = 249


async def choose_backend(setup: TopicSetup, options: QueueOptions) -> Literal["tracker", "share"]:
    """Return the backend for "auto": by the cluster only, so that all processes choose the same.

    A markers topic means that the queues have trackers. Without one share groups are taken where the cluster has them.
    """
    if await setup.exists(options.marker_topic):
        return "tracker"
    return "share" if await setup.feature(_FEATURE) else "tracker"


def topic_of(options: QueueOptions, queue: str) -> str:
    """Return the name of a queue's topic. What a topic's name cannot have is written as _ and two hexadecimal digits.

    Raises ConfigurationError for a name that is too long.
    """
    escaped = "".join(
        chr(byte) if chr(byte).isascii() and (chr(byte).isalnum() or byte in b"-.") else f"_{byte:02x}"
        for byte in queue.replace("_", "\0").encode()
    ).replace("_00", "__")
    name = f"{options.message_topic}-{escaped}"
    if len(name) > _TOPIC_NAME_MAX:
        raise ConfigurationError(
            f"the queue {queue[:40]!r}... would have a topic with a name of {len(name)} characters",
            remedy='give it a shorter name, or use backend="tracker", where queues need no topic',
        )
    return name


class ShareQueues:
    """The topics and groups of a service's queues."""

    def __init__(self, options: QueueOptions) -> None:
        self._options = options
        self.known: dict[str, QueuePlace] = {}

    async def place(self, setup: TopicSetup, queue: str) -> QueuePlace:
        """Return where the messages of a queue are; create its topic the first time, or check it.

        Raises ConfigurationError for the dead letter topic.
        """
        if queue in self.known:
            return self.known[queue]
        topic, dead_letters = topic_of(self._options, queue), self._options.dead_letters
        if topic == dead_letters:
            raise ConfigurationError(
                f"{topic} is the topic of queue {queue} and the dead letter topic: dead letters would come again",
                remedy="give another dead_letter_topic, or another name to the queue",
            )
        await setup.exists(topic)  # the first request: the cluster's features are known then
        level = await setup.feature(_FEATURE)
        if not level:
            raise ConfigurationError(
                'backend="share" needs share groups, and this cluster has none',
                remedy='upgrade to Kafka 4.2 with the feature share.version at 1, or give backend="tracker"',
            )
        more = {dead_letters: {_DEAD_LETTERS_ENABLED: "true"}} if level >= _DEAD_LETTERS_LEVEL else {}
        topics, configs = await setup.prepare([topic, *([dead_letters] if dead_letters else [])], more)
        found = QueuePlace(topic, len(topics[topic].partitions), message_bytes_max(configs), 0)
        self.known[queue] = found
        return found

    async def prepare_group(self, setup: TopicSetup, queue: str) -> None:
        """Set the configs of the queue's share group that differ. Raises ConfigurationError for what brokers refuse."""
        options, group = self._options, self._options.share_group(queue)
        has = (await setup.configs(_GROUP, [group])).get(group, {})
        wanted = _wanted(options, has)
        if _LIMIT not in has:
            await self._check_limit(setup)
        changed = {name: value for name, value in wanted.items() if has.get(name) != value}
        if not changed:
            return
        try:
            await setup.set_group_configs(group, changed)
        except BrokerError as error:
            explained = _explained(error, changed)
            if explained is error:
                raise
            raise explained from error

    async def _check_limit(self, setup: TopicSetup) -> None:
        """Refuse a max_deliveries that brokers before Kafka 4.3 cannot keep: there the limit is the brokers' own."""
        broker = await setup.any_broker()
        configs = (await setup.configs(_BROKER, [str(broker)])).get(str(broker), {})
        limit = int(configs.get("group.share.delivery.count.limit", _LIMIT_BEFORE_4_3))
        assert self._options.max_deliveries is not None
        if self._options.max_deliveries >= limit:
            raise ConfigurationError(
                f"max_deliveries is {self._options.max_deliveries}, and the brokers give a record up after {limit} "
                "deliveries, without a dead letter",
                remedy=f"give max_deliveries={limit - 1}, raise group.share.delivery.count.limit at the brokers, or "
                "take Kafka 4.3, where each group has its own limit",
            )


def _wanted(options: QueueOptions, has: Mapping[str, str]) -> dict[str, str]:
    """Return the configs that the group needs, of those that this Kafka release has."""
    assert options.max_deliveries is not None
    has_dead_letters = bool(options.dead_letters) and options.dead_letters.startswith(DEAD_LETTERS_PREFIX)
    wanted = {
        "share.record.lock.duration.ms": str(options.redelivery_timeout_ms),
        "share.auto.offset.reset": _offset_reset(options.start),
        "share.isolation.level": "read_committed",
        _LIMIT: str(min(options.max_deliveries + _SPARE, SHARE_DELIVERIES_MAX + 1)),
        "share.renew.acknowledge.enable": "true",
        _DEAD_LETTER_TOPIC: options.dead_letters if has_dead_letters else "",
        _DEAD_LETTER_COPY: "true" if has_dead_letters else "false",
    }
    return {name: value for name, value in wanted.items() if name in has}


def _offset_reset(start: Start) -> str:
    """Return a start as the group's configuration has it: KIP-1106's duration is in ISO 8601."""
    assert not isinstance(start, AtTimestamp)
    return f"by_duration:PT{start.duration.total_seconds():.3f}S" if isinstance(start, Ago) else start


def _explained(error: BrokerError, changed: Mapping[str, str]) -> BrokerError | ConfigurationError:
    """Return an error of the brokers with a remedy for queues."""
    names = ", ".join(f"{name}={value}" for name, value in changed.items())
    if isinstance(error, AuthorizationError):
        error.remedy = f"grant the operation AlterConfigs on the group to this principal, or set {names}"
    if error.code != ErrorCode.INVALID_CONFIG:
        return error
    return ConfigurationError(
        f"the brokers refuse {names}: {error.message}",
        remedy="redelivery_timeout_ms must lie between group.share.min.record.lock.duration.ms (15 s) and "
        "group.share.max.record.lock.duration.ms (60 s) of the brokers: change the one or the others, or use "
        'backend="tracker"; keep_alive=True keeps messages for longer than their lock',
    )


__all__ = ["DEAD_LETTERS_PREFIX", "ShareQueues", "choose_backend", "topic_of"]
