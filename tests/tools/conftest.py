"""What stands in tools/ is imported by its short names, as the programs there do it."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
