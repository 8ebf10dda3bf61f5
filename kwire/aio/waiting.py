"""How a task waits for the loop thread of a client: by a future of its own loop, resolved through the bridge.

A task may be cancelled at any time. The work on the other thread goes on, and its outcome is dropped.
"""

from __future__ import annotations

from kwire.cluster.waiting import AWAITING
from kwire.cluster.waiting import AsyncioSignal as Signal

result_of = AWAITING.result_of

__all__ = ["Signal", "result_of"]
