"""One HTTP request to a token server, by the standard library. It blocks: call it on a thread that may wait.

Redirects are not followed, because the request holds credentials. Proxies are those of the environment.
"""

from __future__ import annotations

import http.client
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from kwire.errors import LoginError
from kwire.net.tls import Tls
from kwire.net.tls_errors import explain

BODY_MAX = 1 << 20


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


def post(
    url: str, headers: Mapping[str, str], body: bytes, *, ca_file: str | None, seconds: float
) -> tuple[int, bytes]:
    """Send a POST request and return status and body, of any status. Raises LoginError within about `seconds`.

    `ca_file` has the authorities of the server, None: those of the system. ConfigurationError if it cannot be read.
    """
    until = time.monotonic() + seconds
    context = Tls(ca_file=ca_file).client_context() if url.startswith("https:") else None
    handlers: list[Any] = [_NoRedirect(), *([urllib.request.HTTPSHandler(context=context)] if context else [])]
    opener = urllib.request.build_opener(*handlers)
    request = urllib.request.Request(url, body, dict(headers), method="POST")
    try:
        try:
            response: http.client.HTTPResponse | urllib.error.HTTPError = opener.open(request, timeout=seconds)
        except urllib.error.HTTPError as error:  # a status that is no success: its body says why
            response = error
        with response:
            return response.status or 0, _read(response, url, until)
    except LoginError:  # which is an OSError
        raise
    except urllib.error.URLError as error:
        raise _unreachable(url, error.reason) from error
    except (OSError, http.client.HTTPException) as error:
        raise _unreachable(url, error) from error


def _read(response: Any, url: str, until: float) -> bytes:
    """Read the body within the time, however slowly it comes."""
    parts: list[bytes] = []
    size = 0
    while part := response.read1(1 << 16):
        parts.append(part)
        size += len(part)
        if size > BODY_MAX:
            raise LoginError(f"the token server {url} sent more than {BODY_MAX:,} bytes", remedy="check the URL")
        if time.monotonic() >= until:
            raise _unreachable(url, TimeoutError("the body did not come in time"))
    return b"".join(parts)


def _unreachable(url: str, reason: object) -> LoginError:
    if isinstance(reason, ssl.SSLError):
        text = explain(reason, host=url, is_server=False).text().replace("the broker's", "its")
        return LoginError(f"the token server {url}: {text}", remedy="check ca_file of the token server")
    text = "no response in time" if isinstance(reason, TimeoutError) else str(reason) or type(reason).__name__
    return LoginError(
        f"the token server {url} cannot be reached: {text}", may_retry=True, remedy="check the URL and the network"
    )
