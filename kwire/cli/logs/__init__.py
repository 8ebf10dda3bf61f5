"""The files of a broker's log directory: `kwire dump-log`.

    segments.py      batches out of a .log or a KRaft .checkpoint, and what is wrong between them
    indexes.py       .index, .timeindex and .txnindex, checked against their log
    checkpoints.py   producer snapshots, and the small text files
    internal.py      the records of Kafka's own topics

Everything is read once, front to back, and what is wrong is found among what is right, as a value: a damaged file is
what these are for. Memory: one batch, and of an index one entry. Refuses to write.
"""
