"""The properties of Kafka's Java clients (ProducerConfig, ConsumerConfig, AdminClientConfig of Kafka 4.4)."""

from __future__ import annotations

from kwire.properties.translate import (
    AlwaysSo,
    Keyword,
    Rule,
    Table,
    Unsupported,
    Values,
    class_of,
    converted,
    flag,
    listed,
    one_of,
    set_offset_reset,
)

_RENEWED = "kwire renews tickets from a keytab by itself after 80 % of their lifetime, and runs no kinit; remove it"
NO_CLASSES = "kwire runs no Java classes"
SYSTEM_BUFFERS = "kwire uses the default of the operating system; remove it"
_METRICS = "kwire measures differently: see kwire.metrics; remove it"
_NO_STORE = "give a PEM file in ssl.truststore.location or ssl.keystore.location, with type PEM"
_PYTHON_TLS = "Python's ssl module chooses; remove it, or set the minimum in the system's OpenSSL configuration"
_AWS_HANDLER = "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
_LOGIN = "kwire logs in by itself; remove it"
_AWS_LOGIN = f"{_LOGIN}; for MSK, kwire.Sasl.aws_msk_iam makes the token"

ASSIGNORS = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}
_assignor = class_of(ASSIGNORS, "Kafka's assignors")
_SERIALIZERS = ("StringSerializer", "ByteArraySerializer", "ByteBufferSerializer", "BytesSerializer")
_DESERIALIZERS = ("ByteArrayDeserializer", "ByteBufferDeserializer", "BytesDeserializer")
_SERIALIZE = "give key_serializer or value_serializer, a function; kwire takes str and bytes without one"
_DESERIALIZE = "records have bytes; decode record.key and record.value"


def _assignors(value: object) -> list[object]:
    return [_assignor(name) for name in listed(value)]


def _class_names(names: tuple[str, ...]) -> tuple[str, ...]:
    package = "org.apache.kafka.common.serialization."
    return tuple(name.lower() for name in (*names, *(package + name for name in names)))


_RULES: dict[str, Rule] = {
    "bootstrap.servers": Keyword("bootstrap", lambda value: ",".join(listed(value))),
    "acks": Keyword("acks"),
    "allow.auto.create.topics": Keyword("allow_auto_create_topics"),
    "auto.commit.interval.ms": Keyword("commit_interval_ms"),
    "batch.size": Keyword("batch_bytes"),
    "bootstrap.controllers": Unsupported("kwire.Admin goes through brokers: give bootstrap.servers"),
    "bootstrap.resolve.timeout.ms": AlwaysSo(("0",), "names are resolved within the connect timeout; remove it"),
    "buffer.memory": Keyword("max_buffered_bytes"),
    "buffer.memory.allocation.strategy": Unsupported("kwire takes memory as records come; remove it"),
    "check.crcs": Keyword("check_crc"),
    "client.dns.lookup": AlwaysSo(("use_all_dns_ips",), "kwire tries all addresses of a name; remove it"),
    "client.id": Keyword("client_id"),
    "client.rack": Keyword("rack"),
    "compression.gzip.level": Keyword("compression_level"),
    "compression.lz4.level": Keyword("compression_level"),
    "compression.type": Keyword("compression"),
    "compression.zstd.level": Keyword("compression_level"),
    "config.providers": AlwaysSo(("", "[]"), "read the secrets in Python"),
    "connections.max.idle.ms": Keyword("idle_timeout_ms"),
    "default.api.timeout.ms": Unsupported("give a timeout to the call"),
    "delivery.timeout.ms": Keyword("delivery_timeout_ms"),
    "enable.idempotence": Keyword("idempotence"),
    "enable.metrics.push": Keyword("telemetry"),
    "exclude.internal.topics": AlwaysSo(("true",), "a pattern never matches internal topics; name them"),
    "fetch.max.bytes": Keyword("max_bytes"),
    "fetch.max.wait.ms": Keyword("max_wait_ms"),
    "fetch.min.bytes": Keyword("min_bytes"),
    "group.id": Keyword("group"),
    "group.instance.id": Keyword("group_instance_id"),
    "group.protocol": Keyword("group_protocol"),
    "group.remote.assignor": Keyword("remote_assignor"),
    "heartbeat.interval.ms": Keyword("heartbeat_interval_ms"),
    "interceptor.classes": AlwaysSo(("", "[]"), NO_CLASSES),
    "isolation.level": Keyword("isolation"),
    "key.deserializer": AlwaysSo(_class_names(_DESERIALIZERS), _DESERIALIZE),
    "key.serializer": AlwaysSo(_class_names(_SERIALIZERS), _SERIALIZE),
    "linger.ms": Keyword("linger_ms"),
    "max.block.ms": Keyword("max_block_ms"),
    "max.in.flight.requests.per.connection": Keyword("max_in_flight"),
    "max.partition.fetch.bytes": Keyword("partition_max_bytes"),
    "max.poll.interval.ms": Keyword("max_poll_interval_ms"),
    "max.poll.records": Keyword("max_poll_records"),
    "max.request.size": Keyword("max_request_bytes"),
    "metadata.cluster.check.enable": Keyword("metadata_cluster_check"),
    "metadata.max.age.ms": Keyword("metadata_max_age_ms"),
    "metadata.max.idle.ms": Keyword("metadata_max_idle_ms"),
    "metadata.recovery.rebootstrap.trigger.ms": Keyword("metadata_recovery_rebootstrap_trigger_ms"),
    "metadata.recovery.strategy": Keyword("metadata_recovery_strategy", one_of(rebootstrap="rebootstrap", none="none")),
    "metric.reporters": AlwaysSo(("", "[]"), f"{NO_CLASSES}; see kwire.metrics"),
    "metrics.num.samples": Unsupported(_METRICS),
    "metrics.recording.level": Unsupported(_METRICS),
    "metrics.sample.window.ms": Unsupported(_METRICS),
    "partition.assignment.strategy": Keyword("assignors", _assignors),
    "partitioner.adaptive.partitioning.enable": AlwaysSo(
        ("true",), 'records without a key go to the shortest queue; for even numbers take partitioner="round_robin"'
    ),
    "partitioner.availability.timeout.ms": AlwaysSo(
        ("0",), "kwire passes over partitions without a leader at once; remove it"
    ),
    "partitioner.class": Keyword(
        "partitioner", class_of({"RoundRobinPartitioner": "round_robin"}, "Kafka's only partitioner class")
    ),
    "partitioner.ignore.keys": Keyword("partitioner_ignore_keys"),
    "partitioner.rack.aware": AlwaysSo(("false",), "kwire's partitioners do not look at racks; remove it"),
    "receive.buffer.bytes": Unsupported(SYSTEM_BUFFERS),
    "reconnect.backoff.max.ms": Keyword("reconnect_backoff_ms_max"),
    "reconnect.backoff.ms": Keyword("reconnect_backoff_ms"),
    "request.timeout.ms": Keyword("request_timeout_ms"),
    "retries": Keyword("retries"),
    "retry.backoff.max.ms": Keyword("retry_backoff_ms_max"),
    "retry.backoff.ms": Keyword("retry_backoff_ms"),
    "send.buffer.bytes": Unsupported(SYSTEM_BUFFERS),
    "session.timeout.ms": Keyword("session_timeout_ms"),
    "share.acknowledgement.mode": Keyword("acknowledgement_mode"),
    "share.acquire.mode": Keyword(
        "acquire_mode", one_of(batch_optimized="batch_optimized", record_limit="record_limit")
    ),
    "socket.connection.setup.timeout.max.ms": Unsupported(
        "the time for a connection does not grow: give socket.connection.setup.timeout.ms"
    ),
    "socket.connection.setup.timeout.ms": Keyword("connect_timeout_ms"),
    "transaction.timeout.ms": Keyword("transaction_timeout_ms"),
    "transaction.two.phase.commit.enable": AlwaysSo(("false",), "no broker has KIP-939 yet; remove it"),
    "transactional.id": Keyword("transactional_id"),
    "value.deserializer": AlwaysSo(_class_names(_DESERIALIZERS), _DESERIALIZE),
    "value.serializer": AlwaysSo(_class_names(_SERIALIZERS), _SERIALIZE),
    # TLS and SASL that `security_properties` does not translate.
    "security.providers": Unsupported(NO_CLASSES),
    "ssl.cipher.suites": AlwaysSo(("", "[]"), _PYTHON_TLS),
    "ssl.enabled.protocols": Unsupported(_PYTHON_TLS),
    "ssl.engine.factory.class": Unsupported(NO_CLASSES),
    "ssl.keymanager.algorithm": Unsupported(NO_CLASSES),
    "ssl.keystore.certificate.chain": Unsupported(_NO_STORE),
    "ssl.keystore.key": Unsupported(_NO_STORE),
    "ssl.keystore.password": Unsupported("a PEM file has none; its key's is ssl.key.password"),
    "ssl.protocol": Unsupported(_PYTHON_TLS),
    "ssl.provider": Unsupported(NO_CLASSES),
    "ssl.secure.random.implementation": Unsupported(NO_CLASSES),
    "ssl.trustmanager.algorithm": Unsupported(NO_CLASSES),
    "ssl.truststore.certificates": Unsupported(_NO_STORE),
    "ssl.truststore.password": Unsupported("a PEM file has none; remove it"),
    "sasl.client.callback.handler.class": AlwaysSo((_AWS_HANDLER.lower(),), _AWS_LOGIN),
    "sasl.login.class": Unsupported(_LOGIN),
}


_REFRESH = "kwire fetches a new token ahead of the expiry of the last one, and backs off by itself; remove it"
_BROKERS_ONLY = "it is for brokers: a client does not validate its own token; remove it"
_AS_IT_IS = "kwire sends the token as it is; remove it"
_ASSERTION_TIMES = "kwire chooses how long an assertion is valid; remove it"

KERBEROS_RULES: dict[str, Rule] = {
    "sasl.kerberos.kinit.cmd": AlwaysSo(("", "/usr/bin/kinit"), _RENEWED),
    "sasl.kerberos.min.time.before.relogin": AlwaysSo(("60000",), _RENEWED),
}
OAUTH_RULES: dict[str, Rule] = {
    "sasl.login.connect.timeout.ms": Unsupported(_REFRESH),
    "sasl.login.read.timeout.ms": Unsupported(_REFRESH),
    "sasl.login.refresh.buffer.seconds": Unsupported(_REFRESH),
    "sasl.login.refresh.min.period.seconds": Unsupported(_REFRESH),
    "sasl.login.refresh.window.factor": Unsupported(_REFRESH),
    "sasl.login.refresh.window.jitter": Unsupported(_REFRESH),
    "sasl.login.retry.backoff.max.ms": Unsupported(_REFRESH),
    "sasl.login.retry.backoff.ms": Unsupported(_REFRESH),
    "sasl.oauthbearer.allow.unverified.audience": Unsupported(_BROKERS_ONLY),
    "sasl.oauthbearer.allow.unverified.issuer": Unsupported(_BROKERS_ONLY),
    "sasl.oauthbearer.assertion.claim.exp.seconds": Unsupported(_ASSERTION_TIMES),
    "sasl.oauthbearer.assertion.claim.nbf.seconds": Unsupported(_ASSERTION_TIMES),
    "sasl.oauthbearer.clock.skew.seconds": Unsupported(_BROKERS_ONLY),
    "sasl.oauthbearer.expected.audience": Unsupported(_BROKERS_ONLY),
    "sasl.oauthbearer.expected.issuer": Unsupported(_BROKERS_ONLY),
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": Unsupported(_BROKERS_ONLY),
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": Unsupported(_BROKERS_ONLY),
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": Unsupported(_BROKERS_ONLY),
    "sasl.oauthbearer.jwks.endpoint.url": Unsupported(_BROKERS_ONLY),
    "sasl.oauthbearer.jwt.validator.class": Unsupported(_BROKERS_ONLY),
    "sasl.oauthbearer.scope.claim.name": Unsupported(_AS_IT_IS),
    "sasl.oauthbearer.sub.claim.name": Unsupported(_AS_IT_IS),
}
_RULES |= OAUTH_RULES | KERBEROS_RULES
_RULES |= {
    "sasl.kerberos.ticket.renew.jitter": AlwaysSo(("0.05",), _RENEWED),
    "sasl.kerberos.ticket.renew.window.factor": AlwaysSo(("0.8", "0.80"), _RENEWED),
}


def _together(values: Values, keywords: Values) -> None:
    commits = converted("enable.auto.commit", flag, values.pop("enable.auto.commit", None))
    if commits is not None:
        keywords["commit"] = "auto" if commits else "manual"
    if "auto.offset.reset" in values:
        words = {"earliest": "earliest", "latest": "latest", "none": "error"}
        set_offset_reset(keywords, "auto.offset.reset", values.pop("auto.offset.reset"), words)


JAVA = Table("java", _RULES, {}, _together)
