"""Wireshark's Kafka dissector reads what kwire writes as kwire does, field by field, in every version that it knows.

Packets of random messages and of frames recorded from real brokers go through tshark; each field that it shows must be
a field of ours at the same bytes, of a name that means the same, with the same number. The fields that it does not show
(counts, lengths, tags) are passed over. A capture of real connections must give the same frames in both.

Where the two disagree (DISAGREEMENTS) Wireshark 4.0 is wrong, each time: the random messages are of the kind that
test_oracle.py has Kafka's own classes read and write, and the fixtures came from Kafka. A newer Wireshark may agree on
more. Not compared here: records that are null, which it calls a message set of the wrong size, and batch times,
whose milliseconds it shows as nanoseconds.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import confluent_kafka

import kwire
from kwire.broker import Cluster
from kwire.capture import CapturedFrame, read_capture
from kwire.protocol import Api, ApiKey, api
from kwire.protocol.diagnose import FieldBytes, annotate
from kwire.protocol.fields import NO_ID, Array, Fixed, Sized, default_of
from kwire.protocol.headers import (
    decode_request_header,
    encode_request,
    encode_response,
    response_header_version,
)
from kwire.protocol.messages.produce import ProduceRequest
from kwire.records import encode_batch
from tests.capture.captures import BROKER, CLIENT, Talk, pcap, sized, timed
from tests.conformance import oracle
from tests.conformance.tshark import Dissected, columns, dissect
from tests.conftest import missing
from tests.protocol.samples import random_message
from tests.test_fixtures import FIXTURES

# Wireshark's name of a field, and what it may be called in Kafka's schemas.
NAMES: Mapping[str, Sequence[str]] = {
    "acl_host": ["host", "host_filter"],
    "acl_operation": ["operation"],
    "acl_permission_type": ["permission_type"],
    "acl_principal": ["principal", "principal_filter"],
    "acl_resource_name": ["resource_name", "resource_name_filter"],
    "acl_resource_pattern_type": ["pattern_type", "pattern_type_filter", "resource_pattern_type"],
    "acl_resource_type": ["resource_type", "resource_type_filter"],
    "allow_auto_topic_creation": ["allow_auto_topic_creation"],
    "api_versions.api_key": ["api_key"],
    "api_versions.max_version": ["max_version"],
    "api_versions.min_version": ["min_version"],
    "batch_index": ["batch_index"],
    "batch_index_error_message": ["batch_index_error_message"],
    "broker_epoch": ["broker_epoch"],
    "broker_security_protocol_type": ["security_protocol"],
    "client_host": ["client_host"],
    "client_id": ["client_id"],
    "client_software_name": ["client_software_name"],
    "client_software_version": ["client_software_version"],
    "cluster_authorized_ops": ["cluster_authorized_operations"],
    "cluster_id": ["cluster_id"],
    "commit_timestamp": ["commit_timestamp"],
    "config_default": ["is_default"],
    "config_include_synonyms": ["include_synonyms"],
    "config_key": ["configuration_keys", "name"],
    "config_operation": ["config_operation"],
    "config_readonly": ["read_only"],
    "config_resource_name": ["resource_name"],
    "config_resource_type": ["resource_type"],
    "config_sensitive": ["is_sensitive"],
    "config_source": ["config_source", "source"],
    "config_value": ["value"],
    "consumer_group": ["group_id", "groups", "groups_names", "key"],
    "consumer_group_instance": ["group_instance_id"],
    "controller_epoch": ["controller_epoch"],
    "coordinator_epoch": ["coordinator_epoch"],
    "coordinator_key": ["key"],
    "coordinator_type": ["key_type"],
    "current_leader_epoch": ["current_leader_epoch"],
    "delete_partitions": ["delete_partitions"],
    "election_type": ["election_type"],
    "error": ["error_code", "partition_error_code"],
    "error_message": ["error_message"],
    "expiry_time": ["expiry_time_period_ms"],
    "fetch_session_epoch": ["session_epoch"],
    "fetch_session_id": ["session_id"],
    "first_offset": ["first_offset"],
    "forgotten_topic_name": ["topic"],
    "forgotten_topic_partition": ["partitions"],
    "future": ["is_future_key"],
    "generation_id": ["generation_id", "generation_id_or_member_epoch"],
    "group_authorized_ops": ["authorized_operations"],
    "group_leader_id": ["leader"],
    "group_state": ["group_state"],
    "host": ["host", "host_name", "v0_host"],
    "include_cluster_authorized_ops": ["include_cluster_authorized_operations"],
    "include_group_authorized_ops": ["include_authorized_operations"],
    "include_topic_authorized_ops": ["include_topic_authorized_operations"],
    "is_internal": ["is_internal"],
    "is_new_replica": ["is_new"],
    "isolation_level": ["isolation_level"],
    "isr_id": ["isr", "isr_nodes"],
    "last_stable_offset": ["last_stable_offset"],
    "leader_epoch": ["committed_leader_epoch", "current_leader_epoch", "leader_epoch"],
    "leader_id": ["leader", "leader_id"],
    "listener_name": ["listener"],
    "log_dir": ["log_dir", "path"],
    "log_start_offset": ["log_start_offset"],
    "max_bytes": ["max_bytes", "partition_max_bytes"],
    "max_offsets": ["max_num_offsets"],
    "max_wait_time": ["max_wait_ms"],
    "member_assignment": ["assignment", "member_assignment"],
    "member_id": ["member_id"],
    "member_metadata": ["member_metadata", "metadata"],
    "metadata": ["committed_metadata", "metadata"],
    "min_bytes": ["min_bytes"],
    "node_id": ["broker_id", "broker_ids", "controller_id", "id", "node_id"],
    "num_partitions": ["num_partitions"],
    "offline_id": ["offline_replicas"],
    "offset": [
        "base_offset",
        "committed_offset",
        "end_offset",
        "fetch_offset",
        "high_watermark",
        "low_watermark",
        "offset",
        "old_style_offsets",
    ],
    "offset_lag": ["offset_lag"],
    "offset_time": ["log_append_time_ms", "timestamp"],
    "partition_count": ["count"],
    "partition_id": ["index", "partition", "partition_id", "partition_index", "partition_indexes", "partitions"],
    "port": ["port", "v0_port"],
    "principal_name": ["principal_name"],
    "principal_type": ["principal_type"],
    "producer_epoch": ["producer_epoch", "v3_and_below_producer_epoch"],
    "producer_id": ["producer_id", "v3_and_below_producer_id"],
    "protocol_metadata": ["metadata"],
    "protocol_name": ["name", "protocol_data", "protocol_name"],
    "protocol_type": ["protocol_type"],
    "rack": ["rack", "rack_id"],
    "rebalance_timeout": ["rebalance_timeout_ms"],
    "renew_time": ["renew_period_ms"],
    "replica_id": [
        "adding_replicas",
        "broker_ids",
        "isr",
        "offline_replicas",
        "preferred_read_replica",
        "removing_replicas",
        "replica_id",
        "replica_nodes",
        "replicas",
    ],
    "replication_factor": ["replication_factor"],
    "require_stable_offset": ["require_stable"],
    "required_acks": ["acks"],
    "retention_time": ["retention_time_ms"],
    "sasl_authentication": ["auth_bytes"],
    "sasl_mechanism": ["mechanism", "mechanisms"],
    "segment_size": ["partition_size"],
    "session_lifetime_ms": ["session_lifetime_ms"],
    "session_timeout": ["session_timeout_ms"],
    "throttle_time": ["throttle_time_ms"],
    "timeout": ["timeout_ms"],
    "token_expiry_timestamp": ["expiry_timestamp", "expiry_timestamp_ms"],
    "token_hmac": ["hmac"],
    "token_id": ["token_id"],
    "token_issue_timestamp": ["issue_timestamp", "issue_timestamp_ms"],
    "token_max_life_time": ["max_lifetime_ms"],
    "token_max_timestamp": ["max_timestamp", "max_timestamp_ms"],
    "topic_authorized_ops": ["topic_authorized_operations"],
    "topic_name": ["name", "topic", "topic_name", "topic_names"],
    "transaction_result": ["committed", "transaction_result"],
    "transaction_timeout": ["transaction_timeout_ms"],
    "transactional_id": ["transactional_id", "v3_and_below_transactional_id"],
    "validate_only": ["validate_only"],
    "zk_version": ["partition_epoch", "zk_version"],
}


class Reason(NamedTuple):
    """Deviations of Wireshark from Kafka in these versions."""

    kind: str
    api: str
    versions: range
    why: str


BYTES = "takes 2 bytes for the length of `bytes`, which has 4 before the flexible versions"
MESSAGE_SETS = "reads the timestamp, key and value of messages of magic 0 and 1 in the wrong places"
REPLICAS = "takes the partition's number for the count of its replicas"
NO_TOPIC = "does not read the topic's name"
OLD_LISTS = "reads lists of the old kind in an API whose one version is flexible"
NO_OFFLINE = "reads offline replicas, which came with version 4"
DISAGREEMENTS = [
    Reason("request", "Produce", range(3), MESSAGE_SETS),
    Reason("response", "Produce", range(3), "has not understood the request"),
    Reason("response", "Fetch", range(4), MESSAGE_SETS),
    Reason("request", "UpdateMetadata", range(4), NO_OFFLINE),
    Reason("request", "JoinGroup", range(6), BYTES),
    Reason("response", "JoinGroup", range(6), BYTES),
    Reason("request", "SyncGroup", range(4), BYTES),
    Reason("response", "SyncGroup", range(4), BYTES),
    Reason("response", "DescribeGroups", range(5), BYTES),
    Reason("request", "SaslAuthenticate", range(2), BYTES),
    Reason("response", "SaslAuthenticate", range(2), BYTES),
    Reason("request", "CreateTopics", range(6), REPLICAS),
    Reason("response", "DeleteTopics", range(1, 3), "does not read the throttle time, which came with version 1"),
    Reason("response", "WriteTxnMarkers", range(1), "reads a throttle time, which no version has"),
    Reason("response", "DeleteAcls", range(2), "does not read the results"),
    Reason("response", "AlterReplicaLogDirs", range(2), "calls the topic's name a log directory"),
    Reason("request", "CreatePartitions", range(3), "reads lists of brokers within a list as one list"),
    Reason("response", "CreateDelegationToken", range(2), BYTES),
    Reason("request", "RenewDelegationToken", range(2), BYTES),
    Reason("request", "ExpireDelegationToken", range(2), BYTES),
    Reason("response", "DescribeDelegationToken", range(2), BYTES),
    Reason("request", "ElectLeaders", range(3), NO_TOPIC),
    Reason("response", "ElectLeaders", range(3), "has not understood the request"),
    Reason("request", "AlterPartitionReassignments", range(1), OLD_LISTS),
    Reason("response", "AlterPartitionReassignments", range(1), "has not understood the request"),
    Reason("request", "ListPartitionReassignments", range(1), OLD_LISTS),
    Reason("response", "ListPartitionReassignments", range(1), "has not understood the request"),
]


class Sent(NamedTuple):
    """A frame in a packet of its own. What is not judged is there for the other's sake."""

    kind: str
    api: Api
    version: int
    frame: bytes
    is_judged: bool = True


# Ethernet, IPv4 and TCP headers, and the frame's size.
HEADERS_BYTES = 14 + 20 + 20 + 4
PACKET_BYTES_MAX = 60_000
PORT = 9092
SAMPLES = 6
UNKNOWN = re.compile(r"Unsupported \w+ version|Unknown -?\d+ API key")
SEED = 22


def captured(exchanges: Iterable[tuple[Sent, Sent]], path: Path) -> dict[int, Sent]:
    """Each exchange as a connection of its own, so that one that Wireshark stumbles over does not cost the next."""
    packets: list[bytes] = []
    sent: dict[int, Sent] = {}
    for number, pair in enumerate(exchanges):
        client = (f"127.{number >> 16}.{number >> 8 & 255}.{number & 255}", 40_000)
        talk = Talk(client, segment_bytes=PACKET_BYTES_MAX, seqs=[1, 1])
        for side, one in zip((CLIENT, BROKER), pair, strict=True):
            talk.send(side, sized([one.frame]))
            if one.is_judged:
                sent[len(packets) + len(talk.packets)] = one
        assert len(talk.packets) == 2
        packets += talk.packets
    path.write_bytes(pcap(timed(packets)))
    return sent


def random_exchanges() -> Iterator[tuple[Sent, Sent]]:
    """With each random request or response comes an empty one: Wireshark forgets a request that it cannot read."""
    random = Random(SEED)
    for key in ApiKey:
        for version in api(key).versions:
            for _ in range(SAMPLES):
                yield exchange(api(key), version, filled(api(key).request, version, random), None)
                yield exchange(api(key), version, None, filled(api(key).response, version, random))


def exchange(found: Api, version: int, request: Any, response: Any) -> tuple[Sent, Sent]:
    """What is None is empty, and not judged."""
    request_body, response_body = request or empty(found.request, version), response or empty(found.response, version)
    if isinstance(request_body, ProduceRequest):
        request_body.acks = 1  # with 0 there would be no response
    return (
        Sent(
            "request", found, version, b"".join(encode_request(request_body, version, 7, "client")), request is not None
        ),
        Sent("response", found, version, b"".join(encode_response(response_body, version, 7)), response is not None),
    )


def filled(cls: Any, version: int, random: Random) -> Any:
    """Return a random message that fits into a packet."""
    while True:
        message = with_records(random_message(cls, version, random), cls.API_KEY, version)
        if len(message.encode(version)) < PACKET_BYTES_MAX - 100:
            return message


def empty(cls: Any, version: int) -> Any:
    """Return an empty message."""
    zeros = {"string": "", "bytes": b"", "records": b"", "uuid": NO_ID, "boolean": False, "float64": 0.0}
    values = {}
    for field in cls.FIELDS:
        if not field.exists(version) or field.tag is not None:
            values[field.name] = default_of(field)
        elif field.is_nullable(version) and not isinstance(field.type, Array):
            values[field.name] = None
        elif isinstance(field.type, Array):
            values[field.name] = []
        elif isinstance(field.type, Fixed | Sized):
            values[field.name] = zeros.get(field.type.name, 0)
        else:
            values[field.name] = empty(field.type, version)
    return cls(**values)


def with_records(struct: Any, key: int, version: int) -> Any:
    """The message with batches in place of random bytes for records, in the format that the version carries."""
    magic = 2 if version >= (3 if key == ApiKey.PRODUCE else 4) else 1 if version == 2 else 0
    for field in struct.FIELDS:
        value = getattr(struct, field.name)
        element = field.type.element if isinstance(field.type, Array) else field.type
        if hasattr(element, "FIELDS"):
            for item in value if isinstance(value, list) else [value]:
                if item is not None:
                    with_records(item, key, version)
        elif isinstance(element, Sized) and element.name == "records":
            records = [(1000 + n, b"key %d" % n, b"v" * n, ()) for n in range(3)]
            setattr(struct, field.name, encode_batch(records, magic=magic))
    return struct


def disagreement(sent: Sent, seen: Dissected) -> str | None:
    """Return the first field of a frame that Wireshark reads differently, or None."""
    # ApiVersions lists what Wireshark may not know, which is nothing wrong.
    complaints = [text for text in seen.complaints if sent.api.key != ApiKey.API_VERSIONS or not UNKNOWN.match(text)]
    if complaints:
        return complaints[0]
    ours = our_fields(sent)
    for shown in seen.fields:
        name = shown.name.removeprefix("kafka.")
        start, end = shown.start - HEADERS_BYTES, shown.start - HEADERS_BYTES + shown.size
        if start < ours[0].start or name.startswith("tagged_field"):
            continue
        field = next((one for one in ours if one.start <= start and end <= one.end), None)
        if field is None:
            return f"{shown} is no field of ours"
        leaf = field.path.rpartition(".")[2].partition("[")[0]
        if field.type_name == "records" or field.path.endswith("tagged_fields"):
            continue
        if leaf not in NAMES.get(name, ()):
            return f"{shown} is our {field.path}"
        if isinstance(field.value, int) and not is_shown(field.value, shown.text):
            return f"{shown} is our {field.path}, {field.value}"
    return None


def our_fields(sent: Sent) -> list[FieldBytes]:
    if sent.kind == "request":
        cls: Any = sent.api.request
        start = decode_request_header(sent.frame)[1]
    else:
        cls = sent.api.response
        start = 4 + response_header_version(sent.api.key, cls.FLEXIBLE, sent.version)
    return annotate(cls, sent.frame, sent.version, start) or [FieldBytes("", "", start, start, None)]


def is_shown(number: int, text: str) -> bool:
    """Return whether a text is this number, which Wireshark may show as unsigned, in hex or as a time."""
    if re.fullmatch(r"-?\d+", text):
        return int(text) in (number, number % 2**32, number % 2**64)
    if text.startswith("0x"):
        return int(text, 16) == number % 2**32
    return True


def unknown_to_wireshark(seen: Iterable[tuple[Sent, Dissected]]) -> set[tuple[ApiKey, int]]:
    """Return the API versions that Wireshark reports as unknown; it does not name their responses."""
    return {
        (sent.api.key, sent.version)
        for sent, found in seen
        if sent.kind == "request" and any(map(UNKNOWN.match, found.complaints))
    }


def compare(sent: dict[int, Sent], path: Path) -> dict[tuple[str, str, int], str | None]:
    """{(kind, API, version): the first disagreement or None}, for what Wireshark knows."""
    seen = [(sent[dissected.number], dissected) for dissected in dissect(path, [PORT]) if dissected.number in sent]
    assert len(seen) == len(sent)
    unknown = unknown_to_wireshark(seen)
    found: dict[tuple[str, str, int], str | None] = {}
    for one, dissected in seen:
        if (one.api.key, one.version) not in unknown:
            what = (one.kind, one.api.name, one.version)
            found[what] = found.get(what) or disagreement(one, dissected)
    print(f"{sum(text is None for text in found.values())} of {len(found)} agree, in {len(sent)} frames")
    return found


def unexplained(found: dict[tuple[str, str, int], str | None]) -> list[str]:
    listed = {(one.kind, one.api, version) for one in DISAGREEMENTS for version in one.versions}
    return [f"{what}: {text}" for what, text in found.items() if text and what not in listed]


def test_random_messages_of_every_version_that_wireshark_knows(tmp_path: Path) -> None:
    sent = captured(random_exchanges(), tmp_path / "random.pcap")
    found = compare(sent, tmp_path / "random.pcap")
    assert not unexplained(found)
    agreed = [what for what, text in found.items() if text is None]
    assert len(agreed) > 300, f"seed {SEED}"


def test_frames_recorded_from_real_brokers(tmp_path: Path) -> None:
    sent = captured(recorded_exchanges(), tmp_path / "recorded.pcap")
    found = compare(sent, tmp_path / "recorded.pcap")
    assert not unexplained(found)
    assert len([what for what, text in found.items() if text is None]) > 150


def recorded_exchanges() -> Iterator[tuple[Sent, Sent]]:
    for path in sorted(FIXTURES.glob("*/*_request.bin")):
        frames = path.read_bytes(), path.with_name(path.name.replace("_request", "_response")).read_bytes()
        header = decode_request_header(frames[0])[0]
        if max(map(len, frames)) < PACKET_BYTES_MAX:
            yield (
                Sent("request", api(header.api_key), header.api_version, frames[0]),
                Sent("response", api(header.api_key), header.api_version, frames[1]),
            )


def test_a_capture_of_real_connections_gives_both_the_same_frames(tmp_path: Path) -> None:
    capture = tmp_path / "real.pcapng"
    ports = record(capture)
    ours = []
    with capture.open("rb") as file:
        for found in read_capture(file):
            # The end of the capture may cut a frame off, which Wireshark then does not show.
            if isinstance(found, CapturedFrame) and not found.missing:
                key, version = (found.api.key, found.version) if found.api else (-1, -1)
                id_ = int.from_bytes(found.data[4:8] if found.kind == "request" else found.data[:4], "big")
                ours.append((found.packet, found.kind, id_, len(found.data), key, version))
    theirs = []
    names = ["frame.number", "kafka.correlation_id", "kafka.len", "kafka.request_key", "kafka.request.version"]
    for number, ids, sizes, keys, versions in columns(capture, ports, names):
        # Of a response to a version that it does not know it says neither key nor version.
        for place, (one, size) in enumerate(zip(ids.split(","), sizes.split(","), strict=True)):
            kind = "request" if keys else "response"
            said = (int(keys.split(",")[place]), int(versions.split(",")[place])) if keys else (-1, -1)
            theirs.append((int(number), kind, int(one), int(size), *said))
    assert [one[:4] for one in ours] == [one[:4] for one in theirs]
    assert [one for one in ours if one[1] == "request"] == [one for one in theirs if one[1] == "request"]
    assert len(ours) > 50
    assert {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.JOIN_GROUP} <= {one[4] for one in ours}
    print(f"{len(ours)} frames")


def record(capture: Path) -> list[int]:
    """Capture what clients and an embedded cluster say to each other on loopback; the ports of the brokers."""
    with Cluster(brokers=2) as cluster:
        cluster.create_topic("t", partitions=3)
        ports = [int(address.rpartition(":")[2]) for address in cluster.bootstrap.split(",")]
        only = " or ".join(f"tcp port {port}" for port in ports)
        command = [oracle.needed("dumpcap"), "-q", "-i", "lo", "-f", only, "-w", str(capture)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as dumpcap:
            assert dumpcap.stderr
            said = []
            for line in dumpcap.stderr:
                said.append(line)
                if line.startswith("File:"):  # the capture has started
                    break
            else:
                missing(f"dumpcap cannot capture: {''.join(said)}")
            talk(cluster.bootstrap)
            dumpcap.terminate()
    return ports


def talk(bootstrap: str) -> None:
    with kwire.Producer(bootstrap) as producer:
        for number in range(500):
            producer.send("t", value=b"v" * 300, key=b"%d" % number)
        producer.flush()
    with kwire.Consumer(bootstrap) as consumer:
        consumer.assign([("t", partition, "earliest") for partition in range(3)])
        read = 0
        while read < 500:
            read += len(consumer.poll(100, timeout=5))
    group = {"group.id": "g", "auto.offset.reset": "earliest", "log_level": 0}
    peer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, **group})
    peer.subscribe(["t"])
    assert len(peer.consume(500, 30)) == 500
    peer.close()
