"""Benchmarks against named peers, one real broker and one run: `tools/bench/run --help`.

    run               the command; `main` reads its arguments
    throughput        produce, consume, bulk
    latency, memory   what their names say
    codec_speed, protocol, records   in one process, without a broker
    spark_speed       the PySpark data source against Spark's own connector
    contest           rounds in which every contestant takes its turn, each in a process of its own (`worker`)
    contestants/      what each client does, with the settings that `settings` gives reasons for
    stand             the broker, topics, and the count of what arrived
    ratios, report, plot   medians with their spread; tables and JSON; SVG

Ratios are of one run, paired by round; a figure alone says more about the machine than about the client. Refuses:
absolute targets, and peers with settings that their documentation advises against.
"""
