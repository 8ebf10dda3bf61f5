"""Compare the assignors with Kafka's own on random groups, in one Java program, and time them on large groups.

Range and roundrobin must be equal to Kafka's. So must the sticky assignors, where Kafka's result depends on nothing but
the case; elsewhere rules are checked: balance, stickiness, cooperation. All bytes are compared, too. The groups come
from histories in which members join, leave, change and come back (see tests/consumer/assignors/cases.py). A seed makes
all cases, so `--seed` repeats a failure.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import logging
import time
from collections.abc import Mapping, Sequence
from random import Random

from kwire.consumer.assignors import ASSIGNORS, MemberSubscription
from kwire.consumer.assignors.assignor import Assignor
from tests.consumer.assignors.cases import Tally, random_cases
from tests.consumer.assignors.oracle import VERSION, ask, open_oracle

RECORDED_PER_ASSIGNOR = 60
MEMBERS, TOPICS, PARTITIONS = 1_000, 200, 100  # 20,000 partitions


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="tools/assignors", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=10_000, help="random cases, of all assignors together")
    parser.add_argument("--seed", type=int, default=Random().randrange(1 << 30))
    parser.add_argument("--record", metavar="FILE", help="write cases with Kafka's results to a file, and no more")
    parser.add_argument("--speed", action="store_true", help="only time the assignors on large groups")
    options = parser.parse_args(arguments)
    logging.disable(logging.WARNING)  # disputed claims are part of the cases
    if options.record:
        record(options.record, options.seed)
        return 0
    if options.speed:
        print_speed()
        return 0
    wrong = compare(options.cases, options.seed)
    print_speed()
    return 1 if wrong else 0


def compare(count: int, seed: int) -> int:
    """Judge random cases; print what was judged and the first wrong cases. Return how many are wrong."""
    print(f"{count} cases against Kafka {VERSION}, seed {seed}")
    wrong = 0
    program = open_oracle()
    try:
        for name in ASSIGNORS:
            cases = list(random_cases(seed, name, count // len(ASSIGNORS)))
            tally = Tally()
            for case, kafkas in zip(cases, ask(program, cases), strict=True):
                before = len(tally.wrong)
                tally.judge(case, kafkas)
                if len(tally.wrong) > before:
                    wrong += 1
                    if wrong <= 3:
                        print(f"WRONG: {tally.wrong[before:]}\n{json.dumps(case.to_json())}")
            print(f"{name}: {summary(tally)}")
    finally:
        program.close()
    print("all right" if not wrong else f"{wrong} cases are wrong: repeat with --seed {seed}")
    return wrong


def summary(tally: Tally) -> str:
    text = f"{tally.exact} equal to Kafka's"
    if tally.by_rules:
        text += f", {tally.by_rules} by rules"
    if tally.moved:
        text += (
            f", of these {tally.moved} partitions moved, by Kafka {tally.moved_by_kafka} (one more than by Kafka in "
            f"{tally.moved_one_more} cases)"
        )
    if tally.failed_in_kafka or tally.invalid_in_kafka:
        text += (
            f", {tally.failed_in_kafka} in which Kafka's fails, {tally.invalid_in_kafka} in which its result is invalid"
        )
    return text


def record(path: str, seed: int) -> None:
    """Write cases with Kafka's results, one to a line."""
    program = open_oracle()
    try:
        # Without a time, so that the same cases make the same file.
        with gzip.GzipFile(path, "wb", mtime=0) as zipped, io.TextIOWrapper(zipped) as file:
            for name in ASSIGNORS:
                cases = list(random_cases(seed, name, RECORDED_PER_ASSIGNOR))
                for case, kafkas in zip(cases, ask(program, cases), strict=True):
                    file.write(json.dumps({"case": case.to_json(), "kafka": kafkas}, separators=(",", ":")) + "\n")
    finally:
        program.close()


def print_speed() -> None:
    """Time an assignment of 1,000 members and 20,000 partitions, after 100 members have joined."""
    print(f"{MEMBERS:,} members, {TOPICS * PARTITIONS:,} partitions, 100 of the members are new:")
    random = Random(1)
    topics = {f"t{number}": [()] * PARTITIONS for number in range(TOPICS)}
    members = [f"m-{random.getrandbits(60):x}" for _ in range(MEMBERS)]
    alike = dict.fromkeys(members, tuple(topics))
    subscriptions = [tuple(random.sample(sorted(topics), 60)) for _ in range(100)]
    mixed = {member: random.choice(subscriptions) for member in members}
    for name, cls in ASSIGNORS.items():
        print(f"  {name}: {seconds(cls(), topics, alike):.3f} s, limit 1 s")
    sticky = ASSIGNORS["cooperative-sticky"]
    print(f"  cooperative-sticky, 100 different subscriptions: {seconds(sticky(), topics, mixed):.3f} s, limit 5 s")


def seconds(
    assignor: Assignor, topics: Mapping[str, list[tuple[()]]], subscribed: Mapping[str, Sequence[str]]
) -> float:
    before = {member: MemberSubscription(topics) for member, topics in [*subscribed.items()][100:]}
    owned = assignor.assign(topics, before)
    members = {
        member: MemberSubscription(subscribed[member], tuple(owned.get(member, ())), 1)  # type: ignore[arg-type]
        for member in subscribed
    }
    start = time.perf_counter()
    assignor.assign(topics, members)
    return time.perf_counter() - start
