"""Clients that are known by their certificate (mutual TLS): their names, and ACLs for them."""

from __future__ import annotations

from pathlib import Path

import pytest
from brokers.certificates import CLIENT_NAME, Certificates, make_certificates
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from kwire import Admin, Producer, Tls
from kwire.admin import Acl
from kwire.broker import Cluster
from kwire.broker.certificate_names import subject_name
from kwire.errors import AuthorizationError, KwireError


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def der(path: Path) -> bytes:
    return x509.load_pem_x509_certificate(path.read_bytes()).public_bytes(Encoding.DER)


def test_a_name_is_that_of_java(files: Certificates) -> None:
    """tests/live/test_security.py compares it with real brokers."""
    assert subject_name(der(files.client_cert_file)) == "CN=kwire-client"
    name = subject_name(der(files.named_client_file))
    parts = name.split(",DC=")
    assert parts[0].startswith("1.2.840.113549.1.9.1=#160d")  # the e-mail address, an IA5String
    assert parts[0].endswith(",CN=\\ me\\ ")
    assert parts[1] == 'kwire,OU=c\\"d\\<e\\>\\;\\#\\\\,OU=a\\=b,O=Ä\\, B \\+ C,C=DE'
    assert len(CLIENT_NAME) == 7


def test_what_is_no_certificate_is_a_value_error(files: Certificates) -> None:
    good = der(files.client_cert_file)
    for broken in (b"", b"0", good[:-1], b"\x30\x00", b"\x30\x02\x30\x00", b"\x30\x84\xff\xff\xff\xff"):
        with pytest.raises(ValueError, match=r"malformed|unpack"):
            subject_name(broken)


def test_rules_for_the_name_of_a_certificate(files: Certificates) -> None:
    listener = Tls(
        ca_file=str(files.ca_file), cert_file=str(files.server_cert_file), key_file=str(files.server_key_file)
    )
    boss = Tls(ca_file=str(files.ca_file), cert_file=str(files.client_cert_file), key_file=str(files.client_key_file))
    me = Tls(ca_file=str(files.ca_file), cert_file=str(files.named_client_file))
    my_name = f"User:{subject_name(der(files.named_client_file))}"
    topics = {"orders": 1, "secrets": 1}
    with Cluster(1, topics=topics, tls=listener, authorizer=True, super_users="User:CN=kwire-client") as cluster:
        with Admin(cluster.bootstrap, tls=boss) as admin:
            admin.acls.add(Acl.allow(my_name, "write").on(topic="orders"))
        with Producer(cluster.bootstrap, tls=me, idempotence=False) as producer:
            assert producer.send("orders", b"1").result(timeout=10).offset == 0
            with pytest.raises(KwireError, match="secrets") as caught:
                producer.send("secrets", b"1").result(timeout=10)
        error = caught.value
        assert isinstance(error, AuthorizationError) or isinstance(error.__cause__, AuthorizationError)
        assert not cluster.failures
