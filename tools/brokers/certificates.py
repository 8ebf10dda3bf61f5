"""Make PEM certificates for a test: a CA, a server for localhost, clients, and a CA that nobody trusts.

The private keys are not protected: they exist for one test, in its folder.
"""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

KEY_PASSWORD = "key-secret"
# Names by OpenSSL's short names. Java escapes some of the characters, and writes out the type that RFC 2253 lacks.
CLIENT_NAME = [
    ("C", "DE"), ("O", "Ä, B + C"), ("OU", "a=b"), ("OU", 'c"d<e>;#\\'), ("DC", "kwire"), ("CN", " me "),
    ("EMAIL", "me@kwire.test"),
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Certificates:
    """Hold the paths of the PEM files in one folder."""

    directory: Path

    @property
    def ca_file(self) -> Path:
        return self.directory / "ca.pem"

    @property
    def other_ca_file(self) -> Path:
        """Return the path of a CA that signed no certificate here."""
        return self.directory / "other-ca.pem"

    @property
    def server_keystore(self) -> Path:
        """Return the path of the key and chain in one file, as Kafka reads them."""
        return self.directory / "server.pem"

    @property
    def server_cert_file(self) -> Path:
        return self.directory / "server-cert.pem"

    @property
    def server_key_file(self) -> Path:
        return self.directory / "server-key.pem"

    @property
    def client_cert_file(self) -> Path:
        return self.directory / "client-cert.pem"

    @property
    def client_key_file(self) -> Path:
        return self.directory / "client-key.pem"

    @property
    def named_client_file(self) -> Path:
        """Return the path of the certificate and key of a client with a long name, CLIENT_NAME."""
        return self.directory / "named-client.pem"

    @property
    def crl_file(self) -> Path:
        """Return the path of a revocation list that has the server's certificate."""
        return self.directory / "crl.pem"

    @property
    def empty_crl_file(self) -> Path:
        return self.directory / "empty-crl.pem"

    @property
    def other_crl_file(self) -> Path:
        """Return the path of the list of the CA that nobody trusts."""
        return self.directory / "other-crl.pem"

    @property
    def client_locked_key_file(self) -> Path:
        """Return the path of the client's key encrypted with KEY_PASSWORD."""
        return self.directory / "client-key-locked.pem"


def make_certificates(directory: Path) -> Certificates:
    """Make all files in a folder and return their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    files = Certificates(directory)
    ca_key, ca = _certificate("kwire test CA")
    other_key, other_ca = _certificate("a CA that nobody trusts")
    server_key, server = _certificate("localhost", signed_by=(ca_key, ca))
    client_key, client = _certificate("kwire-client", signed_by=(ca_key, ca))
    files.ca_file.write_bytes(_pem(ca))
    files.other_ca_file.write_bytes(_pem(other_ca))
    files.server_cert_file.write_bytes(_pem(server))
    files.server_key_file.write_bytes(_key_pem(server_key))
    files.server_keystore.write_bytes(_key_pem(server_key) + _pem(server) + _pem(ca))
    files.client_cert_file.write_bytes(_pem(client))
    files.client_key_file.write_bytes(_key_pem(client_key))
    named_key, named = _certificate(CLIENT_NAME, signed_by=(ca_key, ca))
    files.named_client_file.write_bytes(_key_pem(named_key) + _pem(named))
    files.crl_file.write_bytes(_revocations(ca_key, ca, [server]))
    files.other_crl_file.write_bytes(_revocations(other_key, other_ca, []))
    files.empty_crl_file.write_bytes(_revocations(ca_key, ca, []))
    files.client_locked_key_file.write_bytes(_key_pem(client_key, locked=True))
    return files


def _certificate(
    name: str | list[tuple[str, str]], *, signed_by: tuple[EllipticCurvePrivateKey, x509.Certificate] | None = None
) -> tuple[EllipticCurvePrivateKey, x509.Certificate]:
    """Return a key and its certificate: a CA's if self-signed, else one for localhost and 127.0.0.1."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    types = {
        "C": NameOID.COUNTRY_NAME, "O": NameOID.ORGANIZATION_NAME, "OU": NameOID.ORGANIZATIONAL_UNIT_NAME,
        "DC": NameOID.DOMAIN_COMPONENT, "CN": NameOID.COMMON_NAME, "EMAIL": NameOID.EMAIL_ADDRESS,
    }  # fmt: skip
    parts = [("CN", name)] if isinstance(name, str) else name
    subject = x509.Name([x509.NameAttribute(types[type_], value) for type_, value in parts])
    signer_key, issuer = (key, subject) if signed_by is None else (signed_by[0], signed_by[1].subject)
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=7))
        .add_extension(x509.BasicConstraints(ca=signed_by is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer_key.public_key()), critical=False)
    )
    if signed_by is None:
        builder = builder.add_extension(_usage(is_ca=True), critical=True)
    else:
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        builder = builder.add_extension(_usage(is_ca=False), critical=True)
    return key, builder.sign(signer_key, hashes.SHA256())


def _revocations(ca_key: EllipticCurvePrivateKey, ca: x509.Certificate, revoked: list[x509.Certificate]) -> bytes:
    """Return a revocation list in PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.serialization import Encoding

    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateRevocationListBuilder().issuer_name(ca.subject)
    builder = builder.last_update(now - datetime.timedelta(hours=1)).next_update(now + datetime.timedelta(days=7))
    for certificate in revoked:
        entry = x509.RevokedCertificateBuilder().serial_number(certificate.serial_number).revocation_date(now)
        builder = builder.add_revoked_certificate(entry.build())
    return builder.sign(ca_key, hashes.SHA256()).public_bytes(Encoding.PEM)


def _usage(*, is_ca: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=not is_ca, key_cert_sign=is_ca, crl_sign=is_ca, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _key_pem(key: EllipticCurvePrivateKey, *, locked: bool = False) -> bytes:
    from cryptography.hazmat.primitives import serialization

    lock = serialization.BestAvailableEncryption(KEY_PASSWORD.encode()) if locked else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock)
