"""Connect another Kafka client, here confluent-kafka with a consumer group, to an embedded broker.

Applications written for any client can be tested this way, without a JVM or a container. Needs confluent-kafka.

    python examples/foreign_client.py
"""

from confluent_kafka import Consumer, Producer

from kwire.broker import Cluster


def main() -> None:
    with Cluster(brokers=1, topics={"orders": 2}) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        for number in range(10):
            producer.produce("orders", f"order {number}".encode())
        producer.flush(10)

        options = {"bootstrap.servers": cluster.bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
        consumer = Consumer(options)
        consumer.subscribe(["orders"])
        values: list[bytes | None] = []
        while len(values) < 10:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                values.append(message.value())
        consumer.commit(asynchronous=False)
        consumer.close()
        # What the broker knows, without another client:
        print(f"{len(values)} records, committed: {sum(cluster.committed('readers').values())}")


if __name__ == "__main__":
    main()
