"""README's map and its walk of one record are those of the code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_first_example_is_twenty_lines() -> None:
    (first, *_) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    code = [line for line in first.splitlines() if line.strip()]
    assert 15 <= len(code) <= 22


def walked_files() -> list[str]:
    """The files and folders of the walk, whole: a name without a folder stands in that of the name before it."""
    walk = README.partition("## How one record travels")[2].partition("\n## ")[0]
    found, folder = [], ""
    for name in re.findall(r"`([\w/]+(?:\.py|/))`", walk):
        if name.startswith("kwire/"):
            folder = name.rpartition("/")[0] if name.endswith(".py") else folder
            found.append(name)
        else:
            found.append(f"{folder}/{name}")
    return found


def test_files_that_the_walk_names_exist() -> None:
    assert len(walked_files()) > 30
    for name in walked_files():
        assert (ROOT / name).exists(), name


FOLLOW = """
import os, sys, threading
import kwire
from kwire.broker import Cluster

home, seen = os.path.dirname(os.path.dirname(kwire.__file__)), set()

def note(frame, event, argument):
    name = frame.f_code.co_filename
    if name.startswith(home + "/kwire/"):
        seen.add(os.path.relpath(name, home))

def send_one():
    with kwire.Producer(cluster.bootstrap, compression="gzip") as producer:
        producer.send("t", b"value", key=b"key", on_delivery=lambda response: None).result(30)

with Cluster(brokers=1, topics={"t": 1}) as cluster:
    send_one()  # loads the modules and compiles the messages
    threading.setprofile(note)
    sys.setprofile(note)
    send_one()
    sys.setprofile(None)
print(*sorted(seen))
"""

# The other side of the socket; and what is read when a module is loaded or a message is first used.
BESIDE = re.compile(
    r"/__init__\.py$|^kwire/broker/|^kwire/version|^kwire/protocol/(api|fields|types|source|encoding|decoding|messages/)"
)


def test_the_walk_is_the_whole_list() -> None:
    environment = {**os.environ, "KWIRE_IMPL": "python"}
    done = subprocess.run(
        [sys.executable, "-c", FOLLOW], capture_output=True, text=True, timeout=60, check=True, env=environment
    )
    followed = [name for name in done.stdout.split() if not BESIDE.search(name)]
    assert "kwire/producer/producer.py" in followed
    walk = walked_files()
    assert [name for name in followed if not any(name == one or name.startswith(one) for one in walk)] == []


def test_every_room_is_on_the_map() -> None:
    rooms = {path.parent.name for path in (ROOT / "kwire").glob("*/__init__.py")}
    mapped = set(re.findall(r"^\| `kwire/(\w+)/` ", README, re.MULTILINE))
    assert mapped == rooms
