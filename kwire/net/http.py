"""One HTTP request to a token server, by the standard library. It blocks: call it on a thread that may wait.

Redirects are not followed, because the request holds credentials. Proxies are those of the environment.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

from kwire.errors import LoginError
from kwire.net.tls import Tls
from kwire.net.tls_errors import explain

BODY_MAX = 1 << 20


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


class _Deadline:
    """Ends a request when its time is over. The standard library limits each read, and so not a server that sends one
    byte now and then."""

    def __init__(self) -> None:
        self.is_over = False
        self._connections: list[http.client.HTTPConnection] = []
        self._sockets: list[socket.socket] = []

    def connection(self, kind: type[http.client.HTTPConnection]) -> Callable[..., http.client.HTTPConnection]:
        """Return what makes a connection of this kind that `expire` ends."""
        sockets = self._sockets

        class Connection(kind):  # type: ignore[misc, valid-type]
            def connect(self) -> None:
                super().connect()
                sockets.append(self.sock)  # the connection forgets it before the response is read

        def make(*args: Any, **kwargs: Any) -> http.client.HTTPConnection:
            made: http.client.HTTPConnection = Connection(*args, **kwargs)
            self._connections.append(made)
            return made

        return make

    def expire(self) -> None:
        self.is_over = True
        for sock in (*(connection.sock for connection in self._connections), *self._sockets):
            if sock is not None:
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)


class _HttpHandler(urllib.request.HTTPHandler):
    def __init__(self, deadline: _Deadline) -> None:
        super().__init__()
        self._make = deadline.connection(http.client.HTTPConnection)

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._make, req)


class _HttpsHandler(urllib.request.HTTPSHandler):
    def __init__(self, deadline: _Deadline, context: ssl.SSLContext) -> None:
        super().__init__(context=context)
        self._make = deadline.connection(http.client.HTTPSConnection)
        self._tls = context

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._make, req, context=self._tls)


def post(
    url: str, headers: Mapping[str, str], body: bytes, *, ca_file: str | None, seconds: float
) -> tuple[int, bytes]:
    """Send a POST request and return status and body, of any status. Raises LoginError within about `seconds`.

    `ca_file` has the authorities of the server, None: those of the system. ConfigurationError if it cannot be read.
    """
    context = Tls(ca_file=ca_file).client_context() if url.startswith("https:") else None
    deadline = _Deadline()
    handlers: list[Any] = [_NoRedirect(), _HttpHandler(deadline)]
    if context is not None:
        handlers.append(_HttpsHandler(deadline, context))
    opener = urllib.request.build_opener(*handlers)
    request = urllib.request.Request(url, body, dict(headers), method="POST")
    timer = threading.Timer(seconds, deadline.expire)
    timer.daemon = True
    timer.start()
    try:
        try:
            response: http.client.HTTPResponse | urllib.error.HTTPError = opener.open(request, timeout=seconds)
        except urllib.error.HTTPError as error:  # a status that is no success: its body says why
            response = error
        with response:
            content = _read(response, url)
            if deadline.is_over:  # what is cut may look like an end
                raise TimeoutError
            return response.status or 0, content
    except LoginError:  # which is an OSError
        raise
    except urllib.error.URLError as error:
        raise _unreachable(url, TimeoutError() if deadline.is_over else error.reason) from error
    except (OSError, http.client.HTTPException) as error:
        raise _unreachable(url, TimeoutError() if deadline.is_over else error) from error
    finally:
        timer.cancel()


def _read(response: Any, url: str) -> bytes:
    """Read the whole body. Raises IncompleteRead if the server ends it early, which `read1` passes over."""
    parts: list[bytes] = []
    size = 0
    while part := response.read1(1 << 16):
        parts.append(part)
        size += len(part)
        if size > BODY_MAX:
            raise LoginError(f"the token server {url} sent more than {BODY_MAX:,} bytes", remedy="check the URL")
    if response.length:
        raise http.client.IncompleteRead(b"", response.length)
    return b"".join(parts)


def _unreachable(url: str, reason: object) -> LoginError:
    if isinstance(reason, ssl.SSLError):
        explained = explain(reason, host=url, is_server=False)
        text, remedy = explained.message.replace("the broker's", "its"), explained.remedy or ""
        remedy = remedy.replace("ca_file", "ca_file of the token server, or https.ca.location in its properties")
        return LoginError(f"the token server {url}: {text}", remedy=remedy)
    if isinstance(reason, TimeoutError):
        text = "no response in time"
    elif isinstance(reason, http.client.IncompleteRead):
        text = "it closed the connection in the middle of its response"
    elif isinstance(reason, http.client.BadStatusLine) and not isinstance(reason, http.client.RemoteDisconnected):
        text = "what responds there does not speak HTTP"  # its first line may be anything
    else:
        text = str(reason) or type(reason).__name__
    return LoginError(
        f"the token server {url} cannot be reached: {text}", may_retry=True, remedy="check the URL and the network"
    )
