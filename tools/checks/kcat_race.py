"""Compare `kwire produce` and `kwire consume` with kcat: time by the clock, and CPU. Runs of the two take turns.

tools/kcat-race [-b HOST:PORT] [--lines N] [--records N] [--rounds N]

Without -b a real broker is started. Each round produces the lines of a file, and reads a topic to its end as JSON and
by a format string; what is read is counted. kwire runs as from a wheel: see plain_python. Prints the median of each,
and how many times faster than kcat kwire was.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from brokers.cluster import KafkaCluster

import kwire

_PARTITIONS = 4
_FORMAT = "%o %k %s\\n"


class Cost(NamedTuple):
    """Seconds by the clock and of CPU."""

    clock: float
    cpu: float


class Want(NamedTuple):
    """One thing that both do: kwire's and kcat's arguments, and what they read and write."""

    name: str
    kwire: Sequence[str]
    kcat: Sequence[str]
    reads: Path | None
    lines_out: int


def cost(command: Sequence[str], reads: Path | None, writes: Path, environment: Mapping[str, str]) -> Cost:
    """Run a command to its end."""
    with contextlib.ExitStack() as open_files:
        stdin = subprocess.DEVNULL if reads is None else open_files.enter_context(reads.open("rb"))
        stdout = open_files.enter_context(writes.open("wb"))
        begin = time.perf_counter()
        process = subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, env=environment)
        assert process.stderr is not None
        stderr = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        clock = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        process.stderr.close()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}: {stderr.decode(errors='replace')}")
    return Cost(clock, usage.ru_utime + usage.ru_stime)


def lines_in(file: Path) -> int:
    with file.open("rb") as opened:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: opened.read(1 << 20), b""))


def write_lines(file: Path, count: int) -> None:
    """Write lines of 100 bytes that do not compress to nothing."""
    chance = random.Random(1)
    with file.open("w") as opened:
        for number in range(count):
            opened.write(f"{number:09} {chance.randrange(10**89):089}\n")


def fill(bootstrap: str, topic: str, count: int) -> None:
    value = b"v" * 70
    with kwire.Producer(bootstrap) as producer:
        for first in range(0, count, 100_000):
            few = range(first, min(first + 100_000, count))
            producer.send_many(topic, [b"%09d %b" % (n, value) for n in few], [b"key%d" % (n % 1000) for n in few])
        producer.flush()


def create(bootstrap: str, topic: str) -> None:
    with kwire.Admin(bootstrap) as admin:
        admin.topics.create(topic, partitions=_PARTITIONS)


@contextlib.contextmanager
def brokers(given: str | None) -> Iterator[str]:
    if given is not None:
        yield given
        return
    with KafkaCluster(is_brief=False) as cluster:
        yield cluster.bootstrap


def wants(bootstrap: str, topic: str, into: str, lines: Path, records: int) -> list[Want]:
    """Return what each round does."""
    to, of = ["-b", bootstrap], ["-q", "-e"]
    return [
        Want("produce lines", ["produce", *to, into, "-q"], ["-P", *to, "-t", into], lines, 0),
        Want("consume as JSON", ["consume", *to, topic, *of], ["-C", *to, "-t", topic, *of, "-J"], None, records),
        Want(
            f"consume -F {_FORMAT}",
            ["consume", *to, topic, *of, "-F", _FORMAT],
            ["-C", *to, "-t", topic, *of, "-f", _FORMAT],
            None,
            records,
        ),
    ]


def with_bytecode(folder: str) -> dict[str, str]:
    """Return an environment in which Python keeps compiled modules, as an installed kwire has them."""
    kept = {name: value for name, value in os.environ.items() if name not in {"PYTHONDONTWRITEBYTECODE", "PYTHONPATH"}}
    return kept | {"PYTHONPYCACHEPREFIX": folder}


def plain_python(folder: Path) -> str:
    """Return a Python that imports kwire and what it needs from folders, by no import hook."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    sources = Path(kwire.__file__).parents[1]
    (packages / "kwire.pth").write_text(f"{sources}\n{sysconfig.get_path('purelib')}\n", "utf-8")
    return str(folder / "bin" / "python")


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-b", "--bootstrap", help="brokers; default: one real broker that is started here")
    parser.add_argument("--lines", type=int, default=500_000, help="lines to produce in one run")
    parser.add_argument("--records", type=int, default=2_000_000, help="records to consume in one run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", help="only what has this word in its name, such as JSON")
    given = parser.parse_args(argv)
    if shutil.which("kcat") is None:
        raise SystemExit("there is no kcat on the path: apt-get install kcat")
    suffix = f"{os.getpid()}-{random.randrange(1 << 16)}"
    with tempfile.TemporaryDirectory() as folder, brokers(given.bootstrap) as bootstrap:
        lines, out = Path(folder, "lines"), Path(folder, "out")
        write_lines(lines, given.lines)
        topic, into = f"race-{suffix}", f"race-in-{suffix}"
        create(bootstrap, topic)
        create(bootstrap, into)
        fill(bootstrap, topic, given.records)
        environment = with_bytecode(str(Path(folder, "bytecode")))
        python = plain_python(Path(folder, "venv"))
        is_fastest = True
        for want in wants(bootstrap, topic, into, lines, given.records):
            if given.only is not None and given.only not in want.name:
                continue
            programs = {"kwire": [python, "-m", "kwire", *want.kwire], "kcat": ["kcat", *want.kcat]}
            costs: dict[str, list[Cost]] = {name: [] for name in programs}
            cost([*programs["kwire"], "-c", "1"], want.reads, out, environment)  # compiles the modules
            for number in range(given.rounds):
                order = list(programs) if number % 2 == 0 else list(reversed(programs))
                for name in order:
                    costs[name].append(cost(programs[name], want.reads, out, environment))
                    if lines_in(out) != want.lines_out:
                        raise SystemExit(f"{name}: {want.name} wrote {lines_in(out)} lines, not {want.lines_out}")
            medians = {name: statistics.median(one.clock for one in found) for name, found in costs.items()}
            is_fastest &= medians["kwire"] <= medians["kcat"]
            print(f"{want.name}: {medians['kcat'] / medians['kwire']:.2f} times kcat's speed")
            for name, found in costs.items():
                each = ", ".join(f"{one.clock:.2f}" for one in found)
                cpu = statistics.median(one.cpu for one in found)
                print(f"  {name:6}{medians[name]:6.2f} s by the clock ({each}), {cpu:.2f} s of CPU", flush=True)
    return 0 if is_fastest else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
