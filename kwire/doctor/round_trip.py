"""The probe of D29: write one record to partition 0 of the topic, read it back, and time each step."""

from __future__ import annotations

from kwire.doctor.facts import ClockOffset, Facts, ProbeResult
from kwire.doctor.link import Link
from kwire.doctor.visit import Visitor
from kwire.errors import KwireError, broker_error
from kwire.net import Clock
from kwire.protocol.fields import NO_ID
from kwire.protocol.messages.fetch import FetchRequest
from kwire.protocol.messages.metadata import MetadataResponse
from kwire.protocol.messages.produce import ProduceRequest
from kwire.records import encode_batch

_KEY = b"kwire-doctor"
_PARTITION = 0
_RECORD_BATCHES_SINCE = 3  # Produce
_FETCH_BYTES = 1_048_576


def round_trip(visitor: Visitor, facts: Facts, clock: Clock) -> tuple[ProbeResult, ClockOffset | None]:
    """Write a record and read it back. The clock offset is known where the topic has the broker's time."""
    steps: dict[str, float] = {}
    began = clock.now()

    def step(name: str) -> None:
        nonlocal began
        steps[name] = clock.now() - began
        began = clock.now()

    try:
        topic = facts.topic
        assert topic is not None
        leader = next((one.leader_id for one in topic.partitions if one.partition_index == _PARTITION), -1)
        endpoint = next((one for one in facts.advertised if one.node == leader and one.is_ok), None)
        if endpoint is None:
            raise KwireError(f"the leader of {topic.name}-0 cannot be reached", remedy="see D21 and D24")
        probe, link = visitor.connect(endpoint, logs_in=True)
        with probe:
            step("connect")
            version = link.version(ProduceRequest)
            sent_at = clock.time_ms()
            records = encode_batch(
                [(sent_at, _KEY, str(sent_at).encode(), ())], magic=2 if version >= _RECORD_BATCHES_SINCE else 1
            )
            produced = link.ask(
                ProduceRequest(
                    acks=-1, timeout_ms=round(facts.target.timeout * 1000),
                    topic_data=[
                        ProduceRequest.Topic(
                            name=topic.name or "", topic_id=topic.topic_id,
                            partition_data=[ProduceRequest.Topic.Partition(index=_PARTITION, records=records)],
                        )
                    ],
                ),
                version=version,
            )  # fmt: skip
            step("produce")
            answered_at = clock.time_ms()
            result = produced.responses[0].partition_responses[0]
            if result.error_code:
                raise broker_error(result.error_code, result.error_message, api="Produce", topic=topic.name)
            offset = None
            if result.log_append_time_ms > 0:
                middle = (sent_at + answered_at) / 2
                offset = ClockOffset(endpoint.name, middle - result.log_append_time_ms, (answered_at - sent_at) / 2)
            throttle = max(produced.throttle_time_ms, _read_back(facts, link, topic, result.base_offset))
            step("fetch")
        return ProbeResult(steps, throttle, result.base_offset), offset
    except KwireError as error:
        return ProbeResult(steps, error=error), None


def _read_back(facts: Facts, link: Link, topic: MetadataResponse.Topic, offset: int) -> int:
    """Fetch the record at an offset; return the throttle time."""
    version = link.version(FetchRequest)
    fetched = link.ask(
        FetchRequest(
            max_wait_ms=round(facts.target.timeout * 500), min_bytes=1, max_bytes=_FETCH_BYTES,
            topics=[
                FetchRequest.Topic(
                    topic=topic.name or "", topic_id=topic.topic_id or NO_ID,
                    partitions=[
                        FetchRequest.Topic.Partition(
                            partition=_PARTITION, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES
                        )
                    ],
                )
            ],
        ),
        version=version,
    )  # fmt: skip
    if fetched.error_code:
        raise broker_error(fetched.error_code, api="Fetch")
    partition = fetched.responses[0].partitions[0]
    if partition.error_code:
        raise broker_error(partition.error_code, api="Fetch", topic=topic.name)
    if not partition.records:
        raise KwireError("the record was written and cannot be read back", remedy="look at the broker's log")
    return int(fetched.throttle_time_ms)
