"""Every error kwire raises, and the table of broker error codes.

One tree, rooted at `KwireError`. An error says what happened, where (broker, API and version, topic-partition, offset
or field path, whichever are known) and what to do about it (`remedy`). Errors pickle, because a Spark task's error
travels from an executor to the driver.

    KwireError
      ConfigurationError          an option is wrong, or two contradict each other
      ClosedError                 used after close(), or in a forked child
      DecodeError                 bytes that are not what they claim to be: field path and offset
        CorruptRecordsError       a batch whose CRC, length or compression is wrong
      EncodeError                 a value that its wire type or version cannot carry: field path
      UnsupportedVersionError     no version of an API that both sides speak
      NodeError                   the connection to one broker
        ResolveError              the host name has no address
        ConnectError              refused, unreachable or timed out
        TlsError                  handshake or certificate
        NotKafkaError             the peer answered in another protocol
        DisconnectedError         the connection ended with requests in flight
        AuthenticationError       SASL said no
      RequestTimeoutError         no answer in time
      BrokerError                 an answer with an error code
        TopicError                ... about a topic: unknown, invalid or not authorised
        RecordTooLargeError       ... or refused here already, before sending
        AuthorizationError        ... an ACL
      DeliveryError               a record was not acknowledged; `possibly_persisted` says whether it may be in the log
      BufferFullError             the producer's memory limit, with `when_full="raise"`

Imports: nothing.
"""
from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Self

# How each place that an error can name is shown, in the order in which they are shown.
_PLACES: Mapping[str, str] = {
    "broker": "broker {}",
    "api": "{}",
    "version": "v{}",
    "topic": "topic {}",
    "partition": "partition {}",
    "group": "group {}",
    "path": "field {}",
    "offset": "offset {}",
}


class KwireError(Exception):
    """The root. `where` holds the places known, by the names in `_PLACES`; `remedy` is one sentence or None.

    >>> str(KwireError("no answer", broker="1 at db:9092", api="Produce", version=9, remedy="look at its log"))
    'no answer [broker 1 at db:9092, Produce, v9]: look at its log'
    """

    def __init__(self, message: str, *, remedy: str | None = None, **where: object) -> None:
        unknown = where.keys() - _PLACES.keys()
        assert not unknown, f"not a place: {unknown}"
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.where: dict[str, object] = {name: where[name] for name in _PLACES if where.get(name) is not None}

    def __str__(self) -> str:
        places = ", ".join(_PLACES[name].format(value) for name, value in self.where.items())
        text = f"{self.message} [{places}]" if places else self.message
        return f"{text}: {self.remedy}" if self.remedy else text

    def at(self, **where: object) -> Self:
        """Add places that the raiser did not know; places already known stay. Answers itself, to be raised."""
        assert not where.keys() - _PLACES.keys()
        merged = {**where, **self.where}
        self.where = {name: merged[name] for name in _PLACES if merged.get(name) is not None}
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception's own way would call the class with the message alone and lose required keywords.
        return _revive, (type(self), self.args, self.__dict__)


def _revive(cls: type[KwireError], args: tuple[object, ...], state: dict[str, object]) -> KwireError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class ConfigurationError(KwireError, ValueError):
    """An option is wrong, or two contradict each other."""


class ClosedError(KwireError, RuntimeError):
    """Used after close(), or in a forked child of the process that made it."""


class DecodeError(KwireError, ValueError):
    """Bytes that are not what they claim to be. `where` has `path` (such as topics[3].name) and `offset` in the frame."""


class CorruptRecordsError(DecodeError):
    """A record batch or message set whose checksum, length, count or compression is wrong."""


class EncodeError(KwireError, ValueError):
    """A value that its wire type cannot hold, or that the chosen version would lose. `where` has `path`."""


class UnsupportedVersionError(KwireError):
    """There is no version of an API that both sides speak, or the broker lacks the API."""


class NodeError(KwireError, ConnectionError):
    """Something about the connection to one broker; `where["broker"]` is "id at host:port"."""


class ResolveError(NodeError):
    """The host name has no address."""


class ConnectError(NodeError):
    """The connection was refused, unreachable or not made in time."""


class TlsError(NodeError):
    """The TLS handshake failed: certificate, host name, protocol version, or a peer without TLS."""


class NotKafkaError(NodeError):
    """The peer answered in another protocol (HTTP, TLS on a plaintext connection, ...) or broke Kafka's framing."""


class DisconnectedError(NodeError):
    """The connection ended. Requests that were in flight on it may or may not have been carried out."""


class AuthenticationError(NodeError):
    """SASL authentication failed, or the broker does not offer the mechanism."""


class RequestTimeoutError(KwireError, TimeoutError):
    """A request, or a call that needed several, was not answered in time. `__cause__` is the last failure seen."""


class BrokerError(KwireError):
    """A broker answered with an error code. Make one with `broker_error`, which picks the class.

    `code` is an int (a newer broker may send one that `ErrorCode` lacks), `name` Kafka's name for it.
    """

    def __init__(self, message: str, *, code: int, remedy: str | None = None, **where: object) -> None:
        super().__init__(message, remedy=remedy, **where)
        self.code = int(code)

    @property
    def name(self) -> str:
        return error_name(self.code)

    @property
    def is_retriable(self) -> bool:
        return self.code in _CODES and _CODES[self.code].is_retriable


class TopicError(BrokerError):
    """The topic does not exist, or its name is invalid."""


class RecordTooLargeError(BrokerError):
    """A record or batch is larger than the broker's, the topic's or the producer's limit."""


class AuthorizationError(BrokerError):
    """An ACL forbids the operation."""


class DeliveryError(KwireError):
    """A record was not acknowledged. `__cause__` is the last failure.

    `possibly_persisted` is True when a request that carried the record may have been applied: it was written to a
    socket and its answer never came, or said that it was stored but not replicated.
    """

    def __init__(
        self, message: str, *, possibly_persisted: bool, remedy: str | None = None, **where: object
    ) -> None:
        super().__init__(message, remedy=remedy, **where)
        self.possibly_persisted = possibly_persisted


class BufferFullError(KwireError):
    """The producer holds `max_buffered_bytes` and was told not to wait."""


_R, _M = 1, 2  # retriable; invalidates metadata (the client must refresh it before trying again)


class ErrorCode(IntEnum):
    """Kafka's error codes: org.apache.kafka.common.protocol.Errors, as of 4.4.

    `is_retriable` and `invalidates_metadata` are those of Kafka's exception classes; `usual_cause` is what we have seen
    behind the code, for a person to read.
    """

    is_retriable: bool
    invalidates_metadata: bool
    usual_cause: str

    def __new__(cls, code: int, flags: int, usual_cause: str) -> Self:
        member = int.__new__(cls, code)
        member._value_ = code
        member.is_retriable = bool(flags & _R)
        member.invalidates_metadata = bool(flags & _M)
        member.usual_cause = usual_cause
        return member

    UNKNOWN_SERVER_ERROR = -1, 0, ""
    NONE = 0, 0, ""
    OFFSET_OUT_OF_RANGE = 1, 0, ""
    CORRUPT_MESSAGE = 2, _R, ""
    UNKNOWN_TOPIC_OR_PARTITION = 3, _R | _M, ""
    INVALID_FETCH_SIZE = 4, 0, ""
    LEADER_NOT_AVAILABLE = 5, _R | _M, ""
    NOT_LEADER_OR_FOLLOWER = 6, _R | _M, ""
    REQUEST_TIMED_OUT = 7, _R, ""
    BROKER_NOT_AVAILABLE = 8, 0, ""
    REPLICA_NOT_AVAILABLE = 9, _R | _M, ""
    MESSAGE_TOO_LARGE = 10, 0, ""
    STALE_CONTROLLER_EPOCH = 11, 0, ""
    OFFSET_METADATA_TOO_LARGE = 12, 0, ""
    NETWORK_EXCEPTION = 13, _R | _M, ""
    COORDINATOR_LOAD_IN_PROGRESS = 14, _R, ""
    COORDINATOR_NOT_AVAILABLE = 15, _R, ""
    NOT_COORDINATOR = 16, _R, ""
    INVALID_TOPIC_EXCEPTION = 17, 0, ""
    RECORD_LIST_TOO_LARGE = 18, 0, ""
    NOT_ENOUGH_REPLICAS = 19, _R, ""
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, _R, ""
    INVALID_REQUIRED_ACKS = 21, 0, ""
    ILLEGAL_GENERATION = 22, 0, ""
    INCONSISTENT_GROUP_PROTOCOL = 23, 0, ""
    INVALID_GROUP_ID = 24, 0, ""
    UNKNOWN_MEMBER_ID = 25, 0, ""
    INVALID_SESSION_TIMEOUT = 26, 0, ""
    REBALANCE_IN_PROGRESS = 27, 0, ""
    INVALID_COMMIT_OFFSET_SIZE = 28, 0, ""
    TOPIC_AUTHORIZATION_FAILED = 29, 0, ""
    GROUP_AUTHORIZATION_FAILED = 30, 0, ""
    CLUSTER_AUTHORIZATION_FAILED = 31, 0, ""
    INVALID_TIMESTAMP = 32, 0, ""
    UNSUPPORTED_SASL_MECHANISM = 33, 0, ""
    ILLEGAL_SASL_STATE = 34, 0, ""
    UNSUPPORTED_VERSION = 35, 0, ""
    TOPIC_ALREADY_EXISTS = 36, 0, ""
    INVALID_PARTITIONS = 37, 0, ""
    INVALID_REPLICATION_FACTOR = 38, 0, ""
    INVALID_REPLICA_ASSIGNMENT = 39, 0, ""
    INVALID_CONFIG = 40, 0, ""
    NOT_CONTROLLER = 41, _R, ""
    INVALID_REQUEST = 42, 0, ""
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, 0, ""
    POLICY_VIOLATION = 44, 0, ""
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, 0, ""
    DUPLICATE_SEQUENCE_NUMBER = 46, 0, ""
    INVALID_PRODUCER_EPOCH = 47, 0, ""
    INVALID_TXN_STATE = 48, 0, ""
    INVALID_PRODUCER_ID_MAPPING = 49, 0, ""
    INVALID_TRANSACTION_TIMEOUT = 50, 0, ""
    CONCURRENT_TRANSACTIONS = 51, _R, ""
    TRANSACTION_COORDINATOR_FENCED = 52, 0, ""
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, 0, ""
    SECURITY_DISABLED = 54, 0, ""
    OPERATION_NOT_ATTEMPTED = 55, 0, ""
    KAFKA_STORAGE_ERROR = 56, _R | _M, ""
    LOG_DIR_NOT_FOUND = 57, 0, ""
    SASL_AUTHENTICATION_FAILED = 58, 0, ""
    UNKNOWN_PRODUCER_ID = 59, 0, ""
    REASSIGNMENT_IN_PROGRESS = 60, 0, ""
    DELEGATION_TOKEN_AUTH_DISABLED = 61, 0, ""
    DELEGATION_TOKEN_NOT_FOUND = 62, 0, ""
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, 0, ""
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, 0, ""
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, 0, ""
    DELEGATION_TOKEN_EXPIRED = 66, 0, ""
    INVALID_PRINCIPAL_TYPE = 67, 0, ""
    NON_EMPTY_GROUP = 68, 0, ""
    GROUP_ID_NOT_FOUND = 69, 0, ""
    FETCH_SESSION_ID_NOT_FOUND = 70, _R, ""
    INVALID_FETCH_SESSION_EPOCH = 71, _R, ""
    LISTENER_NOT_FOUND = 72, _R | _M, ""
    TOPIC_DELETION_DISABLED = 73, 0, ""
    FENCED_LEADER_EPOCH = 74, _R | _M, ""
    UNKNOWN_LEADER_EPOCH = 75, _R, ""
    UNSUPPORTED_COMPRESSION_TYPE = 76, 0, ""
    STALE_BROKER_EPOCH = 77, 0, ""
    OFFSET_NOT_AVAILABLE = 78, _R, ""
    MEMBER_ID_REQUIRED = 79, 0, ""
    PREFERRED_LEADER_NOT_AVAILABLE = 80, _R | _M, ""
    GROUP_MAX_SIZE_REACHED = 81, 0, ""
    FENCED_INSTANCE_ID = 82, 0, ""
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, _R | _M, ""
    ELECTION_NOT_NEEDED = 84, _R | _M, ""
    NO_REASSIGNMENT_IN_PROGRESS = 85, 0, ""
    GROUP_SUBSCRIBED_TO_TOPIC = 86, 0, ""
    INVALID_RECORD = 87, 0, ""
    UNSTABLE_OFFSET_COMMIT = 88, _R, ""
    THROTTLING_QUOTA_EXCEEDED = 89, _R, ""
    PRODUCER_FENCED = 90, 0, ""
    RESOURCE_NOT_FOUND = 91, 0, ""
    DUPLICATE_RESOURCE = 92, 0, ""
    UNACCEPTABLE_CREDENTIAL = 93, 0, ""
    INCONSISTENT_VOTER_SET = 94, 0, ""
    INVALID_UPDATE_VERSION = 95, 0, ""
    FEATURE_UPDATE_FAILED = 96, 0, ""
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, 0, ""
    SNAPSHOT_NOT_FOUND = 98, 0, ""
    POSITION_OUT_OF_RANGE = 99, 0, ""
    UNKNOWN_TOPIC_ID = 100, _R | _M, ""
    DUPLICATE_BROKER_REGISTRATION = 101, 0, ""
    BROKER_ID_NOT_REGISTERED = 102, 0, ""
    INCONSISTENT_TOPIC_ID = 103, _R | _M, ""
    INCONSISTENT_CLUSTER_ID = 104, 0, ""
    TRANSACTIONAL_ID_NOT_FOUND = 105, 0, ""
    FETCH_SESSION_TOPIC_ID_ERROR = 106, _R, ""
    INELIGIBLE_REPLICA = 107, 0, ""
    NEW_LEADER_ELECTED = 108, 0, ""
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, 0, ""
    FENCED_MEMBER_EPOCH = 110, 0, ""
    UNRELEASED_INSTANCE_ID = 111, 0, ""
    UNSUPPORTED_ASSIGNOR = 112, 0, ""
    STALE_MEMBER_EPOCH = 113, 0, ""
    MISMATCHED_ENDPOINT_TYPE = 114, 0, ""
    UNSUPPORTED_ENDPOINT_TYPE = 115, 0, ""
    UNKNOWN_CONTROLLER_ID = 116, 0, ""
    UNKNOWN_SUBSCRIPTION_ID = 117, 0, ""
    TELEMETRY_TOO_LARGE = 118, 0, ""
    INVALID_REGISTRATION = 119, 0, ""
    TRANSACTION_ABORTABLE = 120, 0, ""
    INVALID_RECORD_STATE = 121, 0, ""
    SHARE_SESSION_NOT_FOUND = 122, _R, ""
    INVALID_SHARE_SESSION_EPOCH = 123, _R, ""
    FENCED_STATE_EPOCH = 124, 0, ""
    INVALID_VOTER_KEY = 125, 0, ""
    DUPLICATE_VOTER = 126, 0, ""
    VOTER_NOT_FOUND = 127, 0, ""
    INVALID_REGULAR_EXPRESSION = 128, 0, ""
    REBOOTSTRAP_REQUIRED = 129, 0, ""
    STREAMS_INVALID_TOPOLOGY = 130, 0, ""
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, 0, ""
    STREAMS_TOPOLOGY_FENCED = 132, 0, ""
    SHARE_SESSION_LIMIT_REACHED = 133, _R, ""
    GROUP_DELETION_FAILED = 134, 0, ""
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = 135, 0, ""
    CONTROLLER_ID_NOT_REGISTERED = 136, 0, ""


_CODES: Mapping[int, ErrorCode] = {int(code): code for code in ErrorCode}
_TOPIC_CODES = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.UNKNOWN_TOPIC_ID})
_SIZE_CODES = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_AUTHORIZATION_CODES = frozenset(code for code in ErrorCode if code.name.endswith("_AUTHORIZATION_FAILED"))


def error_name(code: int) -> str:
    """Kafka's name for an error code; UNRECOGNISED_ERROR_<n> for one that a newer broker brought."""
    return _CODES[code].name if code in _CODES else f"UNRECOGNISED_ERROR_{code}"


def broker_error(code: int, message: str | None = None, *, remedy: str | None = None, **where: object) -> BrokerError:
    """The error for a code in a response, of the class that suits it. `message` is the broker's own, if it sent one."""
    cls: type[BrokerError] = BrokerError
    if code in _TOPIC_CODES:
        cls = TopicError
    elif code in _SIZE_CODES:
        cls = RecordTooLargeError
    elif code in _AUTHORIZATION_CODES:
        cls = AuthorizationError
    text = f"{error_name(code)} ({code})"
    if message:
        text = f"{text}: {message}"
    if remedy is None and code in _CODES:
        remedy = _CODES[code].usual_cause or None
    return cls(text, code=code, remedy=remedy, **where)
