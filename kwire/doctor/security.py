"""Checks D10 to D12 and D15 to D18: TLS, certificates, SASL."""

from __future__ import annotations

from collections.abc import Iterator

from kwire.doctor.check import Finding, check, counted, fail, ok, skipped, warn
from kwire.doctor.facts import Facts
from kwire.errors import AuthenticationError, TlsError

_DAY_MS = 86_400_000
_EXPIRES_SOON_DAYS = 30
_OLD_TLS = ("TLSv1", "TLSv1.1", "SSLv3")
_SHORT_SESSION_MS = 60_000


@check("D10", "tls", "the version of TLS and the cipher", "TLS")
def tls(facts: Facts) -> Iterator[Finding]:
    if facts.target.tls is None:
        yield skipped("TLS is off")
        return
    for endpoint in facts.endpoints:
        if endpoint.tls is not None and endpoint.tls.version in _OLD_TLS:
            yield fail(f"{endpoint.name} speaks {endpoint.tls.version}", "allow TLSv1.3 (ssl.enabled.protocols)")
        elif endpoint.tls is not None:
            yield ok(f"{endpoint.name}: {endpoint.tls.version}, {endpoint.tls.cipher}")
        elif endpoint.stage == "tls" and isinstance(endpoint.error, TlsError) and not endpoint.speaks:
            yield fail(f"{endpoint.name}: {endpoint.error.message}", endpoint.error.remedy)


@check("D11", "certificate", "chain, authority, expiry and names of the brokers' certificates", "TLS")
def certificate(facts: Facts) -> Iterator[Finding]:
    if facts.target.tls is None:
        yield skipped("TLS is off")
        return
    if not facts.target.tls.verify:
        yield warn("certificates are not verified", "give --cafile in place of --insecure")
    for endpoint in facts.endpoints:
        error = endpoint.error
        if isinstance(error, TlsError) and "certificate" in error.message and "client certificate" not in error.message:
            yield fail(f"{endpoint.name}: {error.message}", error.remedy)
        elif endpoint.tls is not None and endpoint.tls.not_after_ms is not None:
            days = (endpoint.tls.not_after_ms - facts.now_ms) / _DAY_MS
            about = f"{endpoint.name}: {endpoint.tls.subject or 'no subject'}, for {', '.join(endpoint.tls.names)}"
            if days < _EXPIRES_SOON_DAYS:
                yield warn(f"{about}; it expires in {counted(round(days), 'day')}", "renew it before clients refuse it")
            else:
                yield ok(f"{about}; {counted(round(days), 'day')} left")


@check("D12", "client-certificate", "the client's certificate: demanded, given, fitting its key", "TLS")
def client_certificate(facts: Facts) -> Iterator[Finding]:
    if facts.target.tls is None:
        yield skipped("TLS is off")
        return
    if facts.tls_config_error is not None:
        yield fail(facts.tls_config_error.message, facts.tls_config_error.remedy)
        return
    is_given = facts.target.tls.cert_file is not None
    for endpoint in facts.endpoints:
        error = endpoint.error
        if isinstance(error, TlsError) and any(
            words in error.message for words in ("client certificate", "our certificate", "no certificate")
        ):
            yield fail(f"{endpoint.name}: {error.message}", error.remedy)
    if any(endpoint.versions is not None for endpoint in facts.endpoints):
        yield ok("given, and accepted" if is_given else "not given, and not demanded")


@check("D15", "sasl", "SASL is configured where the listener has it, and only there", "ApiVersions")
def sasl(facts: Facts) -> Iterator[Finding]:
    configured = facts.target.sasl
    for endpoint in facts.endpoints:
        if endpoint.mechanisms is None:
            continue
        if endpoint.mechanisms and configured is None:
            yield fail(
                f"{endpoint.name} wants SASL ({', '.join(endpoint.mechanisms)}), and no user is configured",
                "give --username and a password, or sasl.jaas.config; or use a listener without SASL",
            )
        elif configured is not None and not endpoint.mechanisms:
            yield fail(
                f"{endpoint.name} does not use SASL, and {configured.mechanism} is configured",
                "take the user away (security.protocol without SASL_), or use the port of a SASL listener",
            )
        else:
            yield ok(f"{endpoint.name}: {'SASL' if configured else 'no SASL'}, as configured")


@check("D16", "mechanism", "the chosen mechanism is among those that the brokers offer", "SASL")
def mechanism(facts: Facts) -> Iterator[Finding]:
    configured = facts.target.sasl
    for endpoint in facts.endpoints:
        if not endpoint.mechanisms:
            continue
        offered = ", ".join(endpoint.mechanisms)
        if configured is not None and configured.mechanism not in endpoint.mechanisms:
            yield fail(f"{endpoint.name} offers {offered}, not {configured.mechanism}", f"use one of {offered}")
        elif configured is not None:
            yield ok(f"{endpoint.name} offers {offered}")
    if not any(endpoint.mechanisms for endpoint in facts.endpoints):
        yield skipped("no listener with SASL")


@check("D17", "login", "the user authenticates; the exact refusal", "SASL")
def login(facts: Facts) -> Iterator[Finding]:
    configured = facts.target.sasl
    if configured is None:
        yield skipped("no user is configured")
        return
    for endpoint in facts.endpoints:
        if not endpoint.mechanisms or configured.mechanism not in endpoint.mechanisms:
            continue
        if endpoint.is_authenticated:
            yield ok(f"{endpoint.name}: {configured.mechanism} with {configured.identity}")
        elif isinstance(endpoint.error, AuthenticationError) or endpoint.stage == "sasl":
            assert endpoint.error is not None
            yield fail(f"{endpoint.name}: {endpoint.error.message}", endpoint.error.remedy)


@check("D18", "session", "the lifetime of an authentication leaves time to renew it", "SASL")
def session(facts: Facts) -> Iterator[Finding]:
    if facts.target.sasl is None:
        yield skipped("no user is configured")
        return
    for endpoint in facts.endpoints:
        if not endpoint.is_authenticated:
            continue
        lifetime = endpoint.session_lifetime_ms
        if 0 < lifetime < _SHORT_SESSION_MS:
            yield warn(
                f"{endpoint.name} ends an authentication after {lifetime / 1000:g} s",
                "raise connections.max.reauth.ms: clients renew it in the middle of their work",
            )
        else:
            yield ok(f"{endpoint.name}: {f'{lifetime / 1000:g} s' if lifetime else 'no limit'}")
