"""Hand records to one thread for each partition; pause the partitions whose threads cannot keep up.

What is fetched already stays in memory, and the consumer keeps polling, so it remains a member of its group. Because
other threads work on the records, the program marks what they have done: commit="auto" would commit records that are
still in a queue. `consumer.process` (process_orders.py) does all of this by itself.

    python examples/backpressure.py localhost:9092
"""

import sys
import threading
import time
from queue import Queue

import kwire

Work = Queue[kwire.ConsumerRecord | None]
FULL = 20


def main(bootstrap: str) -> None:
    queues: dict[kwire.TopicPartition, Work] = {}
    threads: dict[kwire.TopicPartition, threading.Thread] = {}
    pauses = 0

    with (
        kwire.stop_on_signals() as stop,
        kwire.Consumer(bootstrap, group="slow", commit="marks", max_poll_records=100) as consumer,
    ):

        def work(queue: Work) -> None:
            while (record := queue.get()) is not None:
                time.sleep(0.001)  # the work
                consumer.mark(record)

        def begin(partitions: list[kwire.TopicPartition]) -> None:
            for key in partitions:
                queues[key] = Queue()
                threads[key] = threading.Thread(target=work, args=[queues[key]])
                threads[key].start()

        def end(partitions: list[kwire.TopicPartition]) -> None:
            for key in partitions:
                queues.pop(key).put(None)
            for key in partitions:
                threads.pop(key).join()  # all of it is done and marked: so it is committed before others get it

        consumer.subscribe(["orders"], on_assigned=begin, on_revoked=end)
        while not stop.is_set():
            for record in consumer.poll(timeout=0.05):
                queues[record.topic, record.partition].put(record)
            full = [key for key, queue in queues.items() if queue.qsize() >= FULL]
            pauses += len(set(full) - set(consumer.paused()))
            consumer.pause(full)
            consumer.resume([key for key in consumer.paused() if queues[key].qsize() < FULL])
            print("waiting:", sum(queue.qsize() for queue in queues.values()), flush=True)
    print(f"paused {pauses} times" if pauses else "never paused")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["localhost:9092"])
