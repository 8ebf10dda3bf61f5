"""One request to a token server that does what no good server does, on loopback."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme

from kwire.errors import LoginError
from kwire.net.http import post

HEAD = b"HTTP/1.1 200 OK\r\n"


@contextlib.contextmanager
def server(respond: Callable[[socket.socket], object], *, reads: bool = True) -> Iterator[str]:
    """Run a server for one connection; return its URL. It has ended when the block ends."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                if reads:
                    connection.recv(65_536)
                respond(connection)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/token"
        thread.join()


def dribble(head: bytes) -> Callable[[socket.socket], object]:
    """Return a server that sends a byte after each 50 ms, for as long as the client listens, and 5 s at most."""

    def respond(connection: socket.socket) -> None:
        connection.sendall(head)
        connection.settimeout(0.05)
        for _ in range(100):
            try:
                if connection.recv(1) == b"":
                    return
            except TimeoutError:
                connection.sendall(b"x")

    return respond


@pytest.mark.parametrize("head", [HEAD + b"X: ", HEAD + b"\r\n", b""])
def test_a_response_that_comes_byte_by_byte_ends_with_its_time(head: bytes) -> None:
    with server(dribble(head)) as url, pytest.raises(LoginError, match="no response in time") as caught:
        post(url, {}, b"", ca_file=None, seconds=0.3)
    assert caught.value.may_retry


@pytest.mark.parametrize(
    "response",
    [
        HEAD + b'Content-Length: 100\r\n\r\n{"access_token":',
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n10\r\nabc",
        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 100\r\n\r\nabc",
    ],
)
def test_half_a_body_may_be_whole_the_next_time(response: bytes) -> None:
    with (
        server(lambda connection: connection.sendall(response)) as url,
        pytest.raises(LoginError, match="in the middle of its response") as caught,
    ):
        post(url, {}, b"", ca_file=None, seconds=5)
    assert caught.value.may_retry


def test_what_is_not_http_is_not_shown() -> None:
    with (
        server(lambda connection: connection.sendall(b"\x1b[2J\r\n\r\n")) as url,
        pytest.raises(LoginError, match="does not speak HTTP") as caught,
    ):
        post(url, {}, b"", ca_file=None, seconds=5)
    assert "\x1b" not in str(caught.value)


def test_a_whole_body_of_each_form() -> None:
    for response in (
        HEAD + b"Content-Length: 3\r\n\r\nabc",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        HEAD + b"\r\nabc",
    ):
        with server(lambda connection, response=response: connection.sendall(response)) as url:  # type: ignore[misc]
            assert post(url, {}, b"", ca_file=None, seconds=5) == (200, b"abc")


def test_an_authority_that_is_not_trusted_has_one_remedy(tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")

    def respond(connection: socket.socket) -> None:
        with context.wrap_socket(connection.dup(), server_side=True) as encrypted:
            encrypted.recv(65_536)
            encrypted.sendall(HEAD + b"Content-Length: 3\r\n\r\nabc")

    with server(respond, reads=False) as url:
        assert post(url.replace("http:", "https:"), {}, b"", ca_file=str(tmp_path / "ca.pem"), seconds=5)[1] == b"abc"
    with server(respond, reads=False) as url, pytest.raises(LoginError, match="is not trusted") as caught:
        post(url.replace("http:", "https:"), {}, b"", ca_file=None, seconds=5)
    assert str(caught.value.remedy).startswith("give the authority's certificate as ca_file of the token server, or")
