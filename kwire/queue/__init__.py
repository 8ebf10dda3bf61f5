"""Message queues on Kafka: many queues on two topics, each message acknowledged by itself.

    markers        what consumers log about a message in progress; the Protocol Buffers of kafka-mq-go
    tracker_state  which messages are in progress and which are due, by the markers of one partition

Imports: nothing.
"""
