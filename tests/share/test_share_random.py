"""Share consumers under random faults, from a seed: no record is lost, and none is accepted twice."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from random import Random
from unittest.mock import patch

import pytest

from kwire.broker.faults import Disconnect, Effect, Fault, Refuse
from kwire.errors import ErrorCode
from kwire.protocol import ApiKey
from kwire.share.acknowledgements import AcknowledgeType
from kwire.share.buffer import AcknowledgeResult
from tests.share.virtual import VirtualCluster

RECORDS = 300
# No delays: an acknowledgement that reaches a broker after it lost and regained the partition may name records that are
# done. Kafka's brokers take no notice of those, and respond without an error.
_FAULTS: list[tuple[Effect, ApiKey]] = [
    (Disconnect(), ApiKey.SHARE_FETCH),
    (Disconnect(applied=True), ApiKey.SHARE_FETCH),
    (Disconnect(applied=True), ApiKey.SHARE_ACKNOWLEDGE),
    (Disconnect(), ApiKey.SHARE_GROUP_HEARTBEAT),
    (Refuse(ErrorCode.SHARE_SESSION_NOT_FOUND), ApiKey.SHARE_FETCH),
    (Refuse(ErrorCode.INVALID_SHARE_SESSION_EPOCH), ApiKey.SHARE_ACKNOWLEDGE),
    (Refuse(ErrorCode.FENCED_MEMBER_EPOCH), ApiKey.SHARE_GROUP_HEARTBEAT),
    (Refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), ApiKey.SHARE_GROUP_HEARTBEAT),
]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_no_record_is_lost_and_none_is_accepted_twice(seed: int) -> None:
    random = Random(seed)
    accepted: Counter[tuple[int, int]] = Counter()
    unknown: set[tuple[int, int]] = set()

    def note(result: AcknowledgeResult) -> None:
        for offset in result.acknowledgements.of_type(AcknowledgeType.ACCEPT):
            if result.error is None:
                accepted[result.partition, offset] += 1
            else:
                unknown.add((result.partition, offset))

    with (
        VirtualCluster(brokers=3, partitions=3, share_delivery_count_limit=10).running() as cluster,
        ExitStack() as stack,
    ):
        mode = random.choice(["batch_optimized", "record_limit"])
        consumers = [cluster.consumer(f"c{number}", max_poll_records=20, acquire_mode=mode) for number in range(3)]
        for consumer in consumers:
            stack.enter_context(patch.object(consumer, "_add_result", note))
        sent = 0
        until = cluster.world.now() + 1_000
        while cluster.world.now() < until:
            calm = sent == RECORDS
            if not calm and random.random() < 0.5:
                cluster.produce(*[b"%d" % (sent + n) for n in range(10)], partition=random.randrange(3))
                sent += 10
            if not calm and random.random() < 0.2:
                effect, api = random.choice(_FAULTS)
                cluster.state.faults.add(Fault(effect=effect, api=api, times=1))
            if not calm and random.random() < 0.05:
                cluster.move_leader("t", random.randrange(3))
            consumer = random.choice(consumers)
            for record in consumer.poll(timeout=random.choice([0.01, 0.2, 1.0])):
                if not calm and random.random() < 0.1 and record.delivery_count < 3:
                    record.release()
                else:
                    with record:
                        pass
            if calm and len(accepted.keys() | unknown) == RECORDS and cluster.world.now() > until - 900:
                break
        for consumer in consumers:
            consumer.commit()
        assert sent == RECORDS
        assert len(accepted.keys() | unknown) == RECORDS, "a record was lost"
        assert max(accepted.values()) == 1, "a record was accepted twice"
        assert len(accepted) > RECORDS * 0.5
