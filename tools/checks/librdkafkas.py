"""Check releases of confluent-kafka on the embedded broker; tools/librdkafkas makes the environment and starts this.

It installs a release with `pip install --target`, and a new process (`--inside`) imports it from there: it lists all
topics, produces, and reads as a member of a group that subscribes by a pattern.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from kwire.broker import Cluster

RELEASES = (
    "2.8.0", "2.8.2", "2.9.0", "2.10.1", "2.11.1", "2.12.2", "2.13.0", "2.13.2", "2.14.0", "2.14.2", "2.15.0", "2.16.1",
)  # fmt: skip
CACHE = Path(__file__).resolve().parents[2] / ".cache" / "librdkafka"
PATIENCE_SECONDS = 30.0
RECORDS = 50


def installed(release: str) -> Path:
    """Return the folder of a release; install it if absent. Raises CalledProcessError if pip fails."""
    folder = CACHE / release
    if not (folder / "confluent_kafka").is_dir():
        command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*command, "--target", str(folder), f"confluent-kafka=={release}"], check=True)
    return folder


def check(bootstrap: str) -> None:
    """Run a user's first calls with the release on the path. Raises AssertionError or KafkaException."""
    import confluent_kafka
    import confluent_kafka.admin

    nouns: Any = confluent_kafka.admin
    admin = nouns.AdminClient({"bootstrap.servers": bootstrap})
    topics = set(admin.list_topics(timeout=PATIENCE_SECONDS).topics)
    assert topics == {"x-one", "x-two", "other"}, topics
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 1})
    for topic in topics:
        for number in range(RECORDS):
            producer.produce(topic, b"%d" % number)
    assert producer.flush(PATIENCE_SECONDS) == 0
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest", "session.timeout.ms": 6000}
    )
    consumer.subscribe(["^x.*"])
    seen: list[str | None] = []
    until = time.monotonic() + PATIENCE_SECONDS
    while len(seen) < 2 * RECORDS and time.monotonic() < until:
        seen += [message.topic() for message in consumer.consume(RECORDS, 0.5) if message.error() is None]
    consumer.close()
    assert sorted(map(str, seen)) == ["x-one"] * RECORDS + ["x-two"] * RECORDS, seen
    print(f"librdkafka {confluent_kafka.libversion()[0]}", flush=True)


def run(release: str) -> tuple[bool, str]:
    """Return whether the release passed, and its output."""
    folder = installed(release)
    with Cluster(1, topics={"x-one": 1, "x-two": 1, "other": 1}) as cluster:
        program = [sys.executable, __file__, "--inside", cluster.bootstrap]
        path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        environment = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=4 * PATIENCE_SECONDS)
        oddities = "; ".join(f"{one.api.api_name} v{one.version}: {one.what}" for one in cluster.oddities)
        failures = [repr(failure) for failure in cluster.failures]
    passed = done.returncode == 0 and not failures
    text = done.stdout.strip() if passed else f"{done.stderr.strip()} {failures}"
    return passed, f"{text}, {oddities}" if oddities else text


def main(releases: list[str]) -> int:
    failed = 0
    for release in releases or RELEASES:
        started = time.monotonic()
        passed, text = run(release)
        failed += not passed
        seconds = time.monotonic() - started
        print(f"confluent-kafka {release:7} {'ok' if passed else 'FAILED':6} {seconds:5.1f} s  {text}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        check(sys.argv[2])
        sys.exit()
    sys.exit(main(sys.argv[1:]))
