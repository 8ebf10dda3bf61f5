"""Certificates that are replaced on disk while a client runs."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import trustme

import kwire
from kwire.broker import Cluster
from kwire.errors import ConfigurationError, TlsError
from kwire.net import Tls
from kwire.net.tls import ClientContexts


def write(folder: Path, certificate: trustme.LeafCert) -> None:
    (folder / "me.pem").write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    (folder / "me.key").write_bytes(certificate.private_key_pem.bytes())


def test_new_connections_use_the_new_files_and_broken_ones_keep_the_old(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    write(tmp_path, authority.issue_cert("one"))
    cert, key = (str(tmp_path / name) for name in ("me.pem", "me.key"))
    tls = Tls(ca_file=str(tmp_path / "ca.pem"), cert_file=cert, key_file=key)
    contexts = ClientContexts()
    first = contexts.of(tls)
    assert contexts.of(tls) is first
    good = (tmp_path / "me.pem").read_bytes()
    for broken in (b"", b"-----BEGIN CERTIFICATE-----", authority.issue_cert("two").cert_chain_pems[0].bytes()):
        caplog.clear()
        (tmp_path / "me.pem").write_bytes(broken)  # the third is good, but its key is not there yet
        with caplog.at_level(logging.WARNING, "kwire.net"):
            assert contexts.of(tls) is first
            assert contexts.of(tls) is first
        assert len(caplog.records) == 1
    (tmp_path / "me.pem").unlink()
    assert contexts.of(tls) is first
    (tmp_path / "me.pem").write_bytes(good)
    second = contexts.of(tls)
    assert second is not first
    assert contexts.of(tls) is second
    with pytest.raises(ConfigurationError):
        ClientContexts().of(Tls(ca_file=str(tmp_path / "none.pem")))


def test_a_client_goes_on_with_a_new_certificate(tmp_path: Path) -> None:
    """The broker trusts another authority from now on; the client gets a certificate of it, and needs no restart."""
    old, new = trustme.CA(), trustme.CA()
    server = tmp_path / "server.pem"
    old.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(server)
    for authority, name in ((old, "old.pem"), (new, "new.pem"), (old, "ca.pem")):
        authority.cert_pem.write_to_path(tmp_path / name)
    write(tmp_path, old.issue_cert("me"))
    tls = Tls(str(tmp_path / "ca.pem"), str(tmp_path / "me.pem"), str(tmp_path / "me.key"))

    def broker(ports: list[int], trusted: str) -> Cluster:
        files = Tls(ca_file=str(tmp_path / trusted), cert_file=str(server), key_file=str(server))
        return Cluster(brokers=1, topics={"t": 1}, tls=files, ports=ports)

    with broker([0], "old.pem") as cluster:
        port = cluster.brokers[1][1]
        with kwire.Producer(cluster.bootstrap, tls=tls) as producer:
            producer.send("t", b"1").result(timeout=20)
            cluster.close()
            write(tmp_path, new.issue_cert("me"))
            with broker([port], "new.pem"):
                assert producer.send("t", b"2").result(timeout=20).offset == 0


def test_a_wrong_host_name_is_a_tls_error(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("elsewhere.example").private_key_and_cert_chain_pem.write_to_path(tmp_path / "s.pem")
    server = Tls(cert_file=str(tmp_path / "s.pem"), key_file=str(tmp_path / "s.pem"))
    with (
        Cluster(brokers=1, tls=server) as cluster,
        kwire.Admin(cluster.bootstrap, tls=Tls(ca_file=str(tmp_path / "ca.pem"))) as admin,
        pytest.raises(TlsError, match="another address"),
    ):
        admin.topics.list(timeout=5)
