"""Pipelines that are kept: audit of topics, report on captures. `kwire pipeline` runs them.

    audit        are the records of one side on the other: lost, doubled, reordered
    sides        where records come from: a topic of a cluster, or an archive
    archive      topics in Parquet files, partitioned by time: which files of it count
    report       captures to one HTML page of latency and errors, by client and API

Imports: spark, lint, capture, consumer.
"""
