"""The program behind tools/demo: `main` runs it, `proof` judges what was read back, `spark_job` is its PySpark job."""
