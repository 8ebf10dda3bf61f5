"""The trace of a run: every event in order, as a hash that two runs of a seed must share, and as lines to be read.

Owns the proof that a run is a function of its seed. Lines are kept only when somebody wants to read them.
"""

from __future__ import annotations

from hashlib import blake2b

from kwire.wire.frame import BytesLike


class Trace:
    def __init__(self, *, keeps_lines: bool = False) -> None:
        self.lines: list[str] | None = [] if keeps_lines else None
        self.events = 0
        self._hash = blake2b(digest_size=16)

    def note(self, now: float, what: str, data: BytesLike = b"") -> None:
        """`data` counts for the hash; of it the line has only the length."""
        line = f"{now:.9f} {what}"
        self.events += 1
        self._hash.update(line.encode())
        self._hash.update(data)
        if self.lines is not None:
            self.lines.append(f"{now:12.6f} {what}" + (f" ({len(data)} bytes)" if data else ""))

    def digest(self) -> str:
        return self._hash.hexdigest()
