"""Visit one address as a client would: name, TCP, TLS, ApiVersions, SASL, Metadata; note what each step found.

A visit uses a connection to look around without credentials, which also asks for the SASL mechanisms, and one that
logs in. It ends at the first step that fails, after looking for what the port speaks instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from kwire.doctor.facts import Endpoint, Target
from kwire.doctor.link import Link
from kwire.errors import ConnectError, ErrorCode, KwireError, NotKafkaError, ResolveError, TlsError, broker_error
from kwire.net import Address, Clock, Resolver, Tls
from kwire.net.probe import Probe, resolve, try_addresses
from kwire.net.tls_filter import TlsContext
from kwire.protocol import ApiKey
from kwire.protocol.messages.describe_configs import DescribeConfigsRequest
from kwire.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kwire.protocol.messages.sasl_handshake import SaslHandshakeRequest
from kwire.wire.frame import not_kafka

_BROKER = 4  # a resource of DescribeConfigs
# Names that no topic has. A request for this many is 64 kB, and so is the response; for a few, more than one packet.
_NO_TOPIC = "kwire-doctor-asks-for-no-topic-{:05}"
_LARGE, _PACKET = 1_700, 40
_NO_CREATION_SINCE = 4  # Metadata
_OPERATIONS_SINCE = 8  # Metadata
# No broker has this mechanism, so that its refusal lists those that it has.
_NO_MECHANISM = "KWIRE-DOCTOR"


@dataclass(frozen=True, slots=True)
class Visitor:
    """Makes the visits of an examination. `context` is the TLS of the target, loaded once."""

    target: Target
    clock: Clock
    resolver: Resolver
    context: TlsContext | None

    def visit(self, endpoint: Endpoint) -> None:
        """Fill in the facts of an endpoint. Never raises; takes at most a few times the target's timeout."""
        began = self.clock.now()
        try:
            self._visit(endpoint)
        except KwireError as error:
            endpoint.error = error
        endpoint.seconds = self.clock.now() - began

    def connect(self, endpoint: Endpoint, *, logs_in: bool) -> tuple[Probe, Link]:
        """Open a connection to an endpoint whose address is known, up to the end of the handshake."""
        probe = self._probe(endpoint)
        try:
            if self.context is not None:
                endpoint.stage = "tls"
                endpoint.tls = probe.start_tls(self.context, self._server_name(endpoint))
            endpoint.stage = "sasl" if logs_in and self.target.sasl else "protocol"
            link = Link(
                probe, self.clock, self.target.timeout,
                sasl=self.target.sasl if logs_in else None, client_id=self.target.client_id,
                host=endpoint.host,
            )  # fmt: skip
            link.handshake()
        except BaseException:
            probe.close()
            raise
        return probe, link

    def _visit(self, endpoint: Endpoint) -> None:
        timeout = self.target.timeout
        endpoint.stage = "name"
        found = resolve(endpoint.host, endpoint.port, self.resolver, self.clock, timeout)
        endpoint.resolved = found
        if found.error is not None or not found.addresses:
            raise ResolveError(
                f"{endpoint.host}: {found.error or 'the name has no address'}", remedy="check the name and the resolver"
            )
        endpoint.stage = "tcp"
        endpoint.attempts = try_addresses(found.addresses, self.clock, timeout)
        if not any(one.outcome == "connected" for one in endpoint.attempts):
            tried = "; ".join(f"{one.address}: {one.reason}" for one in endpoint.attempts)
            raise ConnectError(f"no address accepts a connection ({tried})")
        try:
            self._look_around(endpoint)
            self._log_in(endpoint)
        except KwireError as error:
            if endpoint.stage in ("tls", "protocol"):
                endpoint.speaks = self._other_protocol(endpoint, error)
            raise

    def _look_around(self, endpoint: Endpoint) -> None:
        """Connect without credentials: what the broker offers, and whether the listener wants SASL."""
        probe, link = self.connect(endpoint, logs_in=False)
        with probe:
            endpoint.versions, endpoint.features = link.versions, dict(link.features)
            if ApiKey.SASL_HANDSHAKE not in link.versions:
                endpoint.mechanisms = ()
                return
            with suppress(KwireError):  # a broker that closes the connection instead
                response = link.ask(SaslHandshakeRequest(mechanism=_NO_MECHANISM))
                has_sasl = response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
                endpoint.mechanisms = tuple(response.mechanisms) if has_sasl else ()

    def _log_in(self, endpoint: Endpoint) -> None:
        probe, link = self.connect(endpoint, logs_in=True)
        with probe:
            endpoint.is_authenticated = True
            endpoint.session_lifetime_ms = link.session_lifetime_ms
            endpoint.stage = "metadata"
            endpoint.metadata = self._metadata(link)
            self._check_identity(endpoint, link)
            self._ask_for_much(endpoint, link)

    def _metadata(self, link: Link) -> MetadataResponse:
        version = link.version(MetadataRequest)
        topics: Sequence[str] = () if self.target.topic is None else (self.target.topic,)
        if version < _NO_CREATION_SINCE:
            topics = ()  # this request would create them
        response = link.ask(
            metadata_request(topics, version, with_operations=version >= _OPERATIONS_SINCE), version=version
        )
        if response.error_code:
            raise broker_error(response.error_code, api="Metadata")
        return response

    def _check_identity(self, endpoint: Endpoint, link: Link) -> None:
        """Find out whether this is the advertised broker: a broker returns only its own configs."""
        metadata = endpoint.metadata
        assert metadata is not None
        address = endpoint.host, endpoint.port
        advertised = endpoint.node
        if advertised is None:  # a bootstrap address, which may be an advertised one too
            advertised = next((one.node_id for one in metadata.brokers if (one.host, one.port) == address), None)
        if advertised is None or ApiKey.DESCRIBE_CONFIGS not in link.versions:
            return
        for node in [advertised, *(one.node_id for one in metadata.brokers if one.node_id != advertised)]:
            resource = DescribeConfigsRequest.Resource(
                resource_type=_BROKER, resource_name=str(node), configuration_keys=["broker.id"]
            )
            result = link.ask(DescribeConfigsRequest(resources=[resource])).results[0]
            if result.error_code == ErrorCode.NONE:
                endpoint.other_node = None if node == advertised else node
                return
            if result.error_code != ErrorCode.INVALID_REQUEST:
                return  # not authorized, or an old broker: unknown

    def _ask_for_much(self, endpoint: Endpoint, link: Link) -> None:
        """Send more than one packet, then 64 kB, and have as much sent back: a path with a wrong MTU loses them."""
        version = link.version(MetadataRequest)
        if version < _NO_CREATION_SINCE:
            return
        for count in (_PACKET, _LARGE):
            names = [_NO_TOPIC.format(number) for number in range(count)]
            try:
                response = link.ask(metadata_request(names, version, with_operations=False), version=version)
            except KwireError as error:
                endpoint.large_error = error
                return
            endpoint.large_bytes = sum(len(topic.name or "") + 12 for topic in response.topics)

    def _probe(self, endpoint: Endpoint) -> Probe:
        address = next(one.address for one in endpoint.attempts if one.outcome == "connected")
        return Probe(address, endpoint.address, self.clock, self.target.timeout)

    def _server_name(self, endpoint: Endpoint) -> str:
        tls = self.target.tls
        return (tls.server_name if tls else None) or endpoint.host

    def _other_protocol(self, endpoint: Endpoint, error: KwireError) -> str:
        """Return what a port speaks that did not answer as the target expects: "TLS", "plaintext", "ZooKeeper", ...

        After a certificate that was not accepted, note the TLS version all the same.
        """
        text = error.message
        if isinstance(error, TlsError) and "certificate" in text:
            with suppress(KwireError), self._probe(endpoint) as probe:
                lenient = replace(self.target.tls or Tls(), verify=False).client_context()
                endpoint.tls = probe.start_tls(lenient, self._server_name(endpoint))
            return ""
        for word in ("HTTP", "TLS (it"):
            if isinstance(error, NotKafkaError) and word in text:
                return word.partition(" ")[0]
        tries: list[tuple[str, Callable[[Probe], bool]]] = [
            ("ZooKeeper", _speaks_zookeeper), ("HTTP", _speaks_http),
        ]  # fmt: skip
        if self.context is None:
            tries.insert(0, ("TLS", _speaks_tls))
        else:
            tries.insert(0, ("plaintext", self._speaks_plain_kafka))
        for name, is_spoken in tries:
            with suppress(KwireError), self._brief_probe(endpoint) as probe:
                if is_spoken(probe):
                    return name
        return ""

    def _brief_probe(self, endpoint: Endpoint) -> Probe:
        address: Address = next(one.address for one in endpoint.attempts if one.outcome == "connected")
        return Probe(address, endpoint.address, self.clock, min(1.0, self.target.timeout))

    def _speaks_plain_kafka(self, probe: Probe) -> bool:
        Link(probe, self.clock, min(1.0, self.target.timeout), sasl=None, client_id=self.target.client_id).handshake()
        return True


def metadata_request(topics: Sequence[str], version: int, *, with_operations: bool) -> MetadataRequest:
    """Return a request for the brokers and these topics, which creates none."""
    return MetadataRequest(
        topics=[MetadataRequest.Topic(name=name) for name in topics],
        allow_auto_topic_creation=version < _NO_CREATION_SINCE,
        include_topic_authorized_operations=with_operations,
    )


def _speaks_tls(probe: Probe) -> bool:
    probe.start_tls(Tls(verify=False).client_context(), "kafka")
    return True


def _speaks_zookeeper(probe: Probe) -> bool:
    probe.write(b"srvr")
    answer = probe.read()
    return answer.startswith(b"Zookeeper") or b"whitelist" in answer


def _speaks_http(probe: Probe) -> bool:
    probe.write(b"GET / HTTP/1.0\r\n\r\n")
    known = not_kafka(probe.read())
    return known is not None and "HTTP" in known.message
