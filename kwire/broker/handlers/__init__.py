"""The handlers of the broker's APIs: one file per API, each with the same functions, collected in `table`."""
