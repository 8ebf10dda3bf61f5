"""Kill, stop, pause and cut off real brokers while kwire produces and copies, and then check the logs.

    scenarios  what a run does to the brokers: plain functions over a stage
    stage      the real stage: a cluster of Java processes, a relay and a clock
    relay      forwards TCP connections and cuts them
    writers    threads that produce numbered records with one kwire.Producer
    copy_job   a process that copies a topic transactionally; copiers: runs several and kills them
    readers    read the logs with librdkafka (or kafka-python), and with kwire.Consumer during the scenario
    sequence   converts the number of a record to its bytes and back
    proof      compares the logs with what was sent; it reads no topic, so tests can give it a loss
    spark_table  tools/chaos spark: runs its cases (spark_cases) and judges them; spark_job: a driver of Spark;
                 spark_faults: who is killed; spark_standalone: Spark's own cluster; spark_without: a step is taken out
    run        runs one scenario; report: the table of results; main: the command line

Every outcome rests on a reader that is independent of kwire.
"""
