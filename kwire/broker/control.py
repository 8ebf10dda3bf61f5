"""An HTTP interface to a running cluster, for tests in other languages: faults, brokers, topics, the request log.

    GET    /                                     the brokers, the topics with their leaders
    GET    /faults         DELETE /faults        the faults that are not spent; remove all
    POST   /faults         {"effect": "Delay", "ms": 50, "api": "Produce", "times": "all"}      returns its id
    DELETE /faults/ID
    POST   /brokers/ID/stop | start | freeze | thaw
    POST   /brokers/ID/serve-as                  {"version": "3.9"}
    POST   /topics         {"name": "t", "partitions": 3, "replication_factor": 1, "configs": {}}
    DELETE /topics/NAME    POST /topics/NAME/compact
    POST   /topics/NAME/PARTITION/leader         {"broker": 2}
    POST   /topics/NAME/PARTITION/told-leader    {"broker": 2, "nodes": [1]}; null ends it
    GET    /topics/NAME/PARTITION                offsets of the log
    GET    /groups/GROUP/offsets                 committed offsets
    GET    /requests?api=Produce&client_id=app   the request log           DELETE /requests

Bodies and answers are JSON. An error has the status 400, 404 (GET or DELETE of what does not exist), 409 (the cluster
refused) or 501, and says why and what helps.
Whoever reaches the port may do everything, so it listens on this machine only, and refuses requests of web pages.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from kwire.broker.cluster import Cluster
from kwire.broker.cluster_state import ClusterState
from kwire.broker.diagnostics import logger
from kwire.broker.fault_file import parse_fault
from kwire.broker.faults import Fault
from kwire.errors import (
    BrokerError,
    ConfigurationError,
    ConnectError,
    ErrorCode,
    KwireError,
    UnsupportedVersionError,
)
from kwire.protocol import api

_BODY_MAX = 1 << 20
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_POLL_SECONDS = 0.05
_READ_SECONDS = 10.0
_MISSING = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


class _NotFoundError(Exception):
    """There is no such path, or no such thing."""


class ControlServer:
    """Serves HTTP for one cluster on threads of its own, from construction until `close`."""

    def __init__(self, cluster: Cluster, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen; port 0 is any free one. Raises ConfigurationError for another host than this one, ConnectError."""
        if host not in _LOOPBACK:
            raise ConfigurationError(f"the control port cannot listen on {host}", remedy="give 127.0.0.1 or localhost")
        controls = _Controls(cluster)

        class Handler(_Handler):
            pass

        Handler.controls = controls
        try:
            self._server = ThreadingHTTPServer((host, port), Handler)
        except OSError as error:
            raise ConnectError(f"cannot listen on {host}:{port}: {error}", remedy="choose another port") from error
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_SECONDS,), name="kwire-broker-control", daemon=True
        )
        self._thread.start()

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._server.server_address[:2]
        return str(host), int(port)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening and join the thread. Further calls do nothing."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Controls:
    """What the requests do. Each method returns what the answer has as JSON."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._faults: dict[int, Fault] = {}
        self._lock = threading.Lock()  # of _faults: each request has a thread

    def run(self, method: str, path: str, query: Mapping[str, str], body: Mapping[str, Any]) -> Any:
        """Carry out a request. Raises _NotFoundError, ConfigurationError or BrokerError."""
        parts = tuple(unquote(part) for part in path.split("/") if part)
        match method, parts:
            case "GET", ():
                return self._state()
            case "GET", ("faults",):
                return self._list_faults()
            case "POST", ("faults",):
                return self._add_fault(body)
            case "DELETE", ("faults",):
                self._cluster.clear_faults()
                return {}
            case "DELETE", ("faults", id):
                return self._remove_fault(_number(id, "fault"))
            case "POST", ("brokers", id, "stop" | "start" | "freeze" | "thaw" as action):
                return self._control_broker(_number(id, "broker"), action)
            case "POST", ("brokers", id, "serve-as"):
                _check_keys(body, "version")
                version = None if body["version"] is None else _field(body, "version", str)
                self._cluster.serve_as(_number(id, "broker"), version)
                return {}
            case "POST", ("topics",):
                return self._create_topic(body)
            case "DELETE", ("topics", name):
                self._cluster.delete_topic(name)
                return {}
            case "POST", ("topics", name, "compact"):
                self._cluster.compact(name)
                return {}
            case "GET", ("topics", name, partition):
                return self._log(name, _number(partition, "partition"))
            case "POST", ("topics", name, partition, "leader"):
                _check_keys(body, "broker")
                self._cluster.move_leader(name, _number(partition, "partition"), _field(body, "broker", int))
                return {}
            case "POST", ("topics", name, partition, "told-leader"):
                _check_keys(body, "broker", optional=("nodes",))
                leader = None if body["broker"] is None else _field(body, "broker", int)
                nodes = None if body.get("nodes") is None else _field(body, "nodes", list)
                self._cluster.tell_leader(name, _number(partition, "partition"), leader, nodes=nodes)
                return {}
            case "GET", ("groups", group, "offsets"):
                found = self._cluster.committed(group)
                return [{"topic": topic, "partition": p, "offset": offset} for (topic, p), offset in found.items()]
            case "GET", ("requests",):
                return self._requests(query)
            case "DELETE", ("requests",):
                self._cluster.clear_request_log()
                return {}
        raise _NotFoundError(f"there is no {method} {path}")

    def _state(self) -> Any:
        def describe(state: ClusterState, now: float) -> Any:
            return {
                "cluster_id": state.options.cluster_id,
                "controller": state.controller_id,
                "brokers": [
                    {"id": node.id, "host": node.host, "port": node.port, "rack": node.rack, "is_up": node.is_up}
                    for node in state.nodes.values()
                ],
                "topics": [
                    {
                        "name": topic.name,
                        "id": str(topic.id),
                        "partitions": [
                            {"leader": one.leader, "replicas": list(one.replicas), "isr": list(one.isr)}
                            for one in topic.partitions
                        ],
                    }
                    for topic in state.topics.values()
                ],
            }

        return {"bootstrap": self._cluster.bootstrap, **self._cluster.call(describe)}

    def _list_faults(self) -> Any:
        alive = self._cluster.faults
        with self._lock:
            ids = {id(fault): number for number, fault in self._faults.items()}
        return [
            {"id": ids.get(id(fault)), "fault": repr(fault.effect), "seen": fault.seen, "hits": fault.hits}
            for fault in alive
        ]

    def _add_fault(self, body: Mapping[str, Any]) -> Any:
        fault = self._cluster.inject(parse_fault(body))
        with self._lock:
            number = max(self._faults, default=0) + 1
            self._faults[number] = fault
        return {"id": number}

    def _remove_fault(self, number: int) -> Any:
        with self._lock:
            fault = self._faults.get(number)
        if fault is None:
            raise _NotFoundError(f"there is no fault {number}")
        self._cluster.remove_fault(fault)
        return {"seen": fault.seen, "hits": fault.hits}

    def _control_broker(self, id: int, action: str) -> Any:
        cluster = self._cluster
        actions: dict[str, Callable[[int], None]] = {
            "stop": cluster.stop, "start": cluster.restart, "freeze": cluster.freeze, "thaw": cluster.thaw,
        }  # fmt: skip
        actions[action](id)
        return {}

    def _create_topic(self, body: Mapping[str, Any]) -> Any:
        known = {"name", "partitions", "replication_factor", "configs"}
        if unknown := sorted(body.keys() - known):
            raise ConfigurationError(f"a topic has no {unknown[0]}", remedy=f"give some of {', '.join(sorted(known))}")
        configs = {name: str(value) for name, value in _optional(body, "configs", dict, {}).items()}
        self._cluster.create_topic(
            _field(body, "name", str), _optional(body, "partitions", int, -1),
            _optional(body, "replication_factor", int, -1), configs,
        )  # fmt: skip
        return {}

    def _log(self, topic: str, partition: int) -> Any:
        log = self._cluster.log(topic, partition)
        return {
            "leader": self._cluster.leader(topic, partition), "start_offset": log.start_offset,
            "end_offset": log.end_offset, "high_watermark": log.high_watermark,
            "last_stable_offset": log.last_stable_offset,
        }  # fmt: skip

    def _requests(self, query: Mapping[str, str]) -> Any:
        if unknown := sorted(query.keys() - {"api", "client_id", "node"}):
            remedy = "select by api, client_id or node"
            raise ConfigurationError(f"requests are not selected by {unknown[0]}", remedy=remedy)
        try:
            key = api(query["api"]).key if "api" in query else None
        except UnsupportedVersionError:
            raise ConfigurationError(f"there is no API {query['api']!r}") from None
        node = _number(query["node"], "broker") if "node" in query else None
        found = self._cluster.request_log(api=key, client_id=query.get("client_id"), node=node)
        return [record.as_json() for record in found]


def _number(text: str, what: str) -> int:
    if not text.isdigit():
        raise _NotFoundError(f"there is no {what} {text}: give its number")
    return int(text)


def _field(body: Mapping[str, Any], name: str, kind: type) -> Any:
    value = body.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        shape = {int: "a number", str: "a string", list: "a list", dict: "an object"}[kind]
        raise ConfigurationError(f"{name} is {value!r}", remedy=f"give {shape}")
    return value


def _check_keys(body: Mapping[str, Any], key: str, *, optional: Sequence[str] = ()) -> None:
    """Raise ConfigurationError for a body without this key, which null may be the value of, or with an unknown one."""
    known = (key, *optional)
    if key not in body:
        raise ConfigurationError(f"the key {key} is missing", remedy=f"give {', '.join(known)}")
    if unknown := sorted(body.keys() - set(known)):
        raise ConfigurationError(f"there is no key {unknown[0]}", remedy=f"give {', '.join(known)}")


def _optional(body: Mapping[str, Any], name: str, kind: type, default: Any) -> Any:
    return default if name not in body else _field(body, name, kind)


class _Handler(BaseHTTPRequestHandler):
    controls: _Controls
    timeout = _READ_SECONDS
    server_version = "kwire"
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def log_message(self, format: str, *args: Any) -> None:
        logger.debug("control: " + format, *args)

    def _serve(self) -> None:
        try:
            status, answer = 200, self._answer()
        except _NotFoundError as error:
            status, answer = 404, {"error": str(error), "remedy": "see the list in the docs of kwire broker --control"}
        except BrokerError as error:
            is_missing = error.code in _MISSING and self.command in ("GET", "DELETE")
            status, answer = 404 if is_missing else 409, {"error": error.message, "remedy": error.remedy}
        except KwireError as error:
            status, answer = 400, {"error": error.message, "remedy": error.remedy}
        except (ValueError, RecursionError) as error:
            status, answer = 400, {"error": f"the body is not JSON: {error}", "remedy": None}
        self._send(status, answer)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer as JSON, such as to an unknown method: the base class sends a page of HTML."""
        self._send(code, {"error": message or HTTPStatus(code).phrase, "remedy": explain})

    def _send(self, status: int, answer: Any) -> None:
        body = json.dumps(answer).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if status != 200:
            self.close_connection = True
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _answer(self) -> Any:
        host = urlsplit(f"//{self.headers.get('Host', '')}").hostname
        if host not in _LOOPBACK or self.headers.get("Origin") is not None:
            raise ConfigurationError("a request by a web page, or to another name", remedy="send it to 127.0.0.1")
        length = self.headers.get("Content-Length", "0")
        if not length.isdigit() or int(length) > _BODY_MAX:
            raise ConfigurationError(f"a body of {length} bytes", remedy=f"send {_BODY_MAX} bytes at most")
        raw = self.rfile.read(int(length))
        body = json.loads(raw) if raw.strip() else {}
        if not isinstance(body, dict):
            raise ConfigurationError("the body is not an object", remedy='send JSON such as {"effect": "Mute"}')
        url = urlsplit(self.path)
        return self.controls.run(self.command, url.path, dict(parse_qsl(url.query)), body)
