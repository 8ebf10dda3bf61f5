"""The files of a broker's log directory, as `kwire dump-log` and Spark's `format("kwire.log")` read them.

    files.py             which file is what, by its name
    segments.py          batches out of a .log or a KRaft .checkpoint, and what is wrong between them
    rows.py              the records of a segment as rows of columns
    indexes.py           .index, .timeindex and .txnindex, compared with their log
    checkpoints.py       producer snapshots, and the small text files
    internal_topics.py   the records of Kafka's own topics

A file is read once, front to back. Problems are values among the results, because these functions are for damaged
files. One batch, or one index entry, is in memory at a time. Nothing is written.

Imports: protocol, records, wire.
"""
