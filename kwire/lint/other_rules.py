"""Rules V01 to V04, Q01, Q02, S01 to S03 and T01 to T06: versions, quotas, security, transactions."""

from __future__ import annotations

from typing import Any

from kwire.lint.contents import batches, fetched, transactional_id_of
from kwire.lint.rule import Level, PerKey, Rule, rule, thresholds
from kwire.lint.world import Seen
from kwire.protocol import ApiKey


@rule("V01", "version-not-offered", Level.ERROR)
class VersionNotOffered(Rule):
    """A request has a version that its broker does not offer.

    The broker closes the connection or returns UNSUPPORTED_VERSION; the client negotiates with another broker, or not
    at all.

    Fix: upgrade the client or the broker; leave api.version.request on."""

    def see(self, seen: Seen) -> None:
        offered = self.world.versions.get(seen.broker)
        if not offered or seen.key is None or seen.request is None or seen.key == ApiKey.API_VERSIONS:
            return
        if seen.version not in offered.get(seen.key, range(0)):
            has = offered.get(seen.key)
            text = f"{seen.exchange.api_name} v{seen.version}; the broker offers "
            self.report(seen.client.key, text + (f"{has[0]} to {has[-1]}" if has else "none"), seen)


@rule("V02", "old-client", Level.INFO)
class OldClient(Rule):
    """A client uses versions of Produce or Fetch that are far behind what the broker offers.

    Brokers may convert for it, and it lacks what newer versions bring; Kafka 4.0 dropped the oldest.

    Fix: upgrade the client."""

    apis = (ApiKey.PRODUCE, ApiKey.FETCH)
    limits = thresholds(versions=5)

    def see(self, seen: Seen) -> None:
        offered = self.world.versions.get(seen.broker, {}).get(seen.key or 0)
        if offered and offered[-1] - seen.version >= self.limit["versions"]:
            text = f"{seen.exchange.api_name} v{seen.version}, and the broker has v{offered[-1]}"
            self.report(seen.client.key, text, seen)


@rule("V03", "malformed-request", Level.WARN)
class MalformedRequest(Rule):
    """A request cannot be decoded, or has bytes after its last field.

    Brokers ignore such bytes, or close the connection. librdkafka sends three of them in Metadata of all topics.

    Fix: upgrade the client, or report it to its authors."""

    def see(self, seen: Seen) -> None:
        decoded, frame = seen.exchange.request, seen.exchange.pair.request
        if decoded is None or frame is None or frame.missing or not decoded.problems:
            return
        text = f"{seen.exchange.api_name} v{seen.version}: {decoded.problems[0].message}"
        if seen.key == ApiKey.METADATA and "rdkafka" in f"{seen.client.software} {seen.client.client_id}":
            text += " (known of librdkafka; brokers ignore it)"
        self.report(seen.client.key, text, seen)


@rule("V04", "version-retry", Level.INFO)
class VersionRetry(Rule):
    """The first ApiVersions of each connection is refused.

    The client starts with a version that the broker does not have: one round trip more for each connection.

    Fix: none needed; a client may remember what it learned."""

    apis = (ApiKey.API_VERSIONS,)
    limits = thresholds(connections=3)

    def see(self, seen: Seen) -> None:
        if seen.errors["UNSUPPORTED_VERSION"]:
            self.counts[seen.client.program] += 1
            if self.counts[seen.client.program] >= self.limit["connections"]:
                text = f"ApiVersions v{seen.exchange.header.get('requestApiVersion', seen.version)} is refused"
                self.report(seen.client.program, text, seen)


@rule("Q01", "throttled", Level.WARN)
class Throttled(Rule):
    """A broker throttles a client by a quota.

    The broker responds later, or stops reading from the connection; latencies rise.

    Fix: raise the quota (kwire quotas), or send less."""

    limits = thresholds(ms=0)

    def see(self, seen: Seen) -> None:
        throttle = getattr(seen.response, "throttle_time_ms", 0)
        if throttle > self.limit["ms"]:
            self.report(seen.client.key, f"{seen.exchange.api_name} is throttled by {throttle} ms", seen)


@rule("Q02", "ignores-throttle", Level.ERROR)
class IgnoresThrottle(Rule):
    """A client sends on a connection within the time for which the broker throttles it.

    The broker leaves the request unread until the time is over (KIP-219), so that it may time out.

    Fix: upgrade the client."""

    limits = thresholds(margin_ms=50)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._until: PerKey[int, tuple[float, float]] = PerKey(lambda: (0.0, 0.0))

    def see(self, seen: Seen) -> None:
        begun, until = self._until[seen.connection.number]
        if begun < seen.at < until - self.limit["margin_ms"] / 1000:
            text = f"sends {seen.exchange.api_name} {(until - seen.at) * 1000:.0f} ms too early"
            self.report(seen.client.key, text, seen)
        throttle = getattr(seen.response, "throttle_time_ms", 0)
        if throttle > 0:
            self._until[seen.connection.number] = seen.ended_at, seen.ended_at + throttle / 1000


@rule("S01", "denied", Level.ERROR)
class Denied(Rule):
    """A broker denies a request: the user lacks a right.

    Nothing was done. Clients take it for fatal, or try again for ever.

    Fix: grant the right (kwire acls add), or use another user."""

    def see(self, seen: Seen) -> None:
        for name in seen.errors:
            if name.endswith("_AUTHORIZATION_FAILED"):
                self.report(seen.client.key, f"{name} to {seen.exchange.api_name}", seen)


@rule("S02", "plain-in-clear", Level.ERROR)
class PlainInClear(Rule):
    """SASL PLAIN without TLS: the password is readable on the network.

    Everybody on the way has it.

    Fix: use TLS (SASL_SSL), or SCRAM."""

    apis = (ApiKey.SASL_HANDSHAKE,)

    def see(self, seen: Seen) -> None:
        if seen.connection.is_tls or seen.request is None:
            return
        if seen.request.mechanism == "PLAIN" and not seen.errors:
            self.report(seen.client.key, f"sends its password to {seen.broker} in clear", seen)


@rule("S03", "reauth-broken", Level.ERROR)
class ReauthBroken(Rule):
    """An authentication cannot be renewed, or ends too soon.

    The broker closes the connection when the session's lifetime is over (connections.max.reauth.ms).

    Fix: renew credentials in time; raise connections.max.reauth.ms above a minute."""

    apis = (ApiKey.SASL_AUTHENTICATE,)
    limits = thresholds(lifetime_ms=60_000)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._done: PerKey[int, bool] = PerKey(bool)

    def see(self, seen: Seen) -> None:
        if seen.response is None:
            return
        if seen.errors and self._done[seen.connection.number]:
            self.report(seen.client.key, "a second authentication on the connection fails", seen)
        lifetime = seen.response.session_lifetime_ms
        if 0 < lifetime < self.limit["lifetime_ms"]:
            self.report(seen.client.key, f"an authentication lasts {lifetime / 1000:g} s only", seen)
        if not seen.errors:
            self._done[seen.connection.number] = True


_BEGIN = (ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT, ApiKey.PRODUCE)
_TXN = (*_BEGIN, ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN)


class _Transactions(Rule):
    """Follows the transactions of each transactional id: `begun`, `ended`."""

    apis = _TXN

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.timeouts: PerKey[str, float] = PerKey(lambda: self.world.assumed["transaction.timeout.ms"])
        self.open: PerKey[str, list[Seen]] = PerKey(list)
        self.wrote: PerKey[str, bool] = PerKey(bool)

    def see(self, seen: Seen) -> None:
        id = transactional_id_of(seen.request)
        if not id:
            return
        if seen.key == ApiKey.INIT_PRODUCER_ID:
            self.timeouts[id] = seen.request.transaction_timeout_ms
            if not seen.errors and self.open.pop(id, []):  # it aborts what was open
                self.ended(id, seen, None)
        elif seen.key == ApiKey.END_TXN:
            if seen.errors:
                return
            first = self.open.pop(id, [])
            self.ended(id, seen, first[0] if first else None)
            self.wrote[id] = False
        elif not seen.errors:
            self.wrote[id] = self.wrote[id] or seen.key in (ApiKey.PRODUCE, ApiKey.TXN_OFFSET_COMMIT)
            if not self.open[id]:
                self.open[id].append(seen)

    def ended(self, id: str, seen: Seen, first: Seen | None) -> None:
        """Judge a transaction that ended."""


@rule("T01", "open-transaction", Level.ERROR)
class OpenTransaction(_Transactions):
    """A transaction was begun, and not ended within its timeout or the capture.

    Readers with read_committed wait behind it in all its partitions.

    Fix: abort it (`kwire transactions abort`), find the producer that hangs, or lower transaction.timeout.ms."""

    limits = thresholds(seconds=10)

    def end(self) -> None:
        for id, found in self.open.items():
            if not found:
                continue
            open_for = self.world.end - found[0].at
            if open_for >= min(self.limit["seconds"], self.timeouts[id] / 1000):
                self.report(id, f"begun at {found[0].exchange.time:%H:%M:%S}, not ended in {open_for:.0f} s", found[0])

    def ended(self, id: str, seen: Seen, first: Seen | None) -> None:
        if first is not None and (seen.at - first.at) * 1000 > self.timeouts[id]:
            self.report(id, f"open for {seen.at - first.at:.0f} s, longer than its timeout", first)


@rule("T02", "fenced", Level.ERROR)
class Fenced(Rule):
    """A producer was fenced: another one has its transactional id, or its transaction timed out.

    What it sends is refused.

    Fix: give each producer a transactional id of its own; commit within transaction.timeout.ms."""

    apis = _TXN

    def see(self, seen: Seen) -> None:
        for name in ("INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED"):
            if seen.errors[name]:
                subject = transactional_id_of(seen.request) or seen.client.key
                self.report(subject, f"{name} to {seen.exchange.api_name}", seen)


@rule("T03", "concurrent-transactions", Level.WARN)
class ConcurrentTransactions(Rule):
    """A producer waits for its previous transaction to be completed.

    CONCURRENT_TRANSACTIONS once is normal after a commit; several in a row mean slow markers or short transactions.

    Fix: put more records into a transaction; look at the coordinator's and the leaders' load."""

    apis = _TXN
    limits = thresholds(errors=3)

    def see(self, seen: Seen) -> None:
        id = transactional_id_of(seen.request)
        if not id or seen.response is None:
            return
        self.counts[id] = self.counts[id] + 1 if seen.errors["CONCURRENT_TRANSACTIONS"] else 0
        if self.counts[id] >= self.limit["errors"]:
            self.report(id, f"CONCURRENT_TRANSACTIONS {self.counts[id]} times in a row", seen)


@rule("T04", "empty-transactions", Level.INFO)
class EmptyTransactions(_Transactions):
    """Most transactions have no write.

    Each costs requests, and writes to an internal topic.

    Fix: begin a transaction when there is something to write."""

    limits = thresholds(transactions=4, share=0.5)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._totals: PerKey[str, list[int]] = PerKey(lambda: [0, 0])

    def ended(self, id: str, seen: Seen, first: Seen | None) -> None:
        if seen.key != ApiKey.END_TXN:
            return
        counts = self._totals[id]
        counts[0] += 1
        counts[1] += not self.wrote[id]
        if counts[0] >= self.limit["transactions"] and counts[1] > self.limit["share"] * counts[0]:
            self.report(id, f"{counts[1]} of {counts[0]} transactions have no write", seen)


@rule("T05", "long-transaction", Level.WARN)
class LongTransaction(_Transactions):
    """A transaction is open for more than half its timeout.

    Readers with read_committed wait for it, and it is near to being aborted.

    Fix: commit more often."""

    limits = thresholds(share=0.5)

    def ended(self, id: str, seen: Seen, first: Seen | None) -> None:
        if first is None:
            return
        seconds, timeout = seen.at - first.at, self.timeouts[id] / 1000
        if seconds > self.limit["share"] * timeout:
            self.report(id, f"open for {seconds:.1f} s, with a timeout of {timeout:g} s", first)


@rule("T06", "read-uncommitted", Level.INFO)
class ReadUncommitted(Rule):
    """A consumer reads a topic with transactions as if there were none.

    It gets records of aborted transactions, too.

    Fix: set isolation.level=read_committed."""

    apis = (ApiKey.FETCH,)

    def see(self, seen: Seen) -> None:
        if seen.request is None or seen.request.isolation_level != 0:
            return
        for one in fetched(seen.exchange):
            if any(batch.is_transactional and not batch.is_control for batch in batches(one.struct.records)):
                self.report(f"{seen.client.key}: {one.topic}", f"reads {one.topic} with read_uncommitted", seen)
                return
