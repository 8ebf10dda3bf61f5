"""Work through a topic as a queue: each record goes to one member of a share group, and comes again if it failed.

Start the program in several terminals, and each gets a part of the records. It needs Kafka 4.2 or the embedded broker.

    python examples/share_consumer.py localhost:9092
"""

import sys

import kwire

MAILS = 100


def send_mail(record: kwire.ShareRecord) -> None:
    """Send a mail; every tenth finds the mail server busy, the first time."""
    if record.delivery_count == 1 and (record.value or b"").endswith(b"7"):
        raise ConnectionError("the mail server is busy")


def main(bootstrap: str) -> None:
    sent = attempts = 0
    with kwire.ShareConsumer(bootstrap, group="mails", max_poll_records=10, renew=True) as consumer:
        consumer.subscribe(["orders"])
        consumer.poll(timeout=2)  # a new group begins at the end of the topic, as it is now
        with kwire.Producer(bootstrap) as producer:
            producer.send_many("orders", [f"mail {number}" for number in range(MAILS)])
        for record in consumer:
            attempts += 1
            try:
                with record:  # leaves normally: accept; raises: release
                    send_mail(record)
                    sent += 1
            except ConnectionError:
                continue  # it comes again, to any member of the group
            if sent == MAILS:
                break
        consumer.commit()
    print(f"{sent} mails sent in {attempts} attempts")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["localhost:9092"])
