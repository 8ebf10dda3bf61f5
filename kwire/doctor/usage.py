"""Checks D24 to D30: topic, group, transaction, rights, the probe and the clock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized

from kwire.doctor.check import Finding, check, counted, fail, ok, skipped, warn
from kwire.doctor.facts import Facts
from kwire.errors import AuthorizationError, BrokerError, ErrorCode, broker_error
from kwire.protocol.messages.metadata import NOT_REQUESTED

_READ, _WRITE, _DESCRIBE = 3, 4, 8  # Kafka's AclOperation
_OPERATIONS = {_READ: "Read", _WRITE: "Write", _DESCRIBE: "Describe"}
_LAG_MAX = 10_000
_DEFAULT_REQUEST_BYTES = 1_048_576  # Java's max.request.size
_OPEN_SHARE = 0.5  # a transaction is long after this part of its timeout
_CLOCK_WARN_MS, _CLOCK_FAIL_MS = 5_000, 300_000
_SLOW_PROBE_SECONDS = 1.0
_NO_TOPIC = "no topic given (--topic)"


@check("D24", "topic", "the topic exists; leaders, in-sync replicas, offline replicas", "--topic")
def topic(facts: Facts) -> Iterator[Finding]:
    name = facts.target.topic
    if name is None:
        yield skipped(_NO_TOPIC)
        return
    found = facts.topic
    if found is None:
        if facts.is_connected:
            yield skipped("the broker is too old to be asked without creating the topic")
        return
    if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        yield fail(
            f"there is no topic {name}, or this user may not describe it",
            f"create it (kwire topics create {name}), correct the name, or grant Describe",
        )
        return
    if found.error_code:
        error = broker_error(found.error_code, topic=name)
        yield fail(f"topic {name}: {error.message}", error.remedy)
        return
    leaderless = [one.partition_index for one in found.partitions if one.leader_id < 0]
    if leaderless:
        yield fail(
            f"{_partitions(leaderless)} of {name} {_have(leaderless)} no leader: nobody can read or write them",
            "start the brokers that have their replicas, or elect a leader (kwire partitions elect)",
        )
    offline = {node for one in found.partitions for node in one.offline_replicas}
    behind = [one.partition_index for one in found.partitions if len(one.isr_nodes) < len(one.replica_nodes)]
    if behind:
        missing = {node for one in found.partitions for node in set(one.replica_nodes) - set(one.isr_nodes)}
        yield warn(
            f"{_partitions(behind)} of {name} {_are(behind)} under-replicated: "
            f"{'broker' if len(missing) == 1 else 'brokers'} {_ids(missing)} {_are(missing)} not in sync"
            + (f", {_ids(offline)} offline" if offline else ""),
            f"look at broker {_ids(missing)}: down, slow, or its disk is full",
        )
    least = _least_isr(facts)
    short = [one.partition_index for one in found.partitions if one.leader_id >= 0 and len(one.isr_nodes) < least]
    if short:
        yield fail(
            f"{_partitions(short)} of {name} {_have(short)} fewer in-sync replicas than "
            f"min.insync.replicas={least}: "
            "acks=all fails with NOT_ENOUGH_REPLICAS",
            "bring the missing brokers back, or lower min.insync.replicas knowingly",
        )
    yield ok(f"{name}: {counted(len(found.partitions), 'partition')}, each with a leader")


def _partitions(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:10])) + (", ..." if len(numbers) > 10 else "")
    return f"partition{'' if len(numbers) == 1 else 's'} {shown}"


def _have(some: Sized) -> str:
    return "has" if len(some) == 1 else "have"


def _are(some: Sized) -> str:
    return "is" if len(some) == 1 else "are"


def _ids(nodes: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(nodes)))


def _config(facts: Facts, name: str) -> str | None:
    entry = (facts.topic_configs or {}).get(name)
    return entry.value if entry is not None else None


def _least_isr(facts: Facts) -> int:
    return int(_config(facts, "min.insync.replicas") or 1)


@check("D25", "configs", "configs of the topic that bite: sizes, retention, compaction, timestamps", "--topic")
def configs(facts: Facts) -> Iterator[Finding]:
    if facts.target.topic is None:
        yield skipped(_NO_TOPIC)
        return
    if facts.topic_configs_error is not None:
        yield skipped(facts.topic_configs_error.message)
    if facts.topic_configs is None or facts.topic is None or facts.topic.error_code:
        return
    replicas = min((len(one.replica_nodes) for one in facts.topic.partitions), default=1)
    least = _least_isr(facts)
    if least > replicas:
        yield fail(
            f"min.insync.replicas={least} with {counted(replicas, 'replica')}: acks=all can never succeed", "lower it"
        )
    elif least == replicas > 1:
        yield warn(
            f"min.insync.replicas={least} with {counted(replicas, 'replica')}: no broker may fail",
            f"set it to {replicas - 1}, or add a replica",
        )
    size = int(_config(facts, "max.message.bytes") or 0)
    if 0 < size < _DEFAULT_REQUEST_BYTES - 64 * 1024:
        yield warn(
            f"max.message.bytes={size}: batches that producers make by default may be too large",
            "set max.request.size (Java) or message.max.bytes (librdkafka) to it, or raise it",
        )
    retention = int(_config(facts, "retention.ms") or -1)
    policy = _config(facts, "cleanup.policy") or ""
    if facts.lag is not None and "delete" in policy and retention > 0:
        late = [
            f"{one.topic}-{one.partition}"
            for one in facts.lag.by_partition
            if one.committed is not None and facts.log_starts.get((one.topic, one.partition), 0) > one.committed
        ]
        if late:
            yield fail(
                f"retention deleted records of {', '.join(late[:10])} that {facts.target.group} had not read",
                "raise retention.ms, or find out why the group is so late; auto.offset.reset decides where it goes on",
            )
    notes = [f"retention.ms={retention}", f"cleanup.policy={policy}", f"max.message.bytes={size}"]
    if "compact" in policy:
        notes.append("records need keys, and older ones of a key disappear")
    if _config(facts, "message.timestamp.type") == "LogAppendTime":
        notes.append("timestamps are the broker's")
    yield ok(", ".join(notes))


@check("D26", "group", "the group: coordinator, state, members, lag, idle members", "--group")
def group(facts: Facts) -> Iterator[Finding]:
    name = facts.target.group
    if name is None:
        yield skipped("no group given (--group)")
        return
    if facts.group_error is not None:
        if isinstance(facts.group_error, BrokerError) and facts.group_error.code == ErrorCode.GROUP_ID_NOT_FOUND:
            yield warn(f"there is no group {name} yet", "start a consumer, or correct group.id")
        else:
            yield fail(f"group {name}: {facts.group_error.message}", facts.group_error.remedy)
        return
    found = facts.group
    if found is None:
        return
    lag = facts.lag.total if facts.lag is not None else None
    if facts.lag_error is not None:
        yield warn(f"the lag of {name} is unknown: {facts.lag_error.message}", facts.lag_error.remedy)
    state = found.state.replace(" ", "")
    if state == "Dead":
        yield warn(f"there is no group {name} yet", "start a consumer, or correct group.id")
        return
    if not found.members:
        behind = f", and is {counted(lag, 'record')} behind" if lag else ""
        yield warn(f"{name} has no members{behind}", "start its consumers; look for why they left")
    elif state not in ("Stable", "Reconciling", "Assigning"):
        yield warn(
            f"{name} is rebalancing ({found.state}) with {counted(len(found.members), 'member')}",
            "run this again: if it stays so, a member does not join in time (max.poll.interval.ms) or they alternate",
        )
    elif state != "Stable":
        yield warn(f"{name} is rebalancing ({found.state})", "run this again: a member may keep partitions")
    idle = [member for member in found.members if not member.assignment and not member.target]
    if idle and state == "Stable":
        yield warn(
            f"{len(idle)} of {counted(len(found.members), 'member')} of {name} {_have(idle)} no partition",
            "there are more members than partitions: add partitions, or stop members",
        )
    if lag is not None and lag > _LAG_MAX and found.members:
        assert facts.lag is not None
        worst = max(facts.lag.by_partition, key=lambda one: one.records or 0)
        yield warn(
            f"{name} is {counted(lag, 'record')} behind, {worst.records:,} of them in {worst.topic}-{worst.partition}",
            "add members up to the number of partitions, or make the work on a record faster",
        )
    where = "" if facts.coordinator is None else f", coordinator {facts.coordinator}"
    yield ok(f"{name}: {found.state}, {counted(len(found.members), 'member')}, lag {lag or 0:,}{where}")


@check("D27", "transaction", "the transactional id: its state, and for how long it is open", "--txn")
def transaction(facts: Facts) -> Iterator[Finding]:
    name = facts.target.transactional_id
    if name is None:
        yield skipped("no transactional id given (--txn)")
        return
    if facts.transaction_error is not None:
        error = facts.transaction_error
        if isinstance(error, BrokerError) and error.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            yield warn(f"the coordinator does not know {name}", "start the producer, or correct transactional.id")
        else:
            yield fail(f"{name}: {error.message}", error.remedy)
        return
    found = facts.transaction
    if found is None:
        return
    if found.started_at is None:
        yield ok(f"{name}: {found.state}, no open transaction, timeout {found.timeout_ms} ms")
        return
    open_ms = facts.now_ms - found.started_at.timestamp() * 1000
    text = f"{name} is {found.state} for {open_ms / 1000:.1f} s, with a timeout of {found.timeout_ms / 1000:g} s"
    if open_ms > found.timeout_ms:
        yield fail(
            f"{text}: it hangs, and read_committed readers wait behind it",
            "abort it: kwire transactions hanging, then kwire transactions abort",
        )
    elif open_ms > _OPEN_SHARE * found.timeout_ms:
        yield warn(f"{text}: read_committed readers wait behind it", "commit sooner, or find the hung producer")
    else:
        yield ok(text)


@check("D28", "rights", "Describe, Read and Write on the topic, Read on the group", "--topic or --group")
def rights(facts: Facts) -> Iterator[Finding]:
    if facts.target.topic is None and facts.target.group is None:
        yield skipped("neither a topic nor a group given (--topic, --group)")
        return
    who = facts.target.sasl.identity if facts.target.sasl else "this client"
    if facts.topic is not None:
        if facts.topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            yield fail(f"{who} may not describe it", _grant("Describe", "topic", facts.topic.name))
        elif facts.topic.topic_authorized_operations == NOT_REQUESTED:
            yield skipped("the broker does not say what is allowed on topics")
        elif not facts.topic.error_code:
            yield from _rights(
                who, facts.topic.topic_authorized_operations, (_DESCRIBE, _READ, _WRITE), "topic", facts.topic.name
            )
    for error in (facts.group_error, facts.lag_error, facts.transaction_error):
        if isinstance(error, AuthorizationError):
            yield fail(f"{who}: {error.message}", error.remedy or "grant Describe and Read")
    if facts.group_operations is not None and facts.group_operations != NOT_REQUESTED:
        yield from _rights(who, facts.group_operations, (_DESCRIBE, _READ), "group", facts.target.group)


def _rights(who: str, operations: int, wanted: tuple[int, ...], kind: str, name: str | None) -> Iterator[Finding]:
    missing = [_OPERATIONS[one] for one in wanted if not operations >> one & 1]
    if not operations:
        yield ok(f"{kind} {name}: the broker says nothing")
    elif missing:
        yield warn(f"{who} lacks {', '.join(missing)} on {kind} {name}", _grant(", ".join(missing), kind, name))
    else:
        yield ok(f"{kind} {name}: {', '.join(_OPERATIONS[one] for one in wanted)}")


def _grant(operations: str, kind: str, name: str | None) -> str:
    return f"grant {operations} on {kind} {name} (kwire acls add)"


@check("D29", "round-trip", "one record written to partition 0 of the topic and read back", "--probe and --topic")
def probe(facts: Facts) -> Iterator[Finding]:
    if not facts.target.probe or facts.target.topic is None:
        yield skipped("writes a record: only with --probe and --topic")
        return
    found = facts.probe
    if found is None:
        yield skipped("the topic cannot be used")
        return
    steps = ", ".join(f"{name} {seconds * 1000:.1f} ms" for name, seconds in found.steps.items())
    if found.error is not None:
        yield fail(f"{found.error.message} (after {steps or 'nothing'})", found.error.remedy)
        return
    if found.throttle_ms:
        yield warn(f"a quota throttles this client by {found.throttle_ms} ms", "raise its quota (kwire quotas)")
    slow = [name for name, seconds in found.steps.items() if seconds > _SLOW_PROBE_SECONDS]
    if slow:
        yield warn(f"{steps}: {', '.join(slow)} is slow", "look at the broker's load, its disks and its replicas")
    yield ok(f"offset {found.offset}: {steps}")


@check("D30", "clock", "this machine's clock against the brokers' and the certificates' dates", "KRaft, TLS or --probe")
def clock(facts: Facts) -> Iterator[Finding]:
    for endpoint in facts.endpoints:
        if endpoint.tls is not None and endpoint.tls.not_before_ms is not None:
            early = endpoint.tls.not_before_ms - facts.now_ms
            if early > 0:
                yield fail(
                    f"the certificate of {endpoint.name} becomes valid in {early / 1000:.0f} s by this clock",
                    "set this machine's clock (NTP)",
                )
    if not facts.clocks:
        yield skipped("no broker says what time it is")
        return
    best = min(facts.clocks, key=lambda one: one.error_ms)
    ahead = best.ahead_ms / 1000
    text = f"this machine is {abs(ahead):.3f} s {'ahead of' if ahead >= 0 else 'behind'} {best.source}"
    text += f" (+-{best.error_ms:.0f} ms)"
    apart = max(0.0, abs(best.ahead_ms) - best.error_ms)
    if apart > _CLOCK_FAIL_MS:
        yield fail(f"{text}: tokens, certificates and retention by time go wrong", "set the clocks (NTP)")
    elif apart > _CLOCK_WARN_MS:
        yield warn(f"{text}: timestamps and offsets by time are off by that", "set the clocks (NTP)")
    else:
        yield ok(text)
