"""`kwire versions`: which versions of each API the brokers have, and which kwire would use.

`--release 3.9` compares them with the table of Kafka's releases in `kwire.protocol.releases`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from kwire.capture.apis import known_apis, range_text
from kwire.cli.connection import ConnectionOptions, connection_options
from kwire.cli.error_report import ExitCode, exit_code, report_error
from kwire.cli.metadata import request_metadata
from kwire.cli.output import Output, counted, output_options, styled
from kwire.errors import ErrorCode, KwireError, UnsupportedVersionError, broker_error
from kwire.protocol import ApiKey
from kwire.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kwire.protocol.releases import RELEASES, release_versions
from kwire.session.versions import BROKERS_BEFORE_API_VERSIONS
from kwire.version import VERSION

if TYPE_CHECKING:
    from kwire.cluster import LoopThread


@dataclass(frozen=True, slots=True)
class BrokerVersions:
    """The response of one broker; `response` is None if the broker predates ApiVersions. kwire takes it for a 0.8.2."""

    node: int
    address: str
    response: ApiVersionsResponse | None

    @property
    def ranges(self) -> dict[int, range]:
        if self.response is None:
            return dict(BROKERS_BEFORE_API_VERSIONS["0.8.2"])
        return {one.api_key: range(one.min_version, one.max_version + 1) for one in self.response.api_keys}


@click.command()
@click.option("--release", "release_text", metavar="X.Y", help="Compare the brokers with this Kafka release.")
@connection_options
@output_options
def command(release_text: str | None, connection: ConnectionOptions, output: Output) -> ExitCode:
    """Which versions of each API the brokers have.

    Each column is a group of brokers with equal versions; several columns mean a rolling upgrade. "used" is what kwire
    would negotiate with all brokers. With --release, only the APIs that differ from that release are listed.

    \b
        kwire versions -b localhost:9092
        kwire versions -b localhost:9092 --release 3.9
        kwire versions | jq -c 'select(.kind == "api" and .name == "Fetch")'
    """
    from kwire.cluster import LoopThread
    from kwire.net import show_address

    release = _release(release_text) if release_text is not None else None
    status = ExitCode.OK
    found: list[BrokerVersions] = []
    with closing(LoopThread(connection.config())) as loop_thread:
        cluster = request_metadata(loop_thread, [], connection.timeout)
        for broker in sorted(cluster.brokers, key=lambda broker: broker.node_id):
            try:
                response = _api_versions(loop_thread, broker.node_id, connection.timeout)
            except KwireError as error:
                report_error(error)
                status = exit_code(error)
                continue
            found.append(BrokerVersions(broker.node_id, show_address(broker.host, broker.port), response))
    if release is not None:
        show_differences(found, release, output)
    elif output.is_table:
        _show(found, output)
    else:
        for line in _lines(found):
            output.json(line)
    return status


def _release(text: str) -> str:
    found = maybe_release(text)
    if found is None:
        raise click.UsageError(f"--release {text}: kwire knows {', '.join(RELEASES)}")
    return found


def show_differences(brokers: list[BrokerVersions], release: str, output: Output) -> None:
    """Print what each group of equal brokers lacks of a release, and has beyond it."""
    for ranges, group in _groups(brokers):
        nodes = [broker.node for broker in group]
        found = differences(ranges, release)
        rows = []
        for key, (theirs, ours) in found.items():
            lacks, beyond = range_difference(theirs, ours), range_difference(ours, theirs)
            if output.is_table:
                texts = [", ".join(map(range_text, one)) for one in (lacks, beyond)]
                rows.append([key, _name(key), range_text(theirs), range_text(ours), *texts])
                continue
            output.json({
                "kind": "difference", "release": release, "brokers": nodes, "api_key": key,
                "name": _name(key) if key in set(ApiKey) else None, "release_versions": _ends(theirs),
                "broker_versions": _ends(ours), "lacks": [_ends(one) for one in lacks],
                "beyond": [_ends(one) for one in beyond],
            })  # fmt: skip
        heading = f"broker{'s' if len(nodes) > 1 else ''} {_some(nodes)}"
        if output.is_table and rows:
            columns = ["key", "api", f"Kafka {release}", heading, "lacks", "beyond"]
            output.table(columns, rows, right=["key"], whole=["api"])
        nearest, count = nearest_release(ranges)
        mode = " with ZooKeeper" if has_zookeeper(ranges) and "2.8" <= release < "4" else ""
        text = f"{heading}: {counted(len(found), 'API')} unlike Kafka {release}{mode}"
        output.note(f"{text}; the nearest release is {nearest}{f' ({count} differ)' if count else ', exactly'}")


def range_difference(versions: range, others: range) -> list[range]:
    """Return what is left of a range, in one part or two.

    >>> range_difference(range(0, 10), range(3, 5))
    [range(0, 3), range(5, 10)]
    """
    if not others:
        return [versions] if versions else []
    before = range(versions.start, min(versions.stop, others.start))
    after = range(max(versions.start, others.stop), versions.stop)
    return [piece for piece in (before, after) if piece]


def _groups(brokers: list[BrokerVersions]) -> list[tuple[dict[int, range], list[BrokerVersions]]]:
    """Group the brokers that have the same versions."""
    groups: dict[tuple[tuple[int, range], ...], list[BrokerVersions]] = {}
    for broker in brokers:
        groups.setdefault(tuple(sorted(broker.ranges.items(), key=lambda item: item[0])), []).append(broker)
    return [(dict(ranges), group) for ranges, group in groups.items()]


def _api_versions(loop_thread: LoopThread, node: int, timeout: float) -> ApiVersionsResponse | None:
    from kwire.cluster import ToNode

    def build(version: int) -> ApiVersionsRequest:
        return ApiVersionsRequest(client_software_name="kwire", client_software_version=VERSION)

    try:
        response = loop_thread.request(ToNode(node), ApiVersionsRequest, build, timeout)
    except UnsupportedVersionError:
        return None
    if response.error_code not in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION):
        raise broker_error(response.error_code, broker=loop_thread.describe(node), api="ApiVersions")
    return response


def negotiated(ours: range | None, brokers: list[BrokerVersions], key: int) -> int | None:
    """Return the highest version that kwire and all of the brokers have."""
    theirs = [broker.ranges.get(key) for broker in brokers]
    if ours is None or not theirs:
        return None
    least, most = ours.start, ours.stop
    for one in theirs:
        if one is None:
            return None
        least, most = max(least, one.start), min(most, one.stop)
    return most - 1 if most > least else None


def _keys(brokers: list[BrokerVersions]) -> tuple[list[int], dict[int, range]]:
    """Return the keys of all APIs of kwire and the brokers, and kwire's versions."""
    ours = {int(api.key): api.versions for api in known_apis()}
    return sorted({*ours, *(key for broker in brokers for key in broker.ranges)}), ours


def _name(key: int) -> str:
    return ApiKey(key).api_name if key in set(ApiKey) else f"(unknown {key})"


def _lines(brokers: list[BrokerVersions]) -> Iterator[dict[str, Any]]:
    for broker in brokers:
        nearest, count = nearest_release(broker.ranges)
        line: dict[str, Any] = {
            "kind": "broker", "id": broker.node, "address": broker.address, "nearest_release": nearest,
            "apis_unlike_it": count,
        }  # fmt: skip
        if broker.response is None:
            yield {**line, "has_api_versions": False}
            continue
        yield {
            **line,
            "has_api_versions": True,
            "supported_features": {
                one.name: [one.min_version, one.max_version] for one in broker.response.supported_features
            },
            "finalized_features": {one.name: one.max_version_level for one in broker.response.finalized_features},
            "finalized_features_epoch": broker.response.finalized_features_epoch,
        }
    keys, ours = _keys(brokers)
    for key in keys:
        yield {
            "kind": "api",
            "api_key": key,
            "name": _name(key) if key in set(ApiKey) else None,
            "kwire": _ends(ours.get(key)),
            "brokers": {str(broker.node): _ends(broker.ranges.get(key)) for broker in brokers},
            "used": negotiated(ours.get(key), brokers, key),
        }


def _ends(versions: range | None) -> list[int] | None:
    return [versions.start, versions.stop - 1] if versions else None


def _show(brokers: list[BrokerVersions], output: Output) -> None:
    for broker in brokers:
        if broker.response is None:
            output.text(f"broker {broker.node} at {broker.address} is older than ApiVersions (0.10): taken for a 0.8.2")
    keys, ours = _keys(brokers)
    members = [group for _, group in _groups(brokers)]
    headings = [f"broker{'s' if len(group) > 1 else ''} {_some([b.node for b in group])}" for group in members]
    rows = []
    absent = [key for key in keys if not any(broker.ranges.get(key) for broker in brokers)]
    for key in keys:
        if key in absent:
            continue
        ranges = [group[0].ranges.get(key) for group in members]
        used = negotiated(ours.get(key), brokers, key)
        name = _name(key)
        rows.append(
            [
                key,
                name if key in ours else styled(name, "dim"),
                range_text(ours.get(key, range(0))),
                *(_range_cell(one, is_same=len(set(ranges)) == 1) for one in ranges),
                used if used is not None else styled("-", "dim"),
            ]
        )
    output.table(["key", "api", "kwire", *headings, "used"], rows, right=["key", "used"], whole=["api"])
    if absent:
        output.text(f"kwire knows {len(absent)} more APIs that none of these brokers has (-f json shows them)")
    _show_features(brokers, output)


def _some(nodes: list[int]) -> str:
    listed = ",".join(map(str, nodes[:6]))
    return listed if len(nodes) <= 6 else f"{listed},... ({len(nodes)})"


def _range_cell(versions: range | None, *, is_same: bool) -> object:
    text = range_text(versions or range(0))
    return text if is_same else styled(text, "yellow")


def _show_features(brokers: list[BrokerVersions], output: Output) -> None:
    newest = max(
        (broker.response for broker in brokers if broker.response),
        key=lambda a: a.finalized_features_epoch,
        default=None,
    )
    if newest is None or not (newest.finalized_features or newest.supported_features):
        return
    finalized = {one.name: one.max_version_level for one in newest.finalized_features}
    rows = [
        [one.name, range_text(range(one.min_version, one.max_version + 1)), finalized.pop(one.name, "-")]
        for one in newest.supported_features
    ]
    rows += [[name, "", level] for name, level in finalized.items()]
    output.text()
    output.table(["feature", "supported", "finalized"], sorted(rows, key=lambda row: str(row[0])), right=["finalized"])


# Only brokers with a plugin for client telemetry report these.
OPTIONAL = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY})


def maybe_release(text: str) -> str | None:
    """Return the release of 3.9, 3.9.1, v3.9 or 0.10.1.1; None if the table has none."""
    numbers = text.lstrip("v").split(".")
    for size in (3, 2):
        if (name := ".".join(numbers[:size])) in RELEASES:
            return name
    return None


def has_zookeeper(versions: Mapping[int, range]) -> bool:
    """Return whether a broker with these versions uses ZooKeeper: its controller then sends it UpdateMetadata."""
    return int(ApiKey.UPDATE_METADATA) in versions


def differences(versions: Mapping[int, range], release: str) -> dict[int, tuple[range, range]]:
    """Return {API key: (the release's versions, the broker's)} where they differ; an empty range means none."""
    theirs = release_versions(release, has_zookeeper=has_zookeeper(versions))
    found = {}
    for key in sorted({*versions, *theirs}):
        pair = (theirs.get(key, range(0)), versions.get(key, range(0)))
        if pair[0] != pair[1] and not (key in OPTIONAL and not pair[1]):
            found[key] = pair
    return found


def nearest_release(versions: Mapping[int, range]) -> tuple[str, int]:
    """Return (release, number of different APIs) of the most similar release; the newest of several."""
    counts = [(release, len(differences(versions, release))) for release in reversed(RELEASES)]
    return min(counts, key=lambda one: one[1])
