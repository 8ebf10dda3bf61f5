"""Explain OpenSSL's errors: its reasons and certificate codes in plain words, each with a remedy."""

from __future__ import annotations

import ssl

from kwire.errors import NodeError, TlsError
from kwire.wire.frame import not_kafka

# X509_V_ERR_* of OpenSSL's x509_vfy.h.
_CERTIFICATE_FAULTS: dict[int, tuple[str, str]] = {
    3: ("cannot be checked: there is no revocation list of its authority", "put one into crl_file, which is given"),
    8: (
        "cannot be checked: the signature of the revocation list is wrong",
        "get the authority's own list into crl_file",
    ),
    9: ("is not valid yet", "check the clocks of both machines, or the certificate's dates"),
    10: ("has expired", "renew it"),
    12: ("cannot be checked: the revocation list of its authority is out of date", "get the next list into crl_file"),
    18: ("is self-signed", "give that certificate itself as ca_file"),
    19: ("is signed by an authority that is not trusted", "give the authority's certificate as ca_file"),
    20: ("is signed by an authority that is not trusted", "give the authority's certificate as ca_file"),
    21: ("cannot be traced to a trusted authority", "an intermediate certificate is missing: install the full chain"),
    23: ("is revoked", "it must be replaced by another"),
    26: ("is not meant for this purpose", "it needs the right extended key usage (serverAuth, clientAuth)"),
    62: ("is for another host", "connect by a name that it lists, or set server_name to one"),
    64: ("is for another address", "connect by a name or address that it lists, or set server_name to one"),
}
# The reasons of alerts that the peer sent, as ssl.SSLError.reason names them.
_ALERTS: dict[str, tuple[str, str]] = {
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": ("it demands a client certificate", "give cert_file and key_file"),
    "SSLV3_ALERT_CERTIFICATE_REQUIRED": ("it demands a client certificate", "give cert_file and key_file"),
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": ("the peer showed no certificate", "give the client cert_file and key_file"),
    "TLSV1_ALERT_UNKNOWN_CA": (
        "it does not trust our certificate's authority", "add the authority to its trust store, or use another one",
    ),
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": ("our certificate has expired", "renew it"),
    # Java's brokers send this also to a client that shows no certificate where one is demanded.
    "SSLV3_ALERT_BAD_CERTIFICATE": (
        "it demands a client certificate, or refused ours", "give cert_file and key_file; if given, see its log",
    ),
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": ("it refused our certificate", "see its log for the reason"),
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": ("it refused our kind of certificate", "check its key usage"),
    "SSLV3_ALERT_CERTIFICATE_REVOKED": ("our certificate is revoked", "get another"),
    "TLSV1_ALERT_ACCESS_DENIED": ("it denied access", "see its log for the reason"),
    "TLSV1_ALERT_PROTOCOL_VERSION": ("it speaks no TLS version that we do", "let it speak TLS 1.2 or 1.3"),
    "UNSUPPORTED_PROTOCOL": ("the peer speaks no TLS version that we do", "let it speak TLS 1.2 or 1.3"),
    "SSLV3_ALERT_HANDSHAKE_FAILURE": ("it found no cipher in common, or wants a client certificate", "see its log"),
    "TLSV1_UNRECOGNIZED_NAME": ("it does not know the requested server name", "set server_name"),
    "NO_SHARED_CIPHER": ("no cipher in common", "check the ciphers configured on both sides"),
}  # fmt: skip


def explain(error: ssl.SSLError, *, host: str | None, is_server: bool) -> TlsError:
    """Return the typed error for a failed handshake, read or write."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _certificate_fault(error, host=host, is_server=is_server)
    reason = error.reason or str(error)
    if reason in _ALERTS:
        text, remedy = _ALERTS[reason]
        return TlsError(f"the peer ended the TLS handshake: {text} ({reason})", remedy=remedy)
    return TlsError(f"TLS failed: {reason}", remedy="check that both sides speak TLS 1.2 or 1.3 on this port")


def _certificate_fault(error: ssl.SSLCertVerificationError, *, host: str | None, is_server: bool) -> TlsError:
    whose = "client's certificate" if is_server else "broker's certificate"
    if error.verify_code in _CERTIFICATE_FAULTS:
        text, remedy = _CERTIFICATE_FAULTS[error.verify_code]
        return TlsError(f"the {whose} {text} ({error.verify_message})", remedy=remedy)
    about = f" for {host}" if host and not is_server else ""
    return TlsError(
        f"the {whose}{about} is not accepted: {error.verify_message}", remedy="check the certificate and ca_file"
    )


def not_tls(sample: bytes, *, is_server: bool) -> NodeError | None:
    """Return the error if the first bytes of a peer are not TLS; None while they may be.

    The first record of a server is a handshake or an alert, that of a client a handshake, both of version 3.x.
    """
    if sample[:1] in (b"\x16", b"\x15") and sample[1:2] in (b"", b"\x03"):
        return None
    if len(sample) >= 4 and (named := not_kafka(sample)) is not None and "TLS" not in named.message:
        return named
    if is_server:
        return TlsError(
            "the client does not speak TLS, and this listener does",
            remedy="turn TLS on in the client, or use another port",
        )
    return TlsError(
        "the broker does not speak TLS on this port",
        remedy="turn TLS off for this connection, or use the port of a TLS listener",
    )
