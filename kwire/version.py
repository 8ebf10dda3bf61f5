"""The one place that says which version of kwire this is. Imports: nothing."""

VERSION = "0.1.0"
