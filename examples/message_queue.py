"""A message queue: jobs that are acknowledged one by one, and come again if their worker fails.

python examples/message_queue.py localhost:9092
"""

import sys

from kwire.queue import Message, Service


def work(message: Message) -> None:
    """Do a job; every tenth fails the first time."""
    if message.deliveries == 1 and (message.payload or b"").endswith(b"7"):
        raise ConnectionError("try again later")


def main(bootstrap: str) -> None:
    with Service(bootstrap, backoff_ms=100) as service, service.tracker():
        jobs = service.queue("jobs")
        with jobs.producer() as producer:
            for number in range(50):
                producer.send(b"job %d" % number)
        done = attempts = 0
        with jobs.consumer() as consumer:
            for message in consumer:
                attempts += 1
                try:
                    with message:  # leaves normally: ack; raises: release, after the back-off
                        work(message)
                        done += 1
                except ConnectionError:
                    continue
                if done == 50:
                    break
    print(f"{done} jobs done in {attempts} attempts")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["localhost:9092"])
