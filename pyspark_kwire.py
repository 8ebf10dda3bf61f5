"""Lets Spark find `format("kwire")` by itself: it looks for top-level modules named pyspark_* with a DefaultSource."""

from kwire.spark.source import KwireDataSource as DefaultSource

__all__ = ["DefaultSource"]
