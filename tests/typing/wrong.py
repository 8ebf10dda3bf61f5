"""Mistakes in a user's program that type checkers must find: one in each line that ends with the comment `wrong`.

It is checked, not run.
"""

from __future__ import annotations

import kwire


def options(bootstrap: str) -> None:
    kwire.Producer(bootstrap, lingr_ms=5)  # wrong
    kwire.Producer(bootstrap, linger_ms="5")  # wrong
    kwire.Producer(bootstrap, compression="zst")  # wrong
    kwire.Producer(bootstrap, acks=2)  # wrong
    kwire.Producer(bootstrap, batch_size=5)  # wrong
    kwire.Producer(bootstrap, isolation="read_committed")  # wrong
    kwire.Producer({"bootstrap.servers": bootstrap})  # wrong
    kwire.Producer()  # wrong
    kwire.aio.Producer(bootstrap, lingr_ms=5)  # wrong
    kwire.Consumer(bootstrap, isolaton="read_committed")  # wrong
    kwire.Consumer(bootstrap, isolation="committed")  # wrong
    kwire.Consumer(bootstrap, linger_ms=5)  # wrong
    kwire.Admin(bootstrap, request_timeout_ms=None)  # wrong
    kwire.Admin(bootstrap, timeout=5)  # wrong
    cluster = kwire.broker.Cluster(users={"me": "secret"})  # wrong
    cluster.add_fault(kwire.broker.Delay(5), tims=3)  # wrong
    cluster.add_fault(kwire.broker.Delay(5), api="PRODUCE")  # wrong


def calls(producer: kwire.Producer, consumer: kwire.Consumer) -> None:
    producer.send("t", b"v", partition="0")  # wrong
    producer.send("t", 5)  # wrong
    producer.send("t", b"v", on_delivery=5)  # wrong
    consumer.assign([("t", 0)])  # wrong
    consumer.poll(timeout="1")  # wrong


def records(record: kwire.ConsumerRecord) -> str:
    print(record.valeu)  # wrong
    return record.value  # wrong


def iterated(consumer: kwire.Consumer) -> None:
    for record in consumer:
        print(record.valeu)  # wrong


async def awaited(consumer: kwire.aio.Consumer) -> None:
    await consumer.poll(timeout="1")  # wrong
    for record in consumer:  # wrong
        records(record)
    consumer.poll().append(1)  # wrong


def names() -> None:
    print(kwire.Producr)  # wrong
    print(kwire.admin.Admni)  # wrong
    print(kwire.capture.read_exchnages)  # wrong
    print(kwire.session.Sassl)  # wrong
    print(kwire.cluster.Clustr)  # wrong
    print(kwire.aio.Producr)  # wrong
    print(kwire.protocol.Mesage)  # wrong
