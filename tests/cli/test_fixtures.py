"""Frames recorded from real brokers, given to `kwire decode` as a person would: no hint for a request, and for a
response the API and version alone."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kwire.cli.decode import Wanted
from kwire.cli.frames import Frame, split

FIXTURES = Path(__file__).parents[2] / "fixtures"
BROKERS = sorted(path.name for path in FIXTURES.iterdir() if path.is_dir())
NAME = re.compile(r"(?P<api>.+?)_v(?P<version>\d+).*_(?P<kind>request|response)")


@pytest.mark.parametrize("broker", BROKERS)
def test_every_recorded_frame_is_explained_to_its_last_byte(broker: str) -> None:
    files = sorted((FIXTURES / broker).glob("*.bin"))
    assert files
    for file in files:
        name = NAME.fullmatch(file.stem)
        assert name is not None, file
        is_request = name["kind"] == "request"
        wanted = Wanted.of(
            None if is_request else name["api"], None if is_request else name["version"], None, False, show_secrets=True
        )
        data = file.read_bytes()
        for given, start in ((data, 0), (len(data).to_bytes(4, "big") + data, 4)):
            frames = split(given, None, wanted.makes_sense)
            assert frames == [Frame(start, data, has_size=start == 4)], file
            reading = wanted.read(frames[0])
            assert reading.is_whole, (file, reading.problems)
            assert (reading.kind, reading.version) == (name["kind"], int(name["version"])), file
            recorded = json.loads(file.with_suffix(".json").read_text())
            assert (reading.header, reading.message) == (recorded["header"], recorded["body"]), file
            assert max(row.end for row in reading.rows if not row.within) == start + len(data), file
