"""Pipelines that are kept: mirror, archive, replay, audit and traffic report. `kwire pipeline` and examples/ run them.

    audit        are the records of one side on the other: lost, doubled, reordered; without Spark
    sides        where records come from: a topic of a cluster, or an archive
    archive      topics to Parquet, partitioned by time, and which files of it count
    replay       ... and back, with original timestamps
    mirror       topics from one cluster to another, exactly once; their configs (mirror_configs), and the offsets of
                 groups (mirror_groups)
    report       captures to one HTML page of latency and errors, by client and API
    session      the Spark session of a laptop, or of spark-submit

PySpark and pyarrow are imported on first use. audit of two topics, and report, need neither.

Imports: spark, lint, capture, consumer, admin.
"""
