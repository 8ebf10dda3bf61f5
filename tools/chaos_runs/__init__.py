"""Chaos runs: real brokers are killed, stopped, paused and cut off while kwire produces and copies; then a judgement.

    scenarios  what is done to the brokers, as plain functions over a stage
    stage      the real one: a cluster of Java processes, a relay and a clock
    relay      connections through a process of ours, cut whenever it likes
    writers    threads that produce sequenced records with one kwire.Producer
    copy_job   a process that copies a topic transactionally; copiers: keeps some alive, and kills them
    readers    what is in the logs: by librdkafka (or kafka-python), and by kwire.Consumer while it happens
    sequence   the records: which bytes have which number
    proof      the judgement; it reads nothing itself, so that tests can hand it a loss and see it fail
    run        one run of one scenario; report: the table of verdicts; main: the command line

Refuses to trust kwire about itself: every verdict rests on a reader that is not kwire's.
"""
