"""Frames recorded from real brokers, given to `kwire decode` as a person would: no hint for a request, and for a
response the API and version alone."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kwire.cli.decode.command import FrameOptions
from kwire.cli.decode.frame import RawFrame, split_frames

FIXTURES = Path(__file__).parents[2] / "fixtures"
BROKERS = sorted(path.name for path in FIXTURES.iterdir() if path.is_dir())
NAME = re.compile(r"(?P<api>.+?)_v(?P<version>\d+).*_(?P<kind>request|response)")


@pytest.mark.parametrize("broker", BROKERS)
def test_every_recorded_frame_decodes_to_its_last_byte(broker: str) -> None:
    files = sorted((FIXTURES / broker).glob("*.bin"))
    assert files
    for file in files:
        name = NAME.fullmatch(file.stem)
        assert name is not None, file
        is_request = name["kind"] == "request"
        wanted = FrameOptions.of(
            None if is_request else name["api"], None if is_request else name["version"], None, False, show_secrets=True
        )
        data = file.read_bytes()
        for given, start in ((data, 0), (len(data).to_bytes(4, "big") + data, 4)):
            frames = split_frames(given, None, wanted.makes_sense)
            assert frames == [RawFrame(start, data, has_size=start == 4)], file
            decoded = wanted.read(frames[0])
            assert decoded.is_whole, (file, decoded.problems)
            assert (decoded.kind, decoded.version) == (name["kind"], int(name["version"])), file
            recorded = json.loads(file.with_suffix(".json").read_text())
            assert (decoded.header, decoded.message) == (recorded["header"], recorded["body"]), file
            assert max(row.end for row in decoded.rows if not row.within) == start + len(data), file
