"""Certificates that their authority has revoked, by a list in a file (CRL)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from brokers.certificates import Certificates, make_certificates

import kwire
from kwire import Tls
from kwire.broker import Cluster
from kwire.errors import ConfigurationError, KwireError, TlsError


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def bootstrap(files: Certificates) -> Iterator[str]:
    server = Tls(cert_file=str(files.server_cert_file), key_file=str(files.server_key_file))
    with Cluster(brokers=1, tls=server) as cluster:
        yield cluster.bootstrap


def describe(bootstrap: str, tls: Tls) -> None:
    with kwire.Admin(bootstrap, tls=tls) as admin:
        admin.describe_cluster(timeout=5)


def failure(bootstrap: str, tls: Tls) -> TlsError:
    with pytest.raises(KwireError) as caught:
        describe(bootstrap, tls)
    error = caught.value if isinstance(caught.value, TlsError) else caught.value.__cause__
    assert isinstance(error, TlsError)
    assert error.remedy
    return error


def test_a_broker_on_the_list_is_refused(bootstrap: str, files: Certificates) -> None:
    ca = str(files.ca_file)
    describe(bootstrap, Tls(ca_file=ca, crl_file=str(files.empty_crl_file)))
    assert "is revoked" in str(failure(bootstrap, Tls(ca_file=ca, crl_file=str(files.crl_file))))


def test_a_list_of_another_authority_is_not_enough(bootstrap: str, files: Certificates, tmp_path: Path) -> None:
    ca = str(files.ca_file)
    error = failure(bootstrap, Tls(ca_file=ca, crl_file=str(files.other_crl_file)))
    assert "no revocation list of its authority" in str(error)
    namesake = make_certificates(tmp_path)
    error = failure(bootstrap, Tls(ca_file=ca, crl_file=str(namesake.empty_crl_file)))
    assert "signature of the revocation list is wrong" in str(error)


def test_a_list_that_is_replaced_holds_for_new_connections(bootstrap: str, files: Certificates, tmp_path: Path) -> None:
    lists = shutil.copy(files.empty_crl_file, tmp_path / "crl.pem")
    tls = Tls(ca_file=str(files.ca_file), crl_file=str(lists))
    describe(bootstrap, tls)
    shutil.copy(files.crl_file, lists)
    assert "is revoked" in str(failure(bootstrap, tls))


def test_a_listener_refuses_a_revoked_client(files: Certificates) -> None:
    """The server's own certificate serves as the client's: it is the one that is revoked."""
    ca = str(files.ca_file)
    revoked = Tls(ca_file=ca, cert_file=str(files.server_cert_file), key_file=str(files.server_key_file))
    with Cluster(brokers=1, tls=replace(revoked, crl_file=str(files.crl_file))) as cluster:
        cert, key = str(files.client_cert_file), str(files.client_key_file)
        describe(cluster.bootstrap, Tls(ca_file=ca, cert_file=cert, key_file=key))
        assert "our certificate is revoked" in str(failure(cluster.bootstrap, revoked))


def test_files_without_a_list_are_refused(files: Certificates, tmp_path: Path) -> None:
    ca = str(files.ca_file)
    with pytest.raises(ConfigurationError, match=r"crl_file .* holds no X509 CRL in PEM form"):
        Tls(ca_file=ca, crl_file=str(files.client_key_file)).client_context()
    with pytest.raises(ConfigurationError, match=r"cannot read crl_file .* No such file"):
        Tls(ca_file=ca, crl_file=str(tmp_path / "none")).client_context()
    with pytest.raises(ConfigurationError, match="verify=False"):
        Tls(crl_file=str(files.crl_file), verify=False)
