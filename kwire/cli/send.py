"""`kwire send Metadata '{"topics": null}'`: send one request and print the response as JSON."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from kwire.capture.json import response_errors
from kwire.cli.arguments import complete_api, find_api_at
from kwire.cli.connection import ConnectionOptions, connection_options
from kwire.cli.error_report import ExitCode
from kwire.cli.message_json import message_from_json, parse_json_object
from kwire.cli.metadata import request_metadata
from kwire.cli.output import Output, output_options
from kwire.errors import ErrorCode, UnsupportedVersionError, broker_error
from kwire.protocol import Api, ApiKey, Response

if TYPE_CHECKING:
    from kwire.cluster import LoopThread, Route, ToLeader, ToNode

_ERRORS_SHOWN_MAX = 5


@click.command()
@click.argument("api_text", metavar="API[@VERSION]", shell_complete=complete_api)
@click.argument("text", metavar="[JSON|-]", default="-")
@click.option("--broker", type=int, metavar="ID", help="Send to this broker. Default: to any broker.")
@click.option("--leader", metavar="TOPIC:PARTITION", help="Send to the leader of this partition.")
@click.option("--coordinator", metavar="GROUP", help="Send to the coordinator of this consumer group.")
@click.option("--transaction", metavar="ID", help="Send to the coordinator of this transactional id.")
@click.option("--controller", is_flag=True, help="Send to the controller.")
@click.option("--show-secrets", is_flag=True, help="Show tokens and passwords in the response instead of asterisks.")
@connection_options
@output_options
def command(
    api_text: str, text: str, broker: int | None, leader: str | None, coordinator: str | None, transaction: str | None,
    controller: bool, show_secrets: bool, connection: ConnectionOptions, output: Output,
) -> ExitCode:  # fmt: skip
    """Send one request, written as JSON, and print the response.

    JSON holds the fields of the request as `kwire schema API` lists them; those with a default may be left out. Without
    JSON, they are read from stdin until its end (Ctrl-D on a terminal). Without VERSION, the highest version of both
    sides is used. The exit code is 1 if any errorCode in the response is not 0.

    \b
        kwire send DescribeCluster@0 '{}'
        kwire send FindCoordinator@2 '{"key": "my-group", "keyType": 0}'
        kwire send DescribeGroups --coordinator g '{"groups": ["g"]}'
        kwire send Heartbeat@0 --coordinator g '{"groupId": "g", "generationId": 1, "memberId": "m"}'
    """
    from kwire.cluster import LoopThread, ToLeader

    found, wanted = find_api_at(api_text)
    if text == "-" and sys.stdin.isatty():
        output.note(f"Reading the fields of {found.name} as JSON from this terminal: type them, then press Ctrl-D.")
        output.note(
            f"(Or give them as an argument: kwire send {api_text} '{{}}'. `kwire schema {found.name}` lists them.)"
        )
    fields = parse_json_object(sys.stdin.read() if text == "-" else text)
    if found.key == ApiKey.PRODUCE and fields.get("acks") == 0:
        raise click.UsageError("a Produce with acks 0 has no response: give acks 1 or -1")
    route = _route(broker, leader, coordinator, transaction, controller)
    used: list[int] = []

    def build(version: int) -> Any:
        if wanted is not None and version != wanted:
            raise UnsupportedVersionError(
                f"the broker has {found.name} only up to version {version}, not {wanted}",
                remedy="see `kwire versions`",
            )
        used[:] = [version]
        return message_from_json(found.request, fields, version)

    with closing(LoopThread(connection.config())) as loop_thread:
        if isinstance(route, ToLeader):
            route = _leader(loop_thread, route, connection.timeout)
        response: Any = loop_thread.request(
            route, found.request, build, connection.timeout, at_most=wanted, may_retry=False
        )
    version = used[0]
    output.note(f"{found.name} v{version}")
    fields_json = (response if show_secrets else _masked(response, found, version)).to_json(version)
    if output.is_table:
        output.text(json.dumps(fields_json, indent=2, ensure_ascii=False))
    else:
        output.json(fields_json)
    errors = list(response_errors(fields_json))
    for error in errors[:_ERRORS_SHOWN_MAX]:
        output.note(f"{error.path}: {error.name}, see `kwire error {error.code}`")
    return ExitCode.KAFKA if errors else ExitCode.OK


def _masked(response: Response, found: Api, version: int) -> Response:
    """Return the response with asterisks in place of secrets, such as the HMAC of a delegation token."""
    from kwire.capture.decoded_frame import decode_body
    from kwire.capture.secrets import MASKED

    if not MASKED.concerns(found):
        return response
    body = response.encode(version)
    return type(response).decode(MASKED.mask_frame(body, decode_body(body, 0, "response", found, version), 0), version)


def _leader(loop_thread: LoopThread, route: ToLeader, timeout: float) -> ToNode:
    """Return the leader of the partition.

    Requested here, because the event loop keeps metadata only of topics in use.
    """
    from kwire.cluster import ToNode

    (topic,) = request_metadata(loop_thread, [route.topic], timeout).topics
    found = next((one for one in topic.partitions if one.partition_index == route.partition), None)
    code = topic.error_code or (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if found is None else found.error_code)
    if found is None or found.leader_id < 0:
        raise broker_error(code, topic=route.topic, partition=route.partition, remedy="see `kwire metadata`")
    return ToNode(found.leader_id)


def _route(
    broker: int | None, leader: str | None, coordinator: str | None, transaction: str | None, controller: bool
) -> Route:
    from kwire.cluster import ToAny, ToController, ToCoordinator, ToLeader, ToNode

    routes: list[Route] = []
    if broker is not None:
        routes.append(ToNode(broker))
    if leader is not None:
        topic, _, partition = leader.rpartition(":")
        if not topic or not partition.isdigit():
            raise click.UsageError(f"--leader {leader} is not TOPIC:PARTITION")
        routes.append(ToLeader(topic, int(partition)))
    if coordinator is not None:
        routes.append(ToCoordinator(coordinator))
    if transaction is not None:
        routes.append(ToCoordinator(transaction, "transaction"))
    if controller:
        routes.append(ToController())
    if len(routes) > 1:
        raise click.UsageError(
            "a request goes to one broker: give one of --broker, --leader, --coordinator, --transaction, --controller"
        )
    return routes[0] if routes else ToAny()
