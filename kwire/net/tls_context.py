"""Load the files of a `Tls` into an OpenSSL context, and say which file is wrong and how."""

from __future__ import annotations

import ssl
from pathlib import Path

from kwire.errors import ConfigurationError
from kwire.net.tls import FILES, Tls


def client_context(tls: Tls) -> ssl.SSLContext:
    """Load the files for a client. Raises ConfigurationError that names the option and the file at fault."""
    context = _context(tls, ssl.Purpose.SERVER_AUTH)
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif not tls.check_hostname:
        context.check_hostname = False
    return context


def server_context(tls: Tls) -> ssl.SSLContext:
    """Load the files for a listener. Raises ConfigurationError that names the option and the file at fault."""
    if tls.cert_file is None:
        raise ConfigurationError("a TLS listener needs a certificate", remedy="give cert_file and key_file")
    context = _context(tls, ssl.Purpose.CLIENT_AUTH)
    if tls.ca_file is not None and tls.verify:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _context(tls: Tls, purpose: ssl.Purpose) -> ssl.SSLContext:
    for option in FILES:
        _check_readable(option, getattr(tls, option))
    try:
        context = ssl.create_default_context(purpose, cafile=tls.ca_file)
    except ssl.SSLError as error:
        raise _not_pem("ca_file", tls.ca_file, "certificate") from error
    if tls.crl_file is not None:
        try:
            context.load_verify_locations(cafile=tls.crl_file)
        except ssl.SSLError as error:
            raise _not_pem("crl_file", tls.crl_file, "X509 CRL") from error
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    if tls.cert_file is not None:
        # Without a password OpenSSL would prompt on the terminal; a function that returns "" makes it fail.
        password = tls.key_password or ""
        try:
            context.load_cert_chain(tls.cert_file, tls.key_file, password=lambda: password)
        except (ssl.SSLError, ValueError) as error:  # ValueError: a password of more than 1024 bytes
            raise _wrong_certificate(tls, error) from error
    context.options |= ssl.OP_NO_RENEGOTIATION  # of TLS 1.2, where a write might wait for a read
    return context


def _wrong_certificate(tls: Tls, error: Exception) -> ConfigurationError:
    """Return an error that says whether certificate, key or password is wrong; OpenSSL mostly says "PEM lib"."""
    assert tls.cert_file is not None
    option, path = ("key_file", tls.key_file) if tls.key_file is not None else ("cert_file", tls.cert_file)
    if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
        return ConfigurationError(
            f"the private key in {option} {path!r} is not that of the certificate in cert_file {tls.cert_file!r}",
            remedy="give the key that the certificate was made for; in a chain, our own certificate comes first",
        )
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=tls.cert_file)
    except ssl.SSLError:
        return _not_pem("cert_file", tls.cert_file, "certificate")
    text = Path(path).read_bytes()
    if b"ENCRYPTED" in text:
        if tls.key_password is None:
            what, remedy = f"the private key in {option} {path!r} is encrypted", "give key_password"
        else:
            what, remedy = f"key_password does not open the private key in {option} {path!r}", "check the password"
        return ConfigurationError(what, remedy=remedy)
    if tls.key_file is None and b"PRIVATE KEY" not in text:
        return ConfigurationError(f"cert_file {path!r} has no private key in it", remedy="give its key_file")
    return _not_pem(option, path, "private key")


def _check_readable(option: str, path: str | None) -> None:
    if path is None:
        return
    try:
        with open(path, "rb"):
            pass
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigurationError(f"cannot read {option} {path!r}: {reason}", remedy="check the path") from error


def _not_pem(option: str, path: str | None, content: str) -> ConfigurationError:
    return ConfigurationError(
        f"{option} {path!r} holds no {content} in PEM form",
        remedy=f'a PEM file has "-----BEGIN {content.upper()}-----"; convert DER or PKCS #12 with openssl',
    )
