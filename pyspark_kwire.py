"""Registers `format("kwire")`: Spark imports top-level modules named pyspark_* that have a DefaultSource."""

from kwire.spark.source import KwireDataSource as DefaultSource

__all__ = ["DefaultSource"]
