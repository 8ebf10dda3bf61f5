"""The properties of Java's clients and of librdkafka, such as "linger.ms", as the keywords of kwire's clients.

    translate    the rules of translation, and `options`, which applies a table: `kwire.options`
    java         the table of Kafka's Java clients
    librdkafka   the table of librdkafka, which confluent-kafka has
    file         property files

A table says of each property which option it is, or that kwire does it anyway, or why it is not supported. Nothing is
ignored.

Imports: cluster, consumer, producer, share.
"""
