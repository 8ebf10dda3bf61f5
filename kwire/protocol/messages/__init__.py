"""The declarations, one file per API, in Kafka's names made snake_case. Each file's docstring has the API's history.

`kwire.protocol.message_class` finds them by name; nothing here is imported before it is used.

Imports: nothing.
"""
