"""Let Kafka write the cases into samples/, for tests without Java: `python -m tests.records.record_samples`.

By kafka-clients 3.9.1; test_oracle.py holds what 4.4.0 writes against it.
"""

from __future__ import annotations

import json
import tempfile
from contextlib import closing
from pathlib import Path

from .cases import CASES, NOON
from .oracle import Oracle, build_requests

_FILE = Path(__file__).resolve().parent / "samples" / "kafka-clients-3.9.1.json"

MURMUR2_KEYS = [b"", b"2", b"21", b"foo", b"foobar", b"a-little-bit-long-string", b"\xff\x80\x7f", bytes(range(256))]
# Offset, timestamp, producer id and epoch, whether it commits, coordinator epoch.
MARKERS = {
    f"marker-{kind}": f"123\t{NOON}\t{1 << 33}\t5\t{commit}\t9" for commit, kind in enumerate(("abort", "commit"))
}


SAMPLES_VERSION = "3.9.1"


def requests() -> list[str]:
    return [
        *(line for case in CASES for line in build_requests(case)),
        *(f"marker\t{name}\t{fields}" for name, fields in MARKERS.items()),
        *(f"murmur2\tmurmur2-{key.hex()}\t{key.hex() or '.'}" for key in MURMUR2_KEYS),
    ]


def samples() -> dict[str, str]:
    """Return the hex of a batch, or the number of a murmur2 case, by name."""
    found: dict[str, str] = json.loads(_FILE.read_text())
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch, closing(Oracle(SAMPLES_VERSION, Path(scratch))) as oracle:
        responses = oracle.ask(requests())
    _FILE.write_text(json.dumps(dict(responses), indent=0) + "\n")


if __name__ == "__main__":
    main()
