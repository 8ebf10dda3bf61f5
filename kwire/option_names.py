"""The names of kwire's options in other clients: Java, librdkafka (confluent-kafka), kafka-python, aiokafka.

Names are in lower case with underscores: `normalized("linger.ms")` is "linger_ms". Sources: Kafka's
ProducerConfig, ConsumerConfig and AdminClientConfig; librdkafka's CONFIGURATION.md; the constructors of kafka-python
3.0 and aiokafka 0.14.

Imports: nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

_CLIENT = {
    "connections_max_idle_ms": "idle_timeout_ms",
    "max_in_flight_requests_per_connection": "max_in_flight",
    "topic_metadata_refresh_interval_ms": "metadata_max_age_ms",
    "metadata_broker_list": "bootstrap",
    "bootstrap_servers": "bootstrap",
    "receive_message_max_bytes": "max_frame_bytes",
    "reconnect_backoff_max_ms": "reconnect_backoff_ms_max",
    "retry_backoff_max_ms": "retry_backoff_ms_max",
    "socket_connection_setup_timeout_ms": "connect_timeout_ms",
    "socket_timeout_ms": "request_timeout_ms",
    "sasl_mechanism": "sasl",
    "sasl_mechanisms": "sasl",
    "sasl_username": "sasl",
    "sasl_password": "sasl",
    "sasl_plain_username": "sasl",
    "sasl_plain_password": "sasl",
    "sasl_jaas_config": "sasl",
    "sasl_kerberos_domain_name": "sasl",
    "sasl_kerberos_name": "sasl",
    "sasl_kerberos_service_name": "sasl",
    "sasl_oauth_token_provider": "sasl",
    "oauth_cb": "sasl",
    "security_protocol": "tls",
    "ssl_context": "tls",
    "ssl_cafile": "tls",
    "ssl_ca_location": "tls",
    "ssl_certfile": "tls",
    "ssl_certificate_location": "tls",
    "ssl_keyfile": "tls",
    "ssl_key_location": "tls",
    "ssl_key_password": "tls",
    "ssl_truststore_location": "tls",
    "ssl_keystore_location": "tls",
    "ssl_check_hostname": "tls",
    "ssl_password": "tls",
    "ssl_crlfile": "tls",
    "ssl_crl_location": "tls",
    "enable_ssl_certificate_verification": "tls",
    "ssl_endpoint_identification_algorithm": "tls",
}
_PRODUCER = {
    "batch_size": "batch_bytes",
    "max_batch_size": "batch_bytes",
    "buffer_memory": "max_buffered_bytes",
    "queue_buffering_max_kbytes": "max_buffered_bytes",
    "queue_buffering_max_ms": "linger_ms",
    "linger": "linger_ms",
    "compression_type": "compression",
    "compression_codec": "compression",
    "compression_gzip_level": "compression_level",
    "compression_lz4_level": "compression_level",
    "compression_zstd_level": "compression_level",
    "message_timeout_ms": "delivery_timeout_ms",
    "message_send_max_retries": "retries",
    "request_required_acks": "acks",
    "enable_idempotence": "idempotence",
    "max_request_size": "max_request_bytes",
    "message_max_bytes": "max_request_bytes",
    "partitioner_class": "partitioner",
}
_CONSUMER = {
    "check_crcs": "check_crc",
    "client_rack": "rack",
    "fetch_max_bytes": "max_bytes",
    "fetch_max_wait_ms": "max_wait_ms",
    "fetch_wait_max_ms": "max_wait_ms",
    "fetch_min_bytes": "min_bytes",
    "isolation_level": "isolation",
    "max_partition_fetch_bytes": "partition_max_bytes",
    "fetch_message_max_bytes": "partition_max_bytes",
    "queued_max_messages_kbytes": "max_buffered_bytes",
    "auto_commit_interval_ms": "commit_interval_ms",
    "auto_offset_reset": "on_no_offset",
    "group_id": "group",
    "group_remote_assignor": "remote_assignor",
    "partition_assignment_strategy": "assignors",
    "rebalance_timeout_ms": "max_poll_interval_ms",
}

# kwire's option by another client's name. A name that is also an option of the client itself is not translated.
FOREIGN: Mapping[str, str] = {**_CLIENT, **_PRODUCER, **_CONSUMER}

# The client of each option that only one client has, for an option that was given to another client.
OWNERS: Mapping[str, str] = {
    **dict.fromkeys(
        [
            *_PRODUCER.values(),
            "callback_executor",
            "key_serializer",
            "max_block_ms",
            "ordered",
            "partitioner_ignore_keys",
            "single_broker_switch_ms",
            "transactional_id",
            "transaction_timeout_ms",
            "value_serializer",
            "when_full",
        ],
        "kwire.Producer",
    ),
    **dict.fromkeys(
        [
            *_CONSUMER.values(),
            "callbacks",
            "group_instance_id",
            "group_protocol",
            "heartbeat_interval_ms",
            "max_decompressed_bytes",
            "max_poll_interval_ms",
            "max_poll_records",
            "on_no_offset",
            "on_out_of_range",
            "session_timeout_ms",
        ],
        "kwire.Consumer",
    ),
}

# Options of other clients without a counterpart, and what to do instead.
NOT_SUPPORTED: Mapping[str, str] = {
    "enable_auto_commit": 'it is commit="auto" or commit="manual"',
    "enable_auto_offset_store": 'it is commit="marks", with mark(record)',
    "enable_partition_eof": "compare position with end_offsets",
    "default_offset_commit_callback": "give on_done to commit_async",
    "on_commit": "give on_done to commit_async",
    "interceptor_classes": "give instances: interceptors=[...]",
    "metric_reporters": "see kwire.metrics",
    "metrics_enabled": "metrics are always counted; leave it out",
    "metrics_num_samples": "metrics() has counts, without samples; leave it out",
    "metrics_sample_window_ms": "metrics() has counts, without samples; leave it out",
    "stats_cb": "call metrics(), or see kwire.metrics",
    "statistics_interval_ms": "call metrics(), or see kwire.metrics",
    "consumer_timeout_ms": "give a timeout to Consumer.poll",
    "key_deserializer": "records have bytes; decode record.key",
    "value_deserializer": "records have bytes; decode record.value",
    "default_api_timeout_ms": "give a timeout to the call",
    "api_version": "kwire gets the versions from each broker",
    "loop": "an asyncio client uses the running loop",
    "bootstrap_timeout_ms": "a constructor contacts no broker; give a timeout to the call",
    "client_dns_lookup": "kwire tries all addresses of a name; leave it out",
    "socket_options": "kwire sets TCP_NODELAY and SO_KEEPALIVE; leave it out",
    "proxy_url": "kwire connects without a proxy",
    "socks5_proxy": "kwire connects without a proxy",
    "ssl_ciphers": "Python's ssl module chooses; leave it out",
    "exclude_internal_topics": "a pattern matches no internal topic; subscribe to those by name",
    "debug": "set the logger kwire to DEBUG",
    "log_level": "set the level of the logger kwire",
    "logger": "kwire logs to the logger kwire; add a handler there",
    "on_delivery": "give it to send",
    "dr_cb": "give on_delivery to send",
    "delivery_report_only_error": "the response of send has the result of each record; leave it out",
    "error_cb": "errors come from the calls and the responses, and are logged under kwire",
    "send_buffer_bytes": "kwire uses the default of the operating system",
    "receive_buffer_bytes": "kwire uses the default of the operating system",
    "queue_buffering_max_messages": "memory is bounded in bytes: max_buffered_bytes",
}


def normalized(name: str) -> str:
    """Return a name in the spelling of the tables: lower case, with underscores."""
    return name.strip().lower().replace(".", "_").replace("-", "_")


def kwire_name(name: str) -> str | None:
    """Return kwire's name for an option that another client calls `name`, or None if the tables lack it."""
    plain = normalized(name)
    return FOREIGN.get(plain) or (plain if plain != name else None)
