"""Run tools/demo: `main` is the program, `proof` checks the records read back, `spark_job` is the PySpark job."""
