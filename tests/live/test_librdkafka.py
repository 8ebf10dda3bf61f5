"""Test an old release of confluent-kafka on the embedded broker; tools/librdkafkas checks all releases."""

from __future__ import annotations

import subprocess

import pytest
from checks import librdkafkas

from tests.conftest import missing

OLD = "2.8.0"


@pytest.mark.live
def test_an_old_release_lists_topics_and_subscribes_by_a_pattern() -> None:
    try:
        librdkafkas.installed(OLD)
    except subprocess.CalledProcessError:
        missing(f"pip cannot install confluent-kafka {OLD}")
    passed, text = librdkafkas.run(OLD)
    assert passed, text
