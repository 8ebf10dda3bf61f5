"""What a consumer subscribes to: topics by name, a pattern that is matched here, or one that the broker matches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kwire.arguments import wrong_type
from kwire.cluster import Snapshot, Topic, is_topic_name
from kwire.errors import PERMANENT_TOPIC_CODES, ConfigurationError, ErrorCode

_FORMS = 'names such as ["orders"], a compiled pattern such as re.compile("orders-.*"), or a kwire.Regex'


@dataclass(frozen=True, slots=True)
class Regex:
    """A pattern of topic names in RE2's syntax, which the group's coordinator matches (KIP-848)."""

    pattern: str

    def __post_init__(self) -> None:
        if not isinstance(self.pattern, str):
            raise wrong_type("pattern", self.pattern, "the text of an RE2 pattern")
        if not self.pattern:
            raise ConfigurationError("the pattern is empty", remedy='give one, such as Regex("^orders-.*")')


@dataclass(frozen=True, slots=True)
class Subscription:
    """Topics by name, and at most one of the two patterns. With `internal`, a pattern also matches internal topics."""

    topics: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    regex: Regex | None = None
    internal: bool = False

    @classmethod
    def of(
        cls, topics: Iterable[str | Regex] | str | re.Pattern[str] | Regex, *, internal: bool = False
    ) -> Subscription:
        """Return the subscription for the arguments of `Consumer.subscribe`. Raises TypeError or ConfigurationError.

        A list may have names and one `Regex`.
        """
        if isinstance(topics, re.Pattern):
            if not isinstance(topics.pattern, str):
                raise wrong_type("topics", topics, "a pattern of str, not of bytes")
            return cls(pattern=topics, internal=internal)
        if isinstance(topics, Regex):
            return cls(regex=topics, internal=internal)
        if isinstance(topics, (str, bytes)) or not isinstance(topics, Iterable):
            raise wrong_type("topics", topics, _FORMS)
        names: set[str] = set()
        regexes: list[Regex] = []
        for entry in topics:
            if isinstance(entry, Regex):
                regexes.append(entry)
            elif not isinstance(entry, str):
                raise wrong_type("a topic", entry, _FORMS)
            elif not is_topic_name(entry):
                raise ConfigurationError(f"a topic is {entry!r}", remedy="give its name")
            elif entry.startswith("^"):  # a pattern in librdkafka; no name begins so
                raise ConfigurationError(
                    f"a topic is {entry!r}",
                    remedy=f"for a pattern give re.compile({entry!r}), or kwire.Regex({entry!r}) for the broker",
                )
            else:
                names.add(entry)
        if len(regexes) > 1:
            raise ConfigurationError("two patterns were given", remedy='join them: Regex("^(a-.*|b-.*)$")')
        if not names and not regexes:
            raise ConfigurationError("there is no topic to subscribe to", remedy=f"give {_FORMS}")
        return cls(frozenset(names), regex=regexes[0] if regexes else None, internal=internal)

    def missing(self, snapshot: Snapshot) -> dict[str, int]:
        """Return the topics by name that cannot be read, each with its error code, or UNKNOWN_TOPIC_OR_PARTITION."""
        found: dict[str, int] = {}
        for name in sorted(self.topics):
            topic = snapshot.topics.get(name)
            if topic is None or not topic.partitions:
                code = 0 if topic is None else topic.error_code
                found[name] = code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return found

    def matched(self, known: Mapping[str, Topic]) -> frozenset[str]:
        """Return the topics by name, and those of the metadata that `pattern` matches from their beginning."""
        if self.pattern is None:
            return self.topics
        return self.topics | {
            name
            for name, topic in known.items()
            if self.pattern.match(name)
            and topic.error_code not in PERMANENT_TOPIC_CODES
            and (self.internal or not (topic.is_internal or name.startswith("__")))
        }

    def __str__(self) -> str:
        parts = sorted(self.topics)
        if self.pattern is not None:
            parts.append(f"pattern {self.pattern.pattern!r}")
        if self.regex is not None:
            parts.append(f"the broker's pattern {self.regex.pattern!r}")
        return ", ".join(parts)
