"""The options of queues, and the YAML file of kafka-mq-go (Q45 to Q53)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kwire.errors import ConfigurationError
from kwire.queue import QueueOptions, Service, read_config
from kwire.queue.options import parse_config

YAML = """\
# of a Go service
bootstrap-servers: "one:9092,two:9092"
message-topic: messages
marker-topic: 'markers'
redelivery-timeout: 10000
consumer-receive-buffer-capacity: 1
consumer-next-message-timeout: 500   # ms
consumer-max-messages-per-commit: 100
redelivery-tracker:
  use-now-if-no-marker-seen: 10000
  num-offsets-per-commit: 200
max-deliveries: null
"""


def test_q53_the_yaml_file_of_kafka_mq_go(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(YAML)
    options = read_config(path)
    assert options == {
        "bootstrap": "one:9092,two:9092",
        "message_topic": "messages",
        "marker_topic": "markers",
        "redelivery_timeout_ms": 10_000,
        "consumer_receive_buffer_capacity": 1,
        "consumer_next_message_timeout_ms": 500,
        "consumer_max_messages_per_commit": 100,
        "use_now_if_no_marker_seen_ms": 10_000,
        "num_offsets_per_commit": 200,
        "max_deliveries": None,
    }
    with Service(options.pop("bootstrap"), **options) as service:
        assert service.options.redelivery_timeout_ms == 10_000


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("redelivery-timout: 5", "line 1: there is no option redelivery-timout.*redelivery-timeout"),
        ("\nmessage-topic", "line 2 is 'message-topic'"),
        ("other:\n  a: 1", "other has no value"),
        ("redelivery-tracker:\n  message-topic: a", "no option redelivery-tracker.message-topic"),
    ],
)
def test_q53_a_wrong_file_names_its_line(text: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        parse_config(text)


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        ({"message_topic": "a", "marker_topic": "a"}, "two topics"),
        ({"message_topic": ""}, "message_topic"),
        ({"dead_letter_topic": "messages"}, "another dead_letter_topic"),
        ({"dead_letter_topic": "markers"}, "another dead_letter_topic"),
        ({"marker_topic": "messages-dead-letters"}, "another marker_topic"),
        ({"redelivery_timeout_ms": 0}, "redelivery_timeout_ms"),
        ({"redelivery_timeout_ms": 12 * 3_600_000 + 1}, "redelivery_timeout_ms"),
        ({"consumer_receive_buffer_capacity": 0}, "consumer_receive_buffer_capacity"),
        ({"consumer_next_message_timeout_ms": 0}, "consumer_next_message_timeout_ms"),
        ({"consumer_max_messages_per_commit": 0}, "consumer_max_messages_per_commit"),
        ({"use_now_if_no_marker_seen_ms": -1}, "use_now_if_no_marker_seen_ms"),
        ({"num_offsets_per_commit": 0}, "num_offsets_per_commit"),
        ({"max_in_progress": 10}, "max_in_progress"),
        ({"max_processing_ms": 1_000}, "max_processing_ms"),
        ({"backoff_ms": 10, "backoff_ms_max": 5}, "backoff_ms_max"),
        ({"backoff_ms_max": 12 * 3_600_000 + 1}, "backoff_ms_max"),
        ({"marker_format": "kafka-mq-v1"}, "max_deliveries=None"),
        ({"max_deliveries": 0}, "max_deliveries"),
        ({"start": "now"}, "start"),
    ],
)
def test_q45_to_q52_wrong_values_and_contradictions_are_refused(options: dict[str, Any], remedy: str) -> None:
    with pytest.raises(ConfigurationError, match=remedy):
        QueueOptions(**options)


def test_f23_groups_are_of_the_topics() -> None:
    options = QueueOptions(message_topic="a", marker_topic="b")
    assert (options.queue_group("jobs"), options.tracker_group) == ("kwire-mq-a-jobs", "kwire-mq-tracker-b")


def test_q85_the_back_off_doubles_up_to_its_limit() -> None:
    options = QueueOptions(backoff_ms=100, backoff_ms_max=1_000)
    assert [options.backoff(count) for count in (1, 2, 3, 4, 5, 1_000)] == [100, 200, 400, 800, 1_000, 1_000]


def test_a_stranger_gets_help() -> None:
    with pytest.raises(ConfigurationError, match="redelivery_timeout_ms"):
        Service("localhost:9092", redelivery_timeout=5)  # type: ignore[call-arg]
    with Service("localhost:1") as service:
        with pytest.raises(TypeError, match="name of the queue"):
            service.queue(b"jobs")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="empty"):
            service.queue("")
