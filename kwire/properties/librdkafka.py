"""The properties of librdkafka 2.16, which confluent-kafka has."""

from __future__ import annotations

from kwire.properties.java import KERBEROS_RULES, OAUTH_RULES, SYSTEM_BUFFERS
from kwire.properties.translate import (
    AlwaysSo,
    Keyword,
    Rule,
    Table,
    Unsupported,
    Values,
    converted,
    flag,
    kilobytes,
    listed,
    one_of,
    set_offset_reset,
    whole,
)

_ERRORS = "errors come from the calls and the responses, and are logged under kwire; remove it"
_LOGGING = "set the level of Python's loggers kwire.*; remove it"
_VERSIONS = "kwire asks each broker for its versions; remove it"
_INTERNAL = "kwire needs no such setting; remove it"
_METRICS = "call metrics(), or see kwire.metrics; remove it"
_RECORDS = "memory is bounded in bytes: give queue.buffering.max.kbytes"
_PEM_FILE = "put the PEM into a file and give ssl.ca.location, ssl.certificate.location or ssl.key.location"
_OPENSSL = "Python's ssl module chooses; remove it, or set it in the system's OpenSSL configuration"

# The other partitioners send all records without a key to one partition, or hash in another way.
_PARTITIONERS = {"consistent_random": "crc32", "murmur2_random": "murmur2"}


def _acks(value: object) -> object:
    word = str(value).strip().lower()
    return "all" if word == "all" else whole(word)


def _partitioner(value: object) -> object:
    word = str(value).strip().lower()
    if word not in _PARTITIONERS:
        raise ValueError(f"one of {', '.join(_PARTITIONERS)}, or write a partitioner of your own")
    return _PARTITIONERS[word]


def _level(value: object) -> object:
    """Return a codec's level; librdkafka's -1 is the codec's default, and in zstd a level of its own."""
    level = whole(value)
    return None if level == -1 else level


_RULES: dict[str, Rule] = {
    "acks": Keyword("acks", _acks),
    "allow.auto.create.topics": Keyword("allow_auto_create_topics"),
    "api.version.fallback.ms": Unsupported(_VERSIONS),
    "api.version.request": AlwaysSo(("true",), _VERSIONS),
    "api.version.request.timeout.ms": Unsupported(
        "the handshake is part of socket.connection.setup.timeout.ms; remove it"
    ),
    "auto.commit.interval.ms": Keyword("commit_interval_ms"),
    "background_event_cb": Unsupported(_ERRORS),
    "batch.num.messages": Unsupported("batches are bounded in bytes: give batch.size"),
    "batch.size": Keyword("batch_bytes"),
    "bootstrap.servers": Keyword("bootstrap", lambda value: ",".join(listed(value))),
    "broker.address.family": AlwaysSo(("any",), "kwire tries the addresses of both families; remove it"),
    "broker.address.ttl": Unsupported("names are resolved at each connection; remove it"),
    "broker.version.fallback": Unsupported(_VERSIONS),
    "builtin.features": Unsupported(_INTERNAL),
    "check.crcs": Keyword("check_crc"),
    "client.dns.lookup": AlwaysSo(("use_all_dns_ips",), "kwire tries all addresses of a name; remove it"),
    "client.id": Keyword("client_id"),
    "client.rack": Keyword("rack"),
    "client.software.name": Unsupported("kwire says its own name to the brokers; remove it"),
    "client.software.version": Unsupported("kwire says its own version to the brokers; remove it"),
    "closesocket_cb": Unsupported(_INTERNAL),
    "compression.level": Keyword("compression_level", _level),
    "compression.type": Keyword("compression"),
    "connect_cb": Unsupported(_INTERNAL),
    "connections.max.idle.ms": Keyword("idle_timeout_ms"),
    "consume_cb": Unsupported("call poll, or iterate over the consumer"),
    "consume.callback.max.messages": Unsupported("give max_records to poll"),
    "coordinator.query.interval.ms": Unsupported("kwire looks for the coordinator when it needs it; remove it"),
    "debug": Unsupported('set the logger kwire to DEBUG: logging.getLogger("kwire").setLevel(logging.DEBUG)'),
    "default_topic_conf": Unsupported("give its properties beside the others"),
    "delivery.report.only.error": AlwaysSo(("false",), "the response of send has the result of each record; remove it"),
    "delivery.timeout.ms": Keyword("delivery_timeout_ms"),
    "dr_cb": Unsupported("give on_delivery to send"),
    "dr_msg_cb": Unsupported("give on_delivery to send"),
    "enable.gapless.guarantee": AlwaysSo(("false",), "a batch that expires fails alone, and says so; remove it"),
    "enable.idempotence": Keyword("idempotence"),
    "enable.metrics.push": Keyword("telemetry"),
    "enable.partition.eof": AlwaysSo(("false",), "compare position with end_offsets; remove it"),
    "enable.random.seed": Unsupported(_INTERNAL),
    "enable.sparse.connections": AlwaysSo(("true",), "kwire connects to the brokers that it needs; remove it"),
    "enable.ssl.certificate.verification": AlwaysSo(
        ("true",), "remove it, and put tls=kwire.Tls(verify=False) into the result"
    ),
    "enable_sasl_queue": Unsupported(_INTERNAL),
    "enabled_events": Unsupported(_INTERNAL),
    "error_cb": Unsupported(_ERRORS),
    "fetch.error.backoff.ms": Unsupported("give retry.backoff.ms"),
    "fetch.max.bytes": Keyword("max_bytes"),
    "fetch.message.max.bytes": Keyword("partition_max_bytes"),
    "fetch.min.bytes": Keyword("min_bytes"),
    "fetch.queue.backoff.ms": Unsupported("kwire fetches again as soon as there is room; remove it"),
    "fetch.wait.max.ms": Keyword("max_wait_ms"),
    "group.id": Keyword("group"),
    "group.instance.id": Keyword("group_instance_id"),
    "group.protocol": Keyword("group_protocol"),
    "group.protocol.type": AlwaysSo(("consumer",), _INTERNAL),
    "group.remote.assignor": Keyword("remote_assignor"),
    "heartbeat.interval.ms": Keyword("heartbeat_interval_ms"),
    "interceptors": Unsupported("plug-ins of librdkafka; kwire has interceptors=[...]"),
    "internal.termination.signal": Unsupported(_INTERNAL),
    "isolation.level": Keyword("isolation"),
    "linger.ms": Keyword("linger_ms", whole),
    "log.connection.close": Unsupported(_LOGGING),
    "log.queue": Unsupported(_LOGGING),
    "log.thread.name": Unsupported(_LOGGING),
    "log_cb": Unsupported(_LOGGING),
    "log_level": Unsupported(_LOGGING),
    "logger": Unsupported(_LOGGING),
    "max.in.flight.requests.per.connection": Keyword("max_in_flight"),
    "max.poll.interval.ms": Keyword("max_poll_interval_ms"),
    "max.poll.records": Keyword("max_poll_records"),
    "message.copy.max.bytes": Unsupported(_INTERNAL),
    "message.max.bytes": Keyword("max_request_bytes"),
    "message.send.max.retries": Keyword("retries"),
    "metadata.max.age.ms": Unsupported(
        "give topic.metadata.refresh.interval.ms: the age after which metadata is fetched again"
    ),
    "metadata.recovery.rebootstrap.trigger.ms": Keyword("metadata_recovery_rebootstrap_trigger_ms"),
    "metadata.recovery.strategy": Keyword("metadata_recovery_strategy", one_of(rebootstrap="rebootstrap", none="none")),
    "metadata.request.timeout.ms": Unsupported(_INTERNAL),
    "msg_order_cmp": Unsupported(_INTERNAL),
    "oauth_cb": Unsupported("give the function to kwire.Sasl as the token"),
    "oauthbearer_token_refresh_cb": Unsupported("give the function to kwire.Sasl as the token"),
    "offset.store.method": AlwaysSo(("broker",), "offsets are committed to the brokers; remove it"),
    "offset.store.path": Unsupported("offsets are committed to the brokers; remove it"),
    "offset.store.sync.interval.ms": Unsupported("offsets are committed to the brokers; remove it"),
    "offset_commit_cb": Unsupported("commit raises the error, and commit_async takes a callback"),
    "on_delivery": Unsupported("give on_delivery to send"),
    "opaque": Unsupported("bind it to the callback"),
    "open_cb": Unsupported(_INTERNAL),
    "partition.assignment.strategy": Keyword("assignors", listed),
    "partitioner": Keyword("partitioner", _partitioner),
    "partitioner_cb": Unsupported("give partitioner, a function of a message and a topic"),
    "plugin.library.paths": Unsupported("kwire loads no libraries"),
    "produce.offset.report": AlwaysSo(("true", "false"), "the response of send has the offset; remove it"),
    "queue.buffering.backpressure.threshold": Unsupported(_INTERNAL),
    "queue.buffering.max.kbytes": Keyword("max_buffered_bytes", kilobytes),
    "queue.buffering.max.messages": Unsupported(_RECORDS),
    "queued.max.messages.kbytes": Keyword("max_buffered_bytes", kilobytes),
    "queued.min.messages": Unsupported("fetched records are bounded in bytes: give queued.max.messages.kbytes"),
    "queuing.strategy": AlwaysSo(("fifo",), "kwire keeps the order; remove it"),
    "rebalance_cb": Unsupported("give on_assigned, on_revoked and on_lost to subscribe"),
    "receive.message.max.bytes": Keyword("max_frame_bytes"),
    "reconnect.backoff.jitter.ms": Unsupported("back-off has jitter; remove it"),
    "reconnect.backoff.max.ms": Keyword("reconnect_backoff_ms_max"),
    "reconnect.backoff.ms": Keyword("reconnect_backoff_ms"),
    "request.timeout.ms": Unsupported("it bounds the broker's wait only: give socket.timeout.ms"),
    "resolve_cb": Unsupported(_INTERNAL),
    "retry.backoff.max.ms": Keyword("retry_backoff_ms_max"),
    "retry.backoff.ms": Keyword("retry_backoff_ms"),
    "session.timeout.ms": Keyword("session_timeout_ms"),
    "share.acknowledgement.mode": Keyword("acknowledgement_mode"),
    "socket.blocking.max.ms": Unsupported(_INTERNAL),
    "socket.connection.setup.timeout.ms": Keyword("connect_timeout_ms"),
    "socket.keepalive.enable": AlwaysSo(("true",), "kwire sets SO_KEEPALIVE; remove it"),
    "socket.max.fails": Unsupported(_INTERNAL),
    "socket.nagle.disable": AlwaysSo(("true",), "kwire sets TCP_NODELAY; remove it"),
    "socket.receive.buffer.bytes": AlwaysSo(("0",), SYSTEM_BUFFERS),
    "socket.send.buffer.bytes": AlwaysSo(("0",), SYSTEM_BUFFERS),
    "socket.timeout.ms": Keyword("request_timeout_ms"),
    "socket_cb": Unsupported(_INTERNAL),
    "statistics.interval.ms": AlwaysSo(("0",), _METRICS),
    "stats_cb": Unsupported(_METRICS),
    "sticky.partitioning.linger.ms": Unsupported(
        'records without a key go to the shortest queue; or give partitioner="crc32+sticky"'
    ),
    "test.mock.broker.rtt": Unsupported("kwire.broker.Cluster is the broker for tests"),
    "test.mock.num.brokers": Unsupported("kwire.broker.Cluster is the broker for tests"),
    "throttle_cb": Unsupported(_METRICS),
    "topic.blacklist": Unsupported("leave the topics out of the pattern"),
    "topic.metadata.propagation.max.ms": Keyword("unknown_topic_timeout_ms"),
    "topic.metadata.refresh.fast.cnt": Unsupported(_INTERNAL),
    "topic.metadata.refresh.fast.interval.ms": Unsupported("give retry.backoff.ms"),
    "topic.metadata.refresh.interval.ms": Keyword("metadata_max_age_ms"),
    "topic.metadata.refresh.sparse": AlwaysSo(("true",), "kwire asks for the topics that it uses; remove it"),
    "transaction.timeout.ms": Keyword("transaction_timeout_ms"),
    "transactional.id": Keyword("transactional_id"),
    # TLS and SASL that `security_properties` does not translate.
    "enable.sasl.oauthbearer.unsecure.jwt": AlwaysSo(("false",), "give the token by a function"),
    "https.ca.pem": Unsupported("put the PEM into a file and give https.ca.location"),
    "sasl.oauthbearer.assertion.private.key.pem": Unsupported(
        "put the PEM into a file and give sasl.oauthbearer.assertion.private.key.file"
    ),
    "sasl.oauthbearer.config": Unsupported("give the token by a function: kwire.Sasl.oauth"),
    "sasl.oauthbearer.metadata.authentication.type": Unsupported("give the token by a function: kwire.Sasl.oauth"),
    "ssl.ca.certificate.stores": Unsupported("kwire trusts the system's authorities; remove it"),
    "ssl.ca.pem": Unsupported(_PEM_FILE),
    "ssl.certificate.pem": Unsupported(_PEM_FILE),
    "ssl.certificate.verify_cb": Unsupported("Python's ssl module verifies; remove it"),
    "ssl.cipher.suites": Unsupported(_OPENSSL),
    "ssl.curves.list": Unsupported(_OPENSSL),
    "ssl.engine.id": Unsupported(_OPENSSL),
    "ssl.engine.location": Unsupported(_OPENSSL),
    "ssl.key.pem": Unsupported(_PEM_FILE),
    "ssl.keystore.password": Unsupported("a PEM file has none; its key's is ssl.key.password"),
    "ssl.providers": Unsupported(_OPENSSL),
    "ssl.sigalgs.list": Unsupported(_OPENSSL),
    "ssl_engine_callback_data": Unsupported(_OPENSSL),
}

_RULES |= {name: OAUTH_RULES[name] for name in OAUTH_RULES if name.startswith("sasl.oauthbearer.")}
_RULES |= KERBEROS_RULES

_ALIASES = {
    "metadata.broker.list": "bootstrap.servers",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "queue.buffering.max.ms": "linger.ms",
    "retries": "message.send.max.retries",
    "compression.codec": "compression.type",
    "request.required.acks": "acks",
    "message.timeout.ms": "delivery.timeout.ms",
    "max.partition.fetch.bytes": "fetch.message.max.bytes",
    "auto.commit.enable": "enable.auto.commit",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.oauthbearer.assertion.jwt.template.file": "sasl.oauthbearer.assertion.template.file",
}
_RESETS = {
    **dict.fromkeys(("smallest", "earliest", "beginning"), "earliest"),
    **dict.fromkeys(("largest", "latest", "end"), "latest"),
    "error": "error",
}


def _together(values: Values, keywords: Values) -> None:
    commits = converted("enable.auto.commit", flag, values.pop("enable.auto.commit", None))
    stores = converted("enable.auto.offset.store", flag, values.pop("enable.auto.offset.store", None))
    if commits is not None or stores is not None:
        # Without automatic stores, what the program stored is committed: kwire's marks.
        keywords["commit"] = "manual" if commits is False else "marks" if stores is False else "auto"
    if "auto.offset.reset" in values:
        set_offset_reset(keywords, "auto.offset.reset", values.pop("auto.offset.reset"), _RESETS)


LIBRDKAFKA = Table("librdkafka", _RULES, _ALIASES, _together)
