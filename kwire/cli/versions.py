"""`kwire versions`: which versions of each API every broker speaks, and which kwire would use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from kwire.cli.apis import known_apis, span
from kwire.cli.connection import Connection, connection_options
from kwire.cli.failures import ExitCode, exit_code, report
from kwire.cli.metadata import ask_metadata
from kwire.cli.output import Output, counted, output_options, styled
from kwire.cli.releases import RELEASES, differences, has_zookeeper, maybe_release, nearest_release
from kwire.errors import ErrorCode, KwireError, UnsupportedVersionError, broker_error
from kwire.protocol import ApiKey
from kwire.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kwire.session.versions import BROKERS_BEFORE_API_VERSIONS
from kwire.version import VERSION

if TYPE_CHECKING:
    from kwire.cluster import LoopThread


@dataclass(frozen=True, slots=True)
class BrokerVersions:
    """What one broker answered; `answer` None where it is too old to be asked, and kwire takes it for a 0.8.2."""

    node: int
    address: str
    answer: ApiVersionsResponse | None

    @property
    def ranges(self) -> dict[int, range]:
        if self.answer is None:
            return dict(BROKERS_BEFORE_API_VERSIONS["0.8.2"])
        answered = self.answer.api_keys
        return {one.api_key: range(one.min_version, one.max_version + 1) for one in answered}


@click.command()
@click.option("--release", "release_text", metavar="X.Y", help="What the brokers lack of this release, or have beyond.")
@connection_options
@output_options
def command(release_text: str | None, connection: Connection, output: Output) -> ExitCode:
    """Which versions of each API the brokers speak.

    A column for each group of brokers that speak the same; several mean a rolling upgrade. "used" is what kwire would
    negotiate with all of them. With --release only the APIs that differ from that release's are listed.

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
    with closing(LoopThread(connection.config())) as runtime:
        cluster = ask_metadata(runtime, [], connection.timeout)
        for broker in sorted(cluster.brokers, key=lambda broker: broker.node_id):
            try:
                answer = _ask(runtime, broker.node_id, connection.timeout)
            except KwireError as error:
                report(error)
                status = exit_code(error)
                continue
            found.append(BrokerVersions(broker.node_id, show_address(broker.host, broker.port), answer))
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
        raise click.UsageError(f"--release {text}: known are {', '.join(RELEASES)}")
    return found


def show_differences(brokers: list[BrokerVersions], release: str, output: Output) -> None:
    """What each group of like brokers lacks of a release and has beyond it."""
    for ranges, group in _groups(brokers):
        nodes = [broker.node for broker in group]
        found = differences(ranges, release)
        rows = []
        for key, (theirs, ours) in found.items():
            lacks, beyond = without(theirs, ours), without(ours, theirs)
            if output.is_table:
                texts = [", ".join(map(span, one)) for one in (lacks, beyond)]
                rows.append([key, _name(key), span(theirs), span(ours), *texts])
                continue
            output.json({
                "kind": "difference", "release": release, "brokers": nodes, "api_key": key,
                "name": _name(key) if key in set(ApiKey) else None, "release_versions": _ends(theirs),
                "broker_versions": _ends(ours), "lacks": [_ends(one) for one in lacks],
                "beyond": [_ends(one) for one in beyond],
            })  # fmt: skip
        who = f"broker{'s' if len(nodes) > 1 else ''} {_some(nodes)}"
        if output.is_table and rows:
            columns = ["key", "api", f"Kafka {release}", who, "lacks", "beyond"]
            output.table(columns, rows, right=["key"], whole=["api"])
        nearest, count = nearest_release(ranges)
        mode = " with ZooKeeper" if has_zookeeper(ranges) and "2.8" <= release < "4" else ""
        text = f"{who}: {counted(len(found), 'API')} unlike Kafka {release}{mode}"
        output.note(f"{text}; the nearest release is {nearest}{f' ({count} differ)' if count else ', exactly'}")


def without(versions: range, others: range) -> list[range]:
    """What is left of a range, one piece or two.

    >>> without(range(0, 10), range(3, 5))
    [range(0, 3), range(5, 10)]
    """
    if not others:
        return [versions] if versions else []
    before = range(versions.start, min(versions.stop, others.start))
    after = range(max(versions.start, others.stop), versions.stop)
    return [piece for piece in (before, after) if piece]


def _groups(brokers: list[BrokerVersions]) -> list[tuple[dict[int, range], list[BrokerVersions]]]:
    """The brokers that speak the same, together."""
    groups: dict[tuple[tuple[int, range], ...], list[BrokerVersions]] = {}
    for broker in brokers:
        groups.setdefault(tuple(sorted(broker.ranges.items(), key=lambda item: item[0])), []).append(broker)
    return [(dict(ranges), group) for ranges, group in groups.items()]


def _ask(runtime: LoopThread, node: int, timeout: float) -> ApiVersionsResponse | None:
    from kwire.cluster import ToNode

    def build(version: int) -> ApiVersionsRequest:
        return ApiVersionsRequest(client_software_name="kwire", client_software_version=VERSION)

    try:
        response = runtime.ask(ToNode(node), ApiVersionsRequest, build, timeout)
    except UnsupportedVersionError:
        return None
    if response.error_code not in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION):
        raise broker_error(response.error_code, broker=runtime.describe(node), api="ApiVersions")
    return response


def negotiated(ours: range | None, brokers: list[BrokerVersions], key: int) -> int | None:
    """The highest version that kwire and every one of the brokers speak."""
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
    """Every API that anybody speaks, and ours."""
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
        if broker.answer is None:
            yield {**line, "has_api_versions": False}
            continue
        yield {
            **line,
            "has_api_versions": True,
            "supported_features": {
                one.name: [one.min_version, one.max_version] for one in broker.answer.supported_features
            },
            "finalized_features": {one.name: one.max_version_level for one in broker.answer.finalized_features},
            "finalized_features_epoch": broker.answer.finalized_features_epoch,
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
        if broker.answer is None:
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
                span(ours.get(key, range(0))),
                *(_range_cell(one, is_same=len(set(ranges)) == 1) for one in ranges),
                used if used is not None else styled("-", "dim"),
            ]
        )
    output.table(["key", "api", "kwire", *headings, "used"], rows, right=["key", "used"], whole=["api"])
    if absent:
        output.text(f"kwire knows {len(absent)} more APIs that none of these brokers has (-f json shows them)")
    _show_features(brokers, output)


def _some(nodes: list[int]) -> str:
    shown = ",".join(map(str, nodes[:6]))
    return shown if len(nodes) <= 6 else f"{shown},... ({len(nodes)})"


def _range_cell(versions: range | None, *, is_same: bool) -> object:
    text = span(versions or range(0))
    return text if is_same else styled(text, "yellow")


def _show_features(brokers: list[BrokerVersions], output: Output) -> None:
    newest = max(
        (broker.answer for broker in brokers if broker.answer), key=lambda a: a.finalized_features_epoch, default=None
    )
    if newest is None or not (newest.finalized_features or newest.supported_features):
        return
    finalized = {one.name: one.max_version_level for one in newest.finalized_features}
    rows = [
        [one.name, span(range(one.min_version, one.max_version + 1)), finalized.pop(one.name, "-")]
        for one in newest.supported_features
    ]
    rows += [[name, "", level] for name, level in finalized.items()]
    output.text()
    output.table(["feature", "supported", "finalized"], sorted(rows, key=lambda row: str(row[0])), right=["finalized"])
