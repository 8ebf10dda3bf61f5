"""Benchmark kwire against named peers on one real broker, in one run: `tools/bench/run --help`.

    run               the command; `main` reads its arguments
    throughput        produce, consume, bulk
    latency, memory   the latency of an acknowledged send, and the memory of queued records
    codec_speed, protocol, records   codecs, messages and record batches in one process, without a broker
    spark_speed       the PySpark data source against Spark's own connector
    contest           rounds that run every contestant once, each in its own process (`worker`)
    contestants/      the code of each client; `settings` has its options and the reasons for them
    stand             the broker, its topics, and the count of the records that arrived
    ratios, report, plot   medians with their spread; tables and JSON; SVG

Ratios come from one run and are paired by round, because a single figure depends more on the computer than on the
client. There are no absolute targets, and no peer runs with settings that its documentation advises against.
"""
