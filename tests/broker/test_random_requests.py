"""Send random requests of every API and version, valid and not: the broker returns a response, and has no bug.

Values that occur are mixed with what exists, such as a topic, a member of a group and a producer id, so that requests
reach beyond the first check.
"""

from __future__ import annotations

from random import Random
from typing import Any
from uuid import UUID

import pytest

from kwire.broker.handlers.table import HANDLERS
from kwire.broker.request_context import Reply
from kwire.errors import EncodeError, ErrorCode
from kwire.protocol import ApiKey
from kwire.protocol.schema import Struct
from tests.broker.bench import BAD_RECORDS, GOOD
from tests.broker.virtual_cluster import VirtualCluster
from tests.protocol.samples import random_message

REQUESTS = 400
NAMES = ["t", "u", "g", "h", "x", "", "no/slash", "consumer", "range", "retention.ms", "user", "1", "-1"]
RECORDS = [GOOD, *(records for _, records, *_ in BAD_RECORDS)]


class Requests:
    """Requests to a cluster with the topics t and u. It learns members, ids and producers from the responses."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.cluster = VirtualCluster(random.choice([1, 3]), version=random.choice([None, "4.3", "4.0", "3.9"]))
        for name in ("t", "u"):
            self.cluster.state.create_topic(name, 2)
        self.known: dict[str, list[Any]] = {
            "topic_id": [topic.id for topic in self.cluster.state.topics.values()], "member_id": ["m"],
            "producer_id": [0, 1], "records": RECORDS,
        }  # fmt: skip

    def make(self, key: ApiKey) -> tuple[Any, int]:
        request = HANDLERS[key].request
        version = self.random.choice(request.VERSIONS)
        made = random_message(request, version, self.random)
        self._settle(made, version)
        return made, version

    def _settle(self, struct: Struct, version: int) -> None:
        """Replace most values by those that exist, and large numbers by small ones."""
        for field in type(struct).FIELDS:
            value = getattr(struct, field.name)
            if not field.exists(version) or value is None or self.random.random() < 0.1:
                continue
            if field.name in self.known:
                setattr(struct, field.name, self.random.choice(self.known[field.name]))
            elif isinstance(value, str):
                setattr(struct, field.name, self.random.choice(NAMES))
            elif isinstance(value, int) and not isinstance(value, bool):
                setattr(struct, field.name, self.random.choice([-1, 0, 0, 1, 2, 100]))
            elif isinstance(value, list):
                self._settle_list(struct, field.name, value, version)
            elif isinstance(value, Struct):
                self._settle(value, version)

    def _settle_list(self, struct: Struct, name: str, values: list[Any], version: int) -> None:
        for value in values:
            if isinstance(value, Struct):
                self._settle(value, version)
        if values and isinstance(values[0], int):
            setattr(struct, name, [self.random.choice([0, 1, 2, -1]) for _ in values[:3]])
        elif values and isinstance(values[0], str):
            setattr(struct, name, [self.random.choice(NAMES) for _ in values])

    def learn(self, found: Any) -> None:
        if isinstance(found, list):
            for one in found:
                self.learn(one)
        elif isinstance(found, Struct):
            for field in type(found).FIELDS:
                value = getattr(found, field.name)
                if field.name in ("topic_id", "member_id", "producer_id") and value not in ("", -1, UUID(int=0)):
                    self.known[field.name] = [*self.known[field.name][-5:], value]
                else:
                    self.learn(value)

    def send(self, key: ApiKey) -> None:
        request, version = self.make(key)
        try:
            request.encode(version)
        except EncodeError:  # a number does not fit its field
            return
        group = getattr(request, "group_id", None) or getattr(request, "transactional_id", None) or ""
        node = self.cluster.coordinator(group) if group else self.random.choice(list(self.cluster.brokers))
        HANDLERS[key].error_response(request, ErrorCode.NOT_COORDINATOR, version).encode(version)
        sent = self.cluster.send(node, request, version, connection=self.random.choice([0, 1]))
        if sent.completions and isinstance(sent.completions[0], Reply):
            self.learn(sent.response)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_a_broker_answers_every_request(seed: int) -> None:
    requests = Requests(seed)
    for number in range(REQUESTS):
        requests.send(requests.random.choice(list(HANDLERS)))
        if number % 40 == 0:
            requests.cluster.advance(requests.random.choice([0.1, 1.0, 60.0]))
    assert sum(requests.cluster.state.requests.values()) > REQUESTS * 0.7
