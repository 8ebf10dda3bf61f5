"""Checks D01 to D09: names, addresses, TCP, and what speaks on the port."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address

from kwire.doctor.check import Finding, check, fail, ok, skipped, warn
from kwire.doctor.facts import Endpoint, Facts
from kwire.errors import NotKafkaError, RequestTimeoutError

_SLOW_RESOLVER_SECONDS = 0.1
_SLOW_CONNECT_SECONDS = 0.3
_LARGE_BYTES = 64 * 1024
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")


@check("D01", "name", "the bootstrap names resolve, each to an IPv4 or IPv6 address", "-b")
def names(facts: Facts) -> Iterator[Finding]:
    for endpoint in facts.bootstrap:
        found = endpoint.resolved
        if found is None:
            continue
        if found.error is not None or not found.addresses:
            yield fail(
                f"{endpoint.host}: {found.error or 'the name has no address'}",
                "correct the name in bootstrap.servers, or give it to this machine's resolver",
            )
        elif str(found.addresses[0].sockaddr[0]) == endpoint.host:
            yield ok(f"{endpoint.host} is an address")
        else:
            yield ok(f"{endpoint.host} -> {', '.join(str(one.sockaddr[0]) for one in found.addresses)}")


@check("D02", "bootstrap", "the bootstrap list has no scheme, no duplicates, and a port for each name", "-b")
def entries(facts: Facts) -> Iterator[Finding]:
    seen: set[str] = set()
    for entry in facts.entries:
        if entry in facts.entry_errors:
            yield fail(facts.entry_errors[entry], "write host:port, separated by commas")
        elif "://" in entry:
            scheme, _, rest = entry.partition("://")
            yield fail(
                f"{entry} has a scheme, which clients refuse",
                f"write {rest.rstrip('/')}; {scheme} belongs into security.protocol or listeners",
            )
        elif _has_no_port(entry):
            yield warn(f"{entry} has no port; 9092 is assumed, and Java's client refuses it", f"write {entry}:9092")
        if entry in seen:
            yield warn(f"{entry} is there twice", "name another broker, for when the first is down")
        seen.add(entry)
    if not facts.entries:
        yield fail("the bootstrap list is empty", "give -b HOST:PORT")
    if len(seen) == len(facts.entries) == len(facts.bootstrap) and not facts.entry_errors:
        count = len(facts.entries)
        note = "" if count > 1 else "; with a second one a client starts while the first is down"
        yield ok(f"{count} {'address' if count == 1 else 'addresses'}{note}")


def _has_no_port(entry: str) -> bool:
    return not entry.rpartition("]")[2].count(":")


@check("D03", "proxy", "no proxy or VPN that may come between")
def proxies(facts: Facts) -> Iterator[Finding]:
    environment = {name.lower(): value for name, value in facts.target.environment.items()}
    found = [name for name in _PROXIES if environment.get(name)]
    parts = []
    if found:
        parts.append(f"{', '.join(found)} is set, and Kafka clients ignore it")
    if facts.interfaces:
        parts.append(f"VPN or tunnel interfaces: {', '.join(facts.interfaces)}")
    is_broken = not facts.is_connected
    if parts and is_broken:
        yield warn(
            "; ".join(parts), "if brokers are only reachable through the proxy or the VPN, connect it or open a route"
        )
    else:
        yield ok("; ".join(parts) or "no proxy variables, no tunnels")


@check("D04", "localhost", "no broker advertises localhost, 0.0.0.0 or nothing", "a connection")
def localhost(facts: Facts) -> Iterator[Finding]:
    remote = [one for one in facts.bootstrap if one.resolved and not _is_local(one)]
    for endpoint in facts.advertised:
        if endpoint.host in ("0.0.0.0", "::", ""):
            yield fail(
                f"broker {endpoint.node} advertises {endpoint.host or 'an empty host'}, no address to connect to",
                f"set advertised.listeners on broker {endpoint.node} to a name that its clients resolve",
            )
        elif _is_local(endpoint) and remote:
            yield fail(
                f"broker {endpoint.node} advertises {endpoint.address}: that is the client itself",
                f"set advertised.listeners on broker {endpoint.node} to a name that its clients resolve",
            )
    if facts.advertised:
        yield ok("the advertised hosts are those of other machines" if remote else "bootstrap is this machine as well")


def _is_local(endpoint: Endpoint) -> bool:
    if endpoint.host.lower() in ("localhost", "localhost.localdomain"):
        return True
    found = endpoint.resolved
    addresses = found.addresses if found else ()
    return bool(addresses) and all(ip_address(str(one.sockaddr[0]).partition("%")[0]).is_loopback for one in addresses)


@check("D05", "resolver", f"names resolve within {_SLOW_RESOLVER_SECONDS * 1000:.0f} ms", "-b")
def resolver(facts: Facts) -> Iterator[Finding]:
    slowest = 0.0
    for endpoint in facts.endpoints:
        if endpoint.resolved is None:
            continue
        slowest = max(slowest, endpoint.resolved.seconds)
        if endpoint.resolved.seconds > _SLOW_RESOLVER_SECONDS:
            yield warn(
                f"{endpoint.host} took {endpoint.resolved.seconds * 1000:.0f} ms to resolve",
                "check the name servers in resolv.conf and their search list; each new connection waits for it",
            )
    if any(one.resolved for one in facts.endpoints):
        yield ok(f"at most {slowest * 1000:.1f} ms")


@check("D06", "tcp", "a TCP connection to each address, IPv4 and IPv6", "-b")
def tcp(facts: Facts) -> Iterator[Finding]:
    for endpoint in facts.bootstrap:
        good = [one for one in endpoint.attempts if one.outcome == "connected"]
        if not endpoint.attempts:
            continue
        if not good:
            yield fail(f"{endpoint.address} accepts no connection", "D07 says why")
            continue
        first = endpoint.attempts[0]
        text = ", ".join(f"{one.address} in {one.seconds * 1000:.1f} ms" for one in good)
        bad = [one for one in endpoint.attempts if one.outcome != "connected"]
        if bad and first in bad:
            kind = "IPv6" if first.is_ipv6 else "IPv4"
            yield warn(
                f"{text}; {first.address} {first.outcome}: clients that try {kind} first wait for it",
                f"let the broker listen on it, or remove the {kind} address of {endpoint.host} from the name server",
            )
        elif any(one.seconds > _SLOW_CONNECT_SECONDS for one in good):
            yield warn(f"{text}: far away", "connect from the same region, or raise the client's timeouts")
        else:
            yield ok(text + "".join(f"; {one.address} {one.outcome}" for one in bad))


_REFUSALS = {
    "refused": ("refuses connections", "nothing listens there: check the port, and that the broker runs"),
    "filtered": ("does not answer", "a firewall or a wrong route drops the packets: check security groups and the VPN"),
    "reset": ("resets connections", "a firewall or a load balancer without a broker behind it answers"),
    "error": ("cannot be reached", "check the route and the address family of this machine"),
}


@check("D07", "refusal", "refused, filtered and reset connections, told apart", "-b")
def refusals(facts: Facts) -> Iterator[Finding]:
    tried = False
    for endpoint in facts.bootstrap:
        tried = tried or bool(endpoint.attempts)
        if any(one.outcome == "connected" for one in endpoint.attempts):
            continue
        for attempt in endpoint.attempts:
            what, remedy = _REFUSALS[attempt.outcome]
            yield fail(f"{attempt.address} {what} ({attempt.outcome}: {attempt.reason})", remedy)
    if tried:
        yield ok("no address is refused or filtered that a client needs")


@check("D08", "mtu", "responses of more than a packet and of 64 kB arrive", "a connection")
def mtu(facts: Facts) -> Iterator[Finding]:
    for endpoint in facts.endpoints:
        if endpoint.large_error is not None:
            yield fail(
                f"{endpoint.name} answers small requests, and not large ones: {endpoint.large_error.message}",
                "a path with a smaller MTU loses large packets: lower the MTU of this interface (VPN), or allow ICMP",
            )
    arrived = [one.large_bytes for one in facts.endpoints if one.large_bytes]
    if arrived:
        yield ok(f"responses of {min(arrived) // 1024} kB arrive from {len(arrived)} addresses")


_PROTOCOLS = {
    "HTTP": "this is the port of a web server, Kafka REST or Connect: use the port of a Kafka listener",
    "TLS": "turn TLS on (security.protocol=SSL or SASL_SSL), or use the port of a plaintext listener",
    "plaintext": "turn TLS off (security.protocol=PLAINTEXT), or use the port of a TLS listener",
    "ZooKeeper": "this is ZooKeeper: use the port of a broker, mostly 9092",
}


@check("D09", "protocol", "Kafka speaks on the port, not HTTP, TLS, ZooKeeper or nothing", "a TCP connection")
def protocol(facts: Facts) -> Iterator[Finding]:
    for endpoint in facts.endpoints:
        if endpoint.stage not in ("tls", "protocol") or endpoint.error is None:
            if endpoint.versions is not None and endpoint.node is None:
                yield ok(f"{endpoint.name} speaks Kafka")
            continue
        wanted = "TLS" if endpoint.stage == "tls" else "Kafka in plaintext"
        if endpoint.speaks:
            yield fail(f"{endpoint.name} speaks {endpoint.speaks}, not {wanted}", _PROTOCOLS[endpoint.speaks])
        elif isinstance(endpoint.error, NotKafkaError):
            yield fail(f"{endpoint.name}: {endpoint.error.message}", endpoint.error.remedy)
        elif isinstance(endpoint.error, RequestTimeoutError) or "did not respond" in endpoint.error.message:
            yield fail(
                f"{endpoint.name} accepts the connection and sends nothing",
                "a hung broker, or a load balancer without one behind it: look at the broker's log and threads",
            )
        elif endpoint.stage == "protocol":
            yield fail(f"{endpoint.name}: {endpoint.error.message}", endpoint.error.remedy)
    if not any(one.stage not in ("name", "tcp", "") for one in facts.endpoints):
        yield skipped("no connection")
