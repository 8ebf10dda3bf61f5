"""Write the files of a recording: fixtures/<broker version>/<api>_v<n>_{request,response}.{bin,json}.

`.bin` is the frame with its header and without its size. `.json` has the header's fields and the body in Kafka's JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from recording.wire import CLIENT_ID, Exchange

ROOT = Path(__file__).resolve().parents[2] / "fixtures"


def write(exchange: Exchange, broker_version: str, root: Path = ROOT) -> None:
    """Write the four files of one exchange."""
    folder = root / broker_version
    folder.mkdir(parents=True, exist_ok=True)
    request, response = exchange.request, exchange.response
    name = re.sub(r"(?<!^)([A-Z])", r"_\1", type(request).__name__.removesuffix("Request")).lower()
    stem = f"{name}_v{exchange.version}"
    asked = {
        "requestApiKey": request.API_KEY,
        "requestApiVersion": exchange.version,
        "correlationId": exchange.correlation_id,
        "clientId": CLIENT_ID,
    }
    (folder / f"{stem}_request.bin").write_bytes(exchange.request_frame)
    (folder / f"{stem}_response.bin").write_bytes(exchange.response_frame)
    _write_json(folder / f"{stem}_request.json", asked, request.to_json(exchange.version))
    answered = {"correlationId": exchange.correlation_id}
    _write_json(folder / f"{stem}_response.json", answered, response.to_json(exchange.version))


def _write_json(path: Path, header: Mapping[str, object], body: object) -> None:
    path.write_text(json.dumps({"header": header, "body": body}, indent=1, ensure_ascii=False) + "\n")
