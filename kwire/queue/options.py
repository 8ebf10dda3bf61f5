"""The options of a queue service, beside those of every client, and the YAML file of kafka-mq-go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from kwire.cluster.config import INT32_MAX, MS, ClientKwargs
from kwire.consumer.offsets import Ago, AtTimestamp
from kwire.consumer.options import start_policy
from kwire.errors import ConfigurationError
from kwire.option_checks import Choice, Flag, Text, Where, Whole, check_values, did_you_mean, option
from kwire.queue.markers import MarkerFormat

Start = Literal["earliest", "latest"] | AtTimestamp | Ago
BackendName = Literal["tracker", "share", "auto"]

# Longer deadlines are for keep-alives: a marker must outlive its deadline in the markers topic.
_TIMEOUT_MAX_MS = 12 * 3_600_000
TIME_MAX_MS = (1 << 63) - 1  # markers have times as int64
DEFAULT_BACKOFF_MS = 1_000


# The brokers let a record be delivered ten times at most, and the last of them is for making it a dead letter.
SHARE_DELIVERIES_MAX = 9


def _is_limit(value: object) -> bool:
    return value is None or Whole(1, INT32_MAX).accepts(value)


_LIMIT = Where("a whole number from 1 up, or None", _is_limit)


class QueueKwargs(ClientKwargs, total=False):
    """The keywords of a queue service: those of `QueueOptions` and of `ClientConfig`."""

    backend: BackendName
    message_topic: str
    marker_topic: str
    redelivery_timeout_ms: int
    consumer_receive_buffer_capacity: int
    consumer_next_message_timeout_ms: int
    consumer_max_messages_per_commit: int
    use_now_if_no_marker_seen_ms: int
    num_offsets_per_commit: int
    marker_format: MarkerFormat
    max_in_progress: int
    keep_alive: bool
    max_processing_ms: int
    max_deliveries: int | None
    dead_letter_topic: str | None
    backoff_ms: int
    backoff_ms_max: int
    clock_jump_ms: int
    start: Start
    transactional: bool
    dedup_window_ms: int
    create_topics: bool
    check_topics: bool
    setup_timeout_ms: int
    partitions: int
    replication_factor: int


@dataclass(frozen=True)
class QueueOptions:
    """How queues work. The names of kafka-mq-go's configuration are kept, in snake_case."""

    backend: BackendName = option(
        "tracker", Choice("tracker", "share", "auto"), '"tracker": two topics and a redelivery tracker; "share": share '
        'groups of Kafka 4.2; "auto": share groups where the cluster has them and there is no markers topic'
    )  # fmt: skip
    message_topic: str = option("messages", Text(), "the queue topic, with the messages of all queues")
    marker_topic: str = option("markers", Text(), "the markers topic, with what is in progress")
    redelivery_timeout_ms: int = option(
        60_000, Whole(1, _TIMEOUT_MAX_MS), "a message whose consumer shows no life for this long is delivered again",
        unit=MS
    )  # fmt: skip
    consumer_receive_buffer_capacity: int = option(
        5_000, Whole(1), "how many messages a consumer takes at most before it is asked: about what it handles "
        "in a second; 1 is kafka-mq-go's default", unit="messages"
    )  # fmt: skip
    consumer_next_message_timeout_ms: int = option(1_000, Whole(1), "how long one read waits", unit=MS)
    consumer_max_messages_per_commit: int = option(
        1_000, Whole(1), "after so many messages of other queues a consumer commits its position", unit="messages"
    )
    use_now_if_no_marker_seen_ms: int = option(
        60_000, Whole(0), "read for kafka-mq-go's sake, and not used: the tracker asks the broker for the time", unit=MS
    )
    num_offsets_per_commit: int = option(
        1_000, Whole(1), "after so many markers the tracker commits, and after five seconds", unit="markers"
    )
    marker_format: MarkerFormat = option(
        "kwire-1", Choice("kwire-1", "kafka-mq-v1"), '"kafka-mq-v1": markers, groups and partitions as kafka-mq-go has '
        "them, to share queues with it"
    )  # fmt: skip
    max_in_progress: int = option(
        10_000, Whole(1), "how many messages a consumer may have that are not settled", unit="messages"
    )
    keep_alive: bool = option(
        True, Flag(), "extend the lease of a message that is being processed; False: only `extend` does"
    )
    max_processing_ms: int = option(
        _TIMEOUT_MAX_MS, Whole(1), "with keep_alive, how long a message may be processed: a hung handler loses it then",
        unit=MS
    )  # fmt: skip
    max_deliveries: int | None = option(
        5, _LIMIT, "a message that was delivered so often becomes a dead letter; None: it comes for ever"
    )
    dead_letter_topic: str | None = option(
        None, Text(may_be_empty=True), 'where dead letters go; None: the queue topic\'s name and "-dead-letters", '
        'with share groups "dlq." and the name; "": '
        "they are dropped"
    )  # fmt: skip
    backoff_ms: int = option(
        DEFAULT_BACKOFF_MS, Whole(0), "a message whose handler raised is delivered again after this time, and "
        "twice as much each time", unit=MS
    )  # fmt: skip
    backoff_ms_max: int = option(300_000, Whole(0, _TIMEOUT_MAX_MS), "the longest of these times", unit=MS)
    clock_jump_ms: int = option(
        60_000, Whole(1), "the tracker distrusts a broker's clock that jumps by more than this", unit=MS
    )
    start: Start = option(
        "earliest", start_policy("earliest", "latest"), "where the first consumer of a queue begins that has no "
        'position: "earliest", "latest", AtTimestamp(ms) or Ago(hours=1)'
    )  # fmt: skip
    transactional: bool = option(
        False, Flag(), "mark messages and commit the position in one transaction: no duplicates by a consumer's crash"
    )
    dedup_window_ms: int = option(
        0, Whole(0), "of messages sent with the same message_id within this time one is delivered; 0: all are", unit=MS
    )
    create_topics: bool = option(True, Flag(), "create the topics that do not exist, with the right configuration")
    check_topics: bool = option(
        True, Flag(), "refuse topics whose configuration loses or repeats messages; False only logs it"
    )
    setup_timeout_ms: int = option(
        30_000, Whole(1), "how long the first use waits until the cluster has described or created the topics", unit=MS
    )
    partitions: int = option(12, Whole(1), "the partitions of topics that are created", unit="partitions")
    replication_factor: int = option(
        3, Whole(1), "the replicas of topics that are created; no more than there are brokers", unit="replicas"
    )

    @property
    def poll_interval_ms(self) -> int | None:
        """Return for how long a member may make no progress; None if nobody said how long a handler may take."""
        if self.max_processing_ms == _TIMEOUT_MAX_MS:
            return None
        return self.max_processing_ms + self.redelivery_timeout_ms

    def __post_init__(self) -> None:
        check_values(self)
        if self.message_topic == self.marker_topic:
            raise ConfigurationError(
                f"message_topic and marker_topic are both {self.message_topic!r}", remedy="give two topics"
            )
        if self.dead_letters in (self.message_topic, self.marker_topic):
            raise ConfigurationError(
                f"the dead letter topic is {self.dead_letters!r}, which has messages or markers: dead letters would be "
                "delivered again, or read as markers",
                remedy="give another dead_letter_topic, or another marker_topic",
            )
        if self.consumer_receive_buffer_capacity > self.max_in_progress:
            raise ConfigurationError(
                f"consumer_receive_buffer_capacity is {self.consumer_receive_buffer_capacity}, max_in_progress "
                f"{self.max_in_progress}: messages in the buffer are in progress",
                remedy="give a max_in_progress that is at least as large",
            )
        if self.keep_alive and self.max_processing_ms < self.redelivery_timeout_ms:
            raise ConfigurationError(
                f"max_processing_ms is {self.max_processing_ms}, less than redelivery_timeout_ms "
                f"({self.redelivery_timeout_ms}), which a message has in any case",
                remedy="lower redelivery_timeout_ms, or raise max_processing_ms",
            )
        if self.backoff_ms_max < self.backoff_ms:
            raise ConfigurationError(
                f"backoff_ms_max is {self.backoff_ms_max}, less than backoff_ms ({self.backoff_ms})",
                remedy="raise backoff_ms_max",
            )
        if self.is_go and self.max_deliveries is not None:
            raise ConfigurationError(
                "markers of kafka-mq-v1 have no headers, so deliveries cannot be counted",
                remedy="give max_deliveries=None, or leave marker_format out",
            )

        if self.backend == "share":
            self._check_share()

    def _check_share(self) -> None:
        """Refuse what share groups do not have."""
        limits: list[tuple[bool, str, str]] = [
            (self.transactional, "transactional=True", "acknowledgements of share groups are in no transaction"),
            (self.is_go, 'marker_format="kafka-mq-v1"', "share groups have no markers"),
            (
                self.backoff_ms not in (0, DEFAULT_BACKOFF_MS), f"backoff_ms={self.backoff_ms}",
                "share groups deliver again at once",
            ),
            (
                isinstance(self.start, AtTimestamp), f"start={self.start}",
                "a share group begins at an end of the log or at a time before now: Ago(hours=1)",
            ),
            (
                bool(self.dedup_window_ms), f"dedup_window_ms={self.dedup_window_ms}",
                "messages with the same id go to different consumers",
            ),
            (
                self.max_deliveries is None or self.max_deliveries > SHARE_DELIVERIES_MAX,
                f"max_deliveries={self.max_deliveries}",
                f"the brokers deliver a message ten times at most, so give one from 1 to {SHARE_DELIVERIES_MAX}",
            ),
        ]  # fmt: skip
        for is_wrong, what, why in limits:
            if is_wrong:
                raise ConfigurationError(
                    f'{what} with backend="share": {why}', remedy=f'leave {what.split("=")[0]} out, or give '
                    'backend="tracker"'
                )  # fmt: skip

    @property
    def is_go(self) -> bool:
        """Return whether this service shares its queues with kafka-mq-go."""
        return self.marker_format == "kafka-mq-v1"

    @property
    def dead_letters(self) -> str:
        """Return the dead letter topic; empty where dead letters are dropped."""
        if self.dead_letter_topic is not None:
            return self.dead_letter_topic
        # Brokers write dead letters of share groups only to topics with this prefix.
        return f"dlq.{self.message_topic}" if self.backend == "share" else f"{self.message_topic}-dead-letters"

    def queue_group(self, queue: str) -> str:
        """Return the consumer group of a queue."""
        return f"kafka-mq-{queue}" if self.is_go else f"kwire-mq-{self.message_topic}-{queue}"

    def share_group(self, queue: str) -> str:
        """Return the share group of a queue."""
        return f"kwire-mq-share-{self.message_topic}-{queue}"

    @property
    def tracker_group(self) -> str:
        """Return the consumer group of the trackers: of its own for each markers topic, unless it is kafka-mq-go's."""
        return "kafka-mq-redelivery" if self.is_go else f"kwire-mq-tracker-{self.marker_topic}"

    def backoff(self, deliveries: int) -> int:
        """Return the back-off, in ms, of a message after this many failed deliveries."""
        return min(self.backoff_ms_max, self.backoff_ms << min(max(0, deliveries - 1), 30))

    @classmethod
    def option_names(cls) -> frozenset[str]:
        return frozenset(field.name for field in fields(cls))


# -- the YAML file of kafka-mq-go

_YAML = {
    "bootstrap-servers": "bootstrap",
    "message-topic": "message_topic",
    "marker-topic": "marker_topic",
    "redelivery-timeout": "redelivery_timeout_ms",
    "consumer-receive-buffer-capacity": "consumer_receive_buffer_capacity",
    "consumer-next-message-timeout": "consumer_next_message_timeout_ms",
    "consumer-max-messages-per-commit": "consumer_max_messages_per_commit",
    "redelivery-tracker.use-now-if-no-marker-seen": "use_now_if_no_marker_seen_ms",
    "redelivery-tracker.num-offsets-per-commit": "num_offsets_per_commit",
}


def read_config(path: str | Path) -> dict[str, Any]:
    """Return the keywords of a `Service`, `bootstrap` included, from a YAML file of kafka-mq-go. Times are in ms.

    Names of our own options may stand beside them, with dashes: "max-deliveries: 3". Only names, scalars and the one
    nested block are read, which is all that such a file has. Raises ConfigurationError with the line.
    """
    return parse_config(Path(path).read_text(), str(path))


def parse_config(text: str, name: str = "the configuration") -> dict[str, Any]:
    """Return what `read_config` does for the text of a file."""
    own = {option_name.replace("_", "-"): option_name for option_name in QueueOptions.option_names()}
    known: Mapping[str, str] = {**own, **_YAML}
    found: dict[str, Any] = {}
    block = ""
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.split(" #")[0].rstrip()
        if not line.strip() or line.lstrip().startswith("#") or line.strip() == "---":
            continue
        where = f"{name}, line {number}"
        key, colon, value = line.strip().partition(":")
        value = value.strip()
        if not colon:
            raise ConfigurationError(f"{where} is {raw.strip()!r}", remedy="write name: value")
        if line[0] not in " \t":
            block = key if not value else ""
            if block:
                if block != "redelivery-tracker":
                    raise ConfigurationError(f"{where}: {key} has no value", remedy="write name: value")
                continue
        full = f"{block}.{key}" if block else key
        if full not in known:
            raise ConfigurationError(f"{where}: there is no option {full}", remedy=did_you_mean(full, known))
        found[known[full]] = _scalar(value)
    return found


def _scalar(text: str) -> str | int | bool | None:
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    if text in ("null", "~"):
        return None
    return int(text) if text.removeprefix("-").isdigit() else text


__all__ = ["QueueKwargs", "QueueOptions", "Start", "parse_config", "read_config"]
