"""Work on many records at once, in order for each key, with retries and dead letters; stop on SIGTERM without loss.

`stop` waits up to 20 s for the work that runs, commits and leaves the group: Kubernetes kills a container after 30 s.

    python examples/process_orders.py localhost:9092
"""

import signal
import sys
import time

import kwire


def handle(record: kwire.ConsumerRecord) -> None:
    """Do 10 ms of work, such as a request to another service. Some records can never be processed."""
    time.sleep(0.01)
    if record.value == b"order 13":
        raise ValueError("nobody delivers to number 13")
    sys.stdout.write(f"{record.key!r} {record.value!r}\n")  # in one piece: this runs in many threads
    sys.stdout.flush()


def main(bootstrap: str) -> None:
    with kwire.Consumer(bootstrap, group="billing", commit="marks") as consumer:
        consumer.subscribe(["orders"])
        processor = consumer.process(
            handle,
            order="key",
            concurrency=64,
            retries=2,
            backoff=kwire.Backoff(10, 1_000),
            dead_letters=kwire.to_topic("orders.dead"),
        )
        signal.signal(signal.SIGTERM, lambda *_: processor.stop(drain=20))
        processor.run()  # until stop()
    done = processor.metrics()
    print(f"{done.processed} records processed, {done.dead} of them dead letters")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["localhost:9092"])
