"""docs/port.md has a row for each method of Java's Admin, and for no other."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from brokers.jars import fetch_jars

PAGE = Path(__file__).parent.parent.parent / "docs" / "port.md"


@pytest.mark.parametrize("version", ["4.3.1", "4.4.0"])
def test_each_method_of_javas_admin_has_a_row(version: str) -> None:
    jar = fetch_jars("kafka-clients", version) / f"kafka-clients-{version}.jar"
    command = ["javap", "-cp", str(jar), "org.apache.kafka.clients.admin.Admin"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    methods = set(re.findall(r"(\w+)\(", printed))
    assert len(methods) > 60
    section = PAGE.read_text().partition("## Java's Admin\n")[2].partition("\n## ")[0]
    named = set(re.findall(r"^\| [^|]+ \| `(\w+)` \|", section, re.MULTILINE))
    assert methods - named == set()
    if version == "4.4.0":
        assert named - methods == set()
