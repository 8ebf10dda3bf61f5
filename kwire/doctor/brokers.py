"""Checks D13, D14 and D19 to D23: versions, features, and the brokers that the cluster advertises."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address

from kwire.doctor.check import Finding, check, counted, fail, ok, warn
from kwire.doctor.facts import Endpoint, Facts
from kwire.errors import UnsupportedVersionError
from kwire.protocol import ApiKey, api
from kwire.protocol.releases import RELEASES, release_versions

# What every client needs, and what each use needs besides.
_NEEDED = (ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS)
_NEEDED_BY_GROUPS = (ApiKey.FIND_COORDINATOR, ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH)
_NEEDED_BY_TRANSACTIONS = (ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN)
_OLD_RELEASE = "2.1"  # the oldest that Java's clients of 4.x speak to
_FEATURES = ("metadata.version", "transaction.version", "group.version", "share.version")


@check("D13", "versions", "the brokers' release, and the APIs that this client needs", "ApiVersions")
def versions(facts: Facts) -> Iterator[Finding]:
    needed = [*_NEEDED]
    needed += _NEEDED_BY_GROUPS if facts.target.group else ()
    needed += _NEEDED_BY_TRANSACTIONS if facts.target.transactional_id else ()
    for endpoint in facts.endpoints:
        if isinstance(endpoint.error, UnsupportedVersionError):
            yield fail(f"{endpoint.name}: {endpoint.error.message}", "upgrade the broker, or use an older client")
        if endpoint.versions is None:
            continue
        missing = [key.api_name for key in needed if not _in_common(endpoint.versions, key)]
        release = nearest_release(endpoint.versions)
        if missing:
            yield fail(f"{endpoint.name} (about {release}) lacks {', '.join(missing)}", "upgrade the broker")
        elif RELEASES.index(release) < RELEASES.index(_OLD_RELEASE):
            yield warn(
                f"{endpoint.name} is about Kafka {release}, which clients of 4.x do not speak to",
                f"upgrade the broker to {_OLD_RELEASE} or later",
            )
        else:
            yield ok(f"{endpoint.name}: about Kafka {release}")


def _in_common(offered: Mapping[int, range], key: ApiKey) -> bool:
    theirs, ours = offered.get(key, range(0)), api(key).versions
    return max(theirs.start, ours.start) < min(theirs.stop, ours.stop)


def nearest_release(offered: Mapping[int, range]) -> str:
    """Return the release whose versions are the most like these."""

    def unlike(release: str) -> int:
        history = release_versions(release, has_zookeeper=False)
        return sum(offered[key] != history.get(key, range(0)) for key in offered)

    return min(reversed(RELEASES), key=unlike)


@check("D14", "features", "finalized features: metadata, transaction, group and share version", "ApiVersions")
def features(facts: Facts) -> Iterator[Finding]:
    seen: dict[str, set[int]] = defaultdict(set)
    for endpoint in facts.advertised:
        if endpoint.versions is not None:
            for name in {*_FEATURES, *endpoint.features}:
                seen[name].add(endpoint.features.get(name, 0))
    for name, levels in sorted(seen.items()):
        if len(levels) > 1:
            yield warn(f"{name} differs between brokers: {sorted(levels)}", "wait for the upgrade to reach all brokers")
    if seen:
        shown = ", ".join(f"{name}={max(levels)}" for name, levels in sorted(seen.items()) if max(levels))
        yield ok(shown or "none: a cluster before Kafka 3.3, or with ZooKeeper")


@check("D19", "metadata", "Metadata answers, and all bootstrap addresses are of one cluster", "a connection")
def metadata(facts: Facts) -> Iterator[Finding]:
    found: dict[str, list[str]] = defaultdict(list)
    for endpoint in facts.bootstrap:
        if endpoint.metadata is not None:
            found[endpoint.metadata.cluster_id or "(no id)"].append(endpoint.address)
        elif endpoint.stage == "metadata" and endpoint.error is not None:
            yield fail(f"{endpoint.name}: {endpoint.error.message}", endpoint.error.remedy or "look at its log")
        elif endpoint.error is not None and endpoint.stage in ("name", "tcp") and facts.is_connected:
            yield warn(f"{endpoint.name} did not answer: {endpoint.error.message}", "see D01, D06 and D07")
    if len(found) > 1:
        shown = "; ".join(f"{', '.join(addresses)}: {cluster}" for cluster, addresses in found.items())
        yield fail(
            f"the bootstrap addresses belong to {len(found)} clusters: {shown}", "name the brokers of one cluster only"
        )
    elif found:
        yield ok(f"cluster {next(iter(found))} by {counted(len(facts.bootstrap), 'bootstrap address')}")


@check("D20", "controller", "the controller is known, and answers (KRaft); how many brokers", "a connection")
def controller(facts: Facts) -> Iterator[Finding]:
    if facts.first is None or facts.first.metadata is None:
        return
    known = facts.first.metadata
    ids = sorted(broker.node_id for broker in known.brokers)
    if known.controller_id < 0:
        yield fail("the cluster has no controller", "look at the controllers' logs: topics and leaders cannot change")
    elif known.controller_id not in ids:
        yield warn(f"the controller {known.controller_id} is not among the brokers {ids}", "look at its log")
    elif facts.controller_error is not None:
        yield fail(
            f"the brokers name controller {known.controller_id}, but no controller answers: "
            f"{facts.controller_error.message}",
            "look whether most of the controllers run, and at their logs: topics and leaders cannot change",
        )
    else:
        yield ok(f"{counted(len(ids), 'broker')}, controller {known.controller_id}")


@check("D21", "advertised", "each advertised broker: name, TCP, TLS, SASL, same cluster, its own id", "a connection")
def advertised(facts: Facts) -> Iterator[Finding]:
    first = facts.first
    cluster = first.metadata.cluster_id if first is not None and first.metadata is not None else None
    good = 0
    for endpoint in facts.advertised:
        where = f"set advertised.listeners on broker {endpoint.node} to an address that its clients reach"
        if endpoint.error is not None:
            yield fail(
                f"broker {endpoint.node} says {endpoint.address}: {endpoint.error.message}.{_lost(facts, endpoint)}",
                f"start broker {endpoint.node} if it is down; else {where}"
                if endpoint.stage == "tcp"
                else where
                if endpoint.stage == "name"
                else endpoint.error.remedy,
            )
        elif endpoint.metadata is not None and endpoint.metadata.cluster_id != cluster:
            yield fail(
                f"broker {endpoint.node} says {endpoint.address}, where cluster {endpoint.metadata.cluster_id} "
                f"answers and not {cluster}.{_lost(facts, endpoint)}",
                where,
            )
        elif endpoint.other_node is not None:
            yield fail(
                f"broker {endpoint.node} says {endpoint.address}, where broker {endpoint.other_node} answers."
                f"{_lost(facts, endpoint)}",
                where,
            )
        else:
            good += 1
    if good:
        yield ok(f"{good} of {counted(len(facts.advertised), 'broker')} {_answers(good)} own address")


def _answers(number: int) -> str:
    return "answers at its" if number == 1 else "answer at their"


def _lost(facts: Facts, endpoint: Endpoint) -> str:
    """Return which partitions of the target's topic a client cannot reach."""
    if facts.topic is None:
        return ""
    lost = [one.partition_index for one in facts.topic.partitions if one.leader_id == endpoint.node]
    if not lost:
        return ""
    shown = ", ".join(map(str, lost[:20])) + (", ..." if len(lost) > 20 else "")
    return f" This client cannot reach partition{'' if len(lost) == 1 else 's'} {shown} of {facts.topic.name}"


@check("D22", "addresses", "one address for each broker, in the network of the bootstrap addresses", "a connection")
def addresses(facts: Facts) -> Iterator[Finding]:
    if not facts.advertised:
        return
    at: dict[str, set[int]] = defaultdict(set)
    of: dict[int, set[str]] = defaultdict(set)
    for endpoint in facts.advertised:
        at[endpoint.address].add(endpoint.node or 0)
        of[endpoint.node or 0].add(endpoint.address)
    for address, nodes in at.items():
        if len(nodes) > 1:
            yield fail(
                f"brokers {', '.join(map(str, sorted(nodes)))} advertise the same address {address}",
                "give each broker an address or a port of its own: clients reach only one of them",
            )
    for node, found in of.items():
        if len(found) > 1:
            yield warn(
                f"bootstrap addresses disagree about broker {node}: {', '.join(sorted(found))}",
                "they are different listeners, or different clusters: give addresses of one listener",
            )
    private = {_is_private(one) for one in facts.bootstrap} - {None}
    for endpoint in facts.advertised:
        if private == {False} and _is_private(endpoint):
            yield warn(
                f"bootstrap is a public address, and broker {endpoint.node} advertises the private {endpoint.address}",
                "use a listener whose advertised address is public, or connect from inside",
            )
    yield ok(f"{counted(len(at), 'address')} for {counted(len(of), 'broker')}")


def _is_private(endpoint: Endpoint) -> bool | None:
    if endpoint.resolved is None or not endpoint.resolved.addresses:
        return None
    address: IPv4Address | IPv6Address = ip_address(str(endpoint.resolved.addresses[0].sockaddr[0]).partition("%")[0])
    return address.is_private


@check("D23", "upgrade", "all brokers have the same versions", "a connection")
def upgrade(facts: Facts) -> Iterator[Finding]:
    known = [one for one in facts.advertised if one.versions is not None]
    if not known:
        return
    kinds = Counter(tuple(sorted((key, one.stop) for key, one in (broker.versions or {}).items())) for broker in known)
    if len(kinds) == 1:
        yield ok("1 broker" if len(known) == 1 else f"{len(known)} brokers with the same versions")
        return
    shown = ", ".join(f"{one.node}: about {nearest_release(one.versions or {})}" for one in known)
    yield warn(
        f"brokers have different versions ({shown}): a rolling upgrade", "finish the upgrade; it is no state to stay in"
    )
