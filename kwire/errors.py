"""Every error that kwire raises, and the table of broker error codes.

All errors derive from `KwireError`. An error says what happened, where (broker, API, version, topic-partition, offset
or field path, as far as they are known) and what to do about it (`remedy`). Errors can be pickled, because Spark sends
the error of a task from an executor to the driver.

    KwireError
      ConfigurationError          an option is wrong, or two contradict each other
      ClosedError                 used after close(), or in a forked child
      DecodeError                 malformed bytes: field path and offset
        CorruptRecordsError       a batch whose CRC, length or compression is wrong
      EncodeError                 a value that its wire type or version cannot hold: field path
      UnsupportedVersionError     no version of an API that both sides support
      NodeError                   the connection to one broker
        ResolveError              the host name has no address
        ConnectError              refused, unreachable or timed out
        TlsError                  handshake or certificate
        NotKafkaError             the peer speaks another protocol
        DisconnectedError         the connection ended with requests in flight
        AuthenticationError       SASL authentication failed
          LoginError              ... before the broker: no token, ticket or secret could be obtained
            KerberosError         ... of Kerberos; `reason` says why
      RequestTimeoutError         no response in time
      BrokerError                 a response with an error code
        TopicError                ... about a topic: unknown, invalid or not authorised
        RecordTooLargeError       ... or rejected by the client, before sending
        AuthorizationError        ... an ACL forbids the operation
        OffsetOutOfRangeError     ... the log does not have the offset
          LogTruncationError      ... any more: a leader election has cut off records that were read before
      NoOffsetError               the group has committed no offset, with `on_no_offset="error"`
      DeliveryError               a record was not acknowledged; `possibly_persisted` says whether it may be in the log
        UndeliveredError          ... and its response was never read before the producer was closed
      GroupError                  a consumer group, its members and its commits
        CommitFailedError         ... the partition belongs to another member now: it was not committed
        CommitError               ... some partitions were not committed; `failed` says why
        RebalanceInProgressError  ... a rebalance must end first: poll, then commit
        FencedInstanceError       ... another consumer has the same group_instance_id
        AssignorError             ... its assignor raised, or its assignment is wrong
      AcknowledgeError            a record of a share group cannot be acknowledged, or was not
        LockLostError             ... since its lock has ended: it is delivered again
      WakeupError                 wakeup() ended a wait
      BufferFullError             the producer's memory limit, with `when_full="raise"`
      TransactionError            a transaction cannot go on
        AbortableError            ... abort it and begin another
        FatalError                ... and this producer can begin no other
          FencedError             ... because a newer one has its transactional id
        InDoubtError              a write was decided, and parts of it were not completed in time: they are lost
        MissingMarkerError        what was written before is unknown, so that a write might be doubled

Imports: nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextvars import ContextVar
from enum import IntEnum
from typing import Any, Self

# The format of each place that an error can name, in the order of the error text.
_PLACES: Mapping[str, str] = {
    "broker": "broker {}",
    "api": "{}",
    "version": "v{}",
    "topic": "topic {}",
    "partition": "partition {}",
    "group": "group {}",
    "resource": "{}",
    "path": "field {}",
    "offset": "offset {}",
    "operation": "operation {}",
    "principal": "as {}",
}

# Who the client of this thread has logged in as, for errors: each loop thread serves one client, or one kwire.Cluster.
acting_principal: ContextVar[str | None] = ContextVar("acting_principal", default=None)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "partition"), counted(1000, "record")
    ('1 partition', '1000 records')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


class KwireError(Exception):
    """The base class. `where` holds the known places, by the names in `_PLACES`; `remedy` is one sentence or None.

    >>> str(KwireError("no response", broker="1 at db:9092", api="Produce", version=9, remedy="look at its log"))
    'no response [broker 1 at db:9092, Produce, v9]: look at its log'
    """

    def __init__(self, message: str, *, remedy: str | None = None, **where: object) -> None:
        unknown = where.keys() - _PLACES.keys()
        assert not unknown, f"not a place: {unknown}"
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.where: dict[str, object] = {name: where[name] for name in _PLACES if where.get(name) is not None}

    def __str__(self) -> str:
        return self.text()

    def text(self, *, without: Collection[str] = ()) -> str:
        """Return the text of `str`, without some of the places: for a line that has named them already."""
        places = ", ".join(_PLACES[name].format(value) for name, value in self.where.items() if name not in without)
        text = f"{self.message} [{places}]" if places else self.message
        return f"{text}: {self.remedy}" if self.remedy else text

    @property
    def is_retriable(self) -> bool:
        """Return whether the same request may succeed later, after a back-off and with newer metadata."""
        return False

    def at(self, **where: object) -> Self:
        """Add places that were unknown where the error was made, and return the error. Known places stay."""
        assert not where.keys() - _PLACES.keys()
        merged = {**where, **self.where}
        self.where = {name: merged[name] for name in _PLACES if merged.get(name) is not None}
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception.__reduce__ would call the class with the message alone, without its required keywords.
        return _revive, (type(self), self.args, self.__dict__)


def _revive(cls: type[KwireError], args: tuple[object, ...], state: dict[str, object]) -> KwireError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class ConfigurationError(KwireError, ValueError):
    """An option is wrong, or two contradict each other."""


class FilterError(ConfigurationError):
    """A filter expression is wrong. `where` has `offset`, the place in the expression."""


class ClosedError(KwireError, RuntimeError):
    """A client was used after close(), or in a forked child of the process that made it."""


class DecodeError(KwireError, ValueError):
    """Malformed bytes. `where` has `path` (topics[3].name) and `offset` in the frame."""


class CorruptRecordsError(DecodeError):
    """A record batch or message set whose checksum, length, count or compression is wrong."""


class EncodeError(KwireError, ValueError):
    """A value that its wire type cannot hold, or that the chosen version cannot carry. `where` has `path`."""


class UnsupportedVersionError(KwireError):
    """There is no version of an API that both sides support, or the broker lacks the API."""


class NodeError(KwireError, ConnectionError):
    """The connection to one broker failed; `where["broker"]` is "id at host:port"."""

    @property
    def is_retriable(self) -> bool:
        """False where trying again is useless: the broker rejects this client, or the peer is no broker."""
        return not isinstance(self, (TlsError, NotKafkaError, AuthenticationError))


class ResolveError(NodeError):
    """The host name has no address."""


class ConnectError(NodeError):
    """The connection was refused, unreachable or not made in time."""


class TlsError(NodeError):
    """The TLS handshake failed: certificate, host name, protocol version, or a peer without TLS."""


class NotKafkaError(NodeError):
    """The peer speaks another protocol (HTTP, TLS on a plaintext connection, ...), or sent an invalid frame."""


class DisconnectedError(NodeError):
    """The connection ended. The broker may or may not have handled the requests in flight on it."""


class AuthenticationError(NodeError):
    """SASL authentication failed, or the broker does not offer the mechanism."""


class LoginError(AuthenticationError):
    """No credentials could be obtained: from a token server, a key distribution centre, a file or a callable.

    With `may_retry` a later try may succeed: the server was overloaded, or could not be reached.
    """

    def __init__(self, message: str, *, may_retry: bool = False, remedy: str | None = None, **where: object) -> None:
        super().__init__(message, remedy=remedy, **where)
        self.may_retry = may_retry

    @property
    def is_retriable(self) -> bool:
        return self.may_retry


class KerberosError(LoginError):
    """No Kerberos ticket could be obtained.

    `reason` is "no ticket", "expired ticket", "clock skew", "unknown service", "unknown principal", "wrong key" (or
    password), "no kdc" or "other".
    """

    def __init__(
        self,
        message: str,
        *,
        reason: str = "other",
        may_retry: bool = False,
        remedy: str | None = None,
        **where: object,
    ) -> None:
        super().__init__(message, may_retry=may_retry, remedy=remedy, **where)
        self.reason = reason


class RequestTimeoutError(KwireError, TimeoutError):
    """A request, or a call that needs several, got no response in time. `__cause__` is the last failure, if any."""

    @property
    def is_retriable(self) -> bool:
        return True


class BrokerError(KwireError):
    """A broker responded with an error code. Make one with `broker_error`, which picks the class.

    `code` is an int (a newer broker may send one that `ErrorCode` lacks), `name` is Kafka's name for it.
    `broker_message` is the message in the response, or None.
    """

    broker_message: str | None = None

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


class SerializationError(KwireError, ValueError):
    """The caller's serializer failed, or did not return bytes. `__cause__` is the exception that it raised."""


class AuthorizationError(BrokerError):
    """An ACL forbids the operation.

    Brokers say which resource it was about. The operation is the one that Kafka asks for in this API, and the principal
    is who this client has logged in as, where it is known: a broker may map that to another name.
    """

    @property
    def principal(self) -> str | None:
        """Such as "User:alice"."""
        found = self.where.get("principal")
        return None if found is None else str(found)

    @property
    def operation(self) -> str | None:
        """Such as "write", as `kwire.admin.Acl` names it."""
        found = self.where.get("operation")
        return None if found is None else str(found)

    @property
    def resource(self) -> str | None:
        """Such as "topic orders" or "group billing"; "cluster"."""
        if self.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return "cluster"
        places = ["topic", "group", "resource"]
        if self.code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
            places.remove("topic")
        return next((_PLACES[name].format(self.where[name]) for name in places if name in self.where), None)

    def at(self, **where: object) -> Self:
        super().at(**where)
        operation = _NEEDED_OPERATIONS.get(self.code, {}).get(str(self.where.get("api")))
        if operation is not None and "operation" not in self.where:
            super().at(operation=operation)
        return self


class OffsetOutOfRangeError(BrokerError):
    """The log of a partition does not have the offset to read. `where` has topic, partition and offset.

    `log_start` and `log_end` are the first offset and the one after the last; None where they are unknown.
    """

    def __init__(
        self,
        message: str,
        *,
        code: int,
        log_start: int | None = None,
        log_end: int | None = None,
        remedy: str | None = None,
        **where: object,
    ) -> None:
        super().__init__(message, code=code, remedy=remedy, **where)
        self.log_start = log_start
        self.log_end = log_end


class LogTruncationError(OffsetOutOfRangeError):
    """Records before the position were cut off by a leader election: the log has others at their offsets (KIP-320).

    `divergent_offset` is the first offset at which the log differs from what was read; None where the leader does not
    know it.
    """

    def __init__(
        self,
        message: str,
        *,
        code: int,
        divergent_offset: int | None = None,
        remedy: str | None = None,
        **where: object,
    ) -> None:
        super().__init__(message, code=code, log_start=None, log_end=None, remedy=remedy, **where)
        self.divergent_offset = divergent_offset


class NoOffsetError(KwireError):
    """The group has committed no offset of a partition, and `on_no_offset` is "error"."""


class DeliveryError(KwireError):
    """A record was not acknowledged. `__cause__` is the last failure.

    `possibly_persisted` is True when the broker may have stored the record: a request with it was written to a socket
    and got no response, or the response said that the record was stored but not replicated.
    """

    def __init__(self, message: str, *, possibly_persisted: bool, remedy: str | None = None, **where: object) -> None:
        super().__init__(message, remedy=remedy, **where)
        self.possibly_persisted = possibly_persisted


class UndeliveredError(DeliveryError):
    """Records failed, or were not delivered in time, and their responses were never read.

    `records` maps each topic to a number of records; `__cause__` is the first known cause.
    """

    def __init__(
        self,
        message: str,
        *,
        records: Mapping[str, int],
        possibly_persisted: bool,
        remedy: str | None = None,
        **where: object,
    ) -> None:
        super().__init__(message, possibly_persisted=possibly_persisted, remedy=remedy, **where)
        self.records = dict(records)


class GroupError(KwireError):
    """A consumer group: joining it, living in it, committing to it."""


class CommitFailedError(GroupError):
    """An offset was not committed, because this consumer does not have the partition, or not any more.

    What was processed since the last commit may be processed again by the partition's new owner.
    """


class CommitError(GroupError):
    """A commit failed for some partitions. `failed` has the error of each; `committed` those that are stored."""

    def __init__(
        self,
        message: str,
        *,
        failed: Mapping[tuple[str, int], KwireError],
        committed: Collection[tuple[str, int]],
        remedy: str | None = None,
        **where: object,
    ) -> None:
        super().__init__(message, remedy=remedy, **where)
        self.failed = dict(failed)
        self.committed = frozenset(committed)

    @property
    def is_retriable(self) -> bool:
        return bool(self.failed) and all(error.is_retriable for error in self.failed.values())


class RebalanceInProgressError(GroupError):
    """The group rebalances, so that its coordinator takes no commit now: poll, which goes on with it, then commit."""

    @property
    def is_retriable(self) -> bool:
        return True


class FencedInstanceError(GroupError):
    """Another consumer has joined the group with the same group_instance_id. This one can do no more."""


class AssignorError(GroupError):
    """An assignor raised, or returned what no group may have, such as a partition for two members. See `__cause__`."""


class AcknowledgeError(KwireError, RuntimeError):
    """A record of a share group cannot be acknowledged like this, or was not acknowledged before the next poll."""


class LockLostError(AcknowledgeError):
    """The lock of a record of a share group has ended: the group delivers the record again."""


class QueueError(KwireError):
    """A message queue: its topics, its consumers, its messages."""


class SettledError(QueueError, RuntimeError):
    """A message was acknowledged, given back or refused a second time."""


class LeaseLostError(QueueError):
    """The lease of a message is over: the queue delivers it again, so that it cannot be acknowledged any more."""


class MessageTooLargeError(QueueError, ValueError):
    """A message that consumers could not mark as in progress, since its marker would be too large."""


class ProcessingError(KwireError):
    """A function given to `Consumer.process` raised, and no retry or dead letters are left. `records` are those it got.

    The error of the function is its cause.
    """

    def __init__(self, message: str, *, records: Sequence[Any], remedy: str | None = None, **where: object) -> None:
        super().__init__(message, remedy=remedy, **where)
        self.records = records


class WakeupError(KwireError):
    """`wakeup` ended a wait."""


class BufferFullError(KwireError):
    """The producer holds `max_buffered_bytes`, and `when_full` is "raise"."""


class TransactionError(KwireError):
    """A transaction cannot go on. `__cause__` is the first error that it met."""


class AbortableError(TransactionError):
    """This transaction cannot be committed: abort it; the producer can begin another."""


class FatalError(TransactionError):
    """This producer can begin no other transaction: close it."""


class FencedError(FatalError):
    """A newer producer has this one's transactional id, or its transaction took longer than transaction_timeout_ms."""


class InDoubtError(TransactionError):
    """A write was decided, but the transactions of some of its parts ended before they could be committed.

    `lost_rows` is the number of rows in those parts: they are not in the topic.
    """

    def __init__(self, message: str, *, lost_rows: int, remedy: str | None = None, **where: object) -> None:
        super().__init__(message, remedy=remedy, **where)
        self.lost_rows = lost_rows


class MissingMarkerError(TransactionError):
    """The marker of the batch before is missing, so that nobody knows whether this batch was written already."""


_R, _M = 1, 2  # retriable; invalidates metadata (the client must refresh it before trying again)


class ErrorCode(IntEnum):
    """Kafka's error codes: org.apache.kafka.common.protocol.Errors, as of 4.4.

    `is_retriable` and `invalidates_metadata` are those of Kafka's exception classes; `usual_cause` is what usually
    causes the code, with what to check or do.
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

    UNKNOWN_SERVER_ERROR = -1, 0, "the broker failed in a way it has no code for; its log at that time says how"
    NONE = 0, 0, ""
    OFFSET_OUT_OF_RANGE = (
        1,
        0,
        ("the offset was deleted by retention or never written; start from the earliest or latest one"),
    )
    CORRUPT_MESSAGE = (
        2,
        _R,
        ("a batch's checksum or format was wrong on arrival, or a compacted topic got a null key; check both"),
    )
    UNKNOWN_TOPIC_OR_PARTITION = (
        3,
        _R | _M,
        ("no such topic or partition, not known yet right after its creation, or hidden by an ACL; check the spelling"),
    )
    INVALID_FETCH_SIZE = 4, 0, "the requested bytes of a fetch are negative; check the fetch limits"
    LEADER_NOT_AVAILABLE = (
        5,
        _R | _M,
        ("the partition is electing a leader, or all replicas that may lead are down; wait, then look at the brokers"),
    )
    NOT_LEADER_OR_FOLLOWER = 6, _R | _M, "the leader moved; refresh metadata and send to the new one"
    REQUEST_TIMED_OUT = (
        7,
        _R,
        ("the replicas did not follow within the request's timeout; look for a slow or lagging broker"),
    )
    BROKER_NOT_AVAILABLE = 8, 0, "the broker in question is down or not registered; see which brokers the cluster lists"
    REPLICA_NOT_AVAILABLE = (
        9,
        _R | _M,
        ("the broker holds no copy of the partition, often during a reassignment; refresh metadata"),
    )
    MESSAGE_TOO_LARGE = (
        10,
        0,
        ("the batch exceeds max.message.bytes of the topic; send smaller batches or raise that limit"),
    )
    STALE_CONTROLLER_EPOCH = (
        11,
        0,
        ("a request of a controller that has been replaced; between brokers only, and it passes"),
    )
    OFFSET_METADATA_TOO_LARGE = 12, 0, "the text committed with an offset exceeds offset.metadata.max.bytes; shorten it"
    NETWORK_EXCEPTION = (
        13,
        _R | _M,
        ("the connection broke before the response arrived; check the network and whether the broker restarted"),
    )
    COORDINATOR_LOAD_IN_PROGRESS = 14, _R, "the coordinator is reading its log after a move or start; try again shortly"
    COORDINATOR_NOT_AVAILABLE = (
        15,
        _R,
        (
            "no coordinator yet: its internal topic is being created or has no leader; look at __consumer_offsets or "
            "__transaction_state"
        ),
    )
    NOT_COORDINATOR = 16, _R, "the group or transaction moved to another broker; find its coordinator again"
    INVALID_TOPIC_EXCEPTION = (
        17,
        0,
        (
            "choose a name of 1 to 249 letters, digits, dots, underscores and dashes, other than . and .. and the "
            "names of Kafka's own topics"
        ),
    )
    RECORD_LIST_TOO_LARGE = (
        18,
        0,
        ("the batch is larger than a segment of the log; send smaller batches or raise segment.bytes"),
    )
    NOT_ENOUGH_REPLICAS = (
        19,
        _R,
        ("fewer replicas are in sync than min.insync.replicas; see which broker is down or lags"),
    )
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        _R,
        ("written by the leader, but too few replicas stayed in sync to keep it; it may survive or not"),
    )
    INVALID_REQUIRED_ACKS = 21, 0, "acks can be 0, 1 or -1 (all)"
    ILLEGAL_GENERATION = 22, 0, "the group rebalanced without this member; join again, and check that polling keeps up"
    INCONSISTENT_GROUP_PROTOCOL = (
        23,
        0,
        ("the members share no assignor or protocol type; give all members of the group the same"),
    )
    INVALID_GROUP_ID = 24, 0, "empty or missing where one is needed; set group.id"
    UNKNOWN_MEMBER_ID = 25, 0, "the coordinator has dropped this member, mostly for missed heartbeats; join again"
    INVALID_SESSION_TIMEOUT = (
        26,
        0,
        ("outside of the broker's group.min.session.timeout.ms and group.max.session.timeout.ms; choose one within"),
    )
    REBALANCE_IN_PROGRESS = 27, 0, "members are joining or leaving; join again and commit afterwards"
    INVALID_COMMIT_OFFSET_SIZE = (
        28,
        0,
        ("the commit is larger than the offsets topic takes as one record; commit fewer or shorter"),
    )
    TOPIC_AUTHORIZATION_FAILED = (
        29,
        0,
        ("an ACL on the topic is missing; check which user is logged in and what it may do"),
    )
    GROUP_AUTHORIZATION_FAILED = (
        30,
        0,
        ("an ACL on the group is missing; check which user is logged in and what it may do"),
    )
    CLUSTER_AUTHORIZATION_FAILED = 31, 0, "an ACL on the cluster is missing; this operation needs an administrator's"
    INVALID_TIMESTAMP = 32, 0, "a record's time is further from the broker's than the topic allows; check both clocks"
    UNSUPPORTED_SASL_MECHANISM = (
        33,
        0,
        ("the listener does not offer the mechanism; use one of those that the response lists"),
    )
    ILLEGAL_SASL_STATE = (
        34,
        0,
        ("a request came before or amid the login; the client and the listener's protocol do not fit"),
    )
    UNSUPPORTED_VERSION = (
        35,
        0,
        ("the broker does not speak this version, or lacks a feature that must be enabled; compare its versions"),
    )
    TOPIC_ALREADY_EXISTS = 36, 0, "a topic of that name is there already, or is still being deleted"
    INVALID_PARTITIONS = 37, 0, "a topic has at least one partition, and can only be given more than it has"
    INVALID_REPLICATION_FACTOR = (
        38,
        0,
        ("below 1 or more than there are live brokers; start brokers or request fewer replicas"),
    )
    INVALID_REPLICA_ASSIGNMENT = (
        39,
        0,
        ("the replicas listed are no brokers, repeat themselves or differ in number; list live brokers"),
    )
    INVALID_CONFIG = 40, 0, "a setting's name or value is not allowed there; see which one the message names"
    NOT_CONTROLLER = 41, _R, "the controller moved; refresh metadata and send the request to the new one"
    INVALID_REQUEST = (
        42,
        0,
        ("fields of the request contradict each other or its version; see the message and the broker's log"),
    )
    UNSUPPORTED_FOR_MESSAGE_FORMAT = (
        43,
        0,
        ("the topic's log has an old message format; raise message.format.version or leave the feature out"),
    )
    POLICY_VIOLATION = 44, 0, "a policy that the cluster's operators installed says no; ask them for its rules"
    OUT_OF_ORDER_SEQUENCE_NUMBER = (
        45,
        0,
        ("a batch before this one is missing in the log: lost, or never sent; order cannot be kept on this epoch"),
    )
    DUPLICATE_SEQUENCE_NUMBER = (
        46,
        0,
        ("the broker has this batch already, but too long ago to know its offset; it is in the log"),
    )
    INVALID_PRODUCER_EPOCH = (
        47,
        0,
        ("another producer with the same transactional id took over; check that only one runs"),
    )
    INVALID_TXN_STATE = 48, 0, "the transaction is not in a state for this, such as ended or timed out; begin a new one"
    INVALID_PRODUCER_ID_MAPPING = (
        49,
        0,
        ("the transactional id expired or belongs to another producer id; initialise the producer again"),
    )
    INVALID_TRANSACTION_TIMEOUT = 50, 0, "above the broker's transaction.max.timeout.ms; choose a shorter one"
    CONCURRENT_TRANSACTIONS = 51, _R, "the transaction before is still being completed; try again shortly"
    TRANSACTION_COORDINATOR_FENCED = (
        52,
        0,
        ("a marker of a coordinator that has been replaced; between brokers only, and it passes"),
    )
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = (
        53,
        0,
        ("an ACL on the transactional id is missing; check which user is logged in"),
    )
    SECURITY_DISABLED = 54, 0, "the cluster has no authorizer, so that there are no ACLs to read or change"
    OPERATION_NOT_ATTEMPTED = 55, 0, "left undone because another part of the request failed; see that part's error"
    KAFKA_STORAGE_ERROR = (
        56,
        _R | _M,
        ("a disk of the broker failed; another replica takes over, and the broker's log names the directory"),
    )
    LOG_DIR_NOT_FOUND = (
        57,
        0,
        ("the directory is not in the broker's log.dirs, or is offline; check the path and the disk"),
    )
    SASL_AUTHENTICATION_FAILED = (
        58,
        0,
        ("wrong user or password, or a user that is unknown to this mechanism; check all three"),
    )
    UNKNOWN_PRODUCER_ID = (
        59,
        0,
        ("all records of this producer were deleted by retention and it was forgotten; start on a new epoch"),
    )
    REASSIGNMENT_IN_PROGRESS = 60, 0, "the partition's replicas are being moved; wait for it or cancel it"
    DELEGATION_TOKEN_AUTH_DISABLED = 61, 0, "the brokers have no delegation.token.secret.key; set one on all"
    DELEGATION_TOKEN_NOT_FOUND = 62, 0, "no such token, or it expired and was removed; request a new one"
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, 0, "neither the token's owner nor one of its renewers; log in as one of them"
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = (
        64,
        0,
        ("not over this connection: it is not authenticated, or by a token itself; log in otherwise"),
    )
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, 0, "an ACL on the token is missing; check which user is logged in"
    DELEGATION_TOKEN_EXPIRED = (
        66,
        0,
        ("the token's time or its maximum lifetime is over; renew earlier or request a new one"),
    )
    INVALID_PRINCIPAL_TYPE = 67, 0, "only principals of type User can own or renew a token"
    NON_EMPTY_GROUP = 68, 0, "the group still has members; stop its consumers first"
    GROUP_ID_NOT_FOUND = 69, 0, "no such group, or of another type; check the id"
    FETCH_SESSION_ID_NOT_FOUND = 70, _R, "the broker restarted or needed the room for others; fetch with a new session"
    INVALID_FETCH_SESSION_EPOCH = 71, _R, "a fetch was lost or came twice; fetch with a new session"
    LISTENER_NOT_FOUND = (
        72,
        _R | _M,
        ("the leader has no listener of the name by which the client came; compare the brokers' listeners"),
    )
    TOPIC_DELETION_DISABLED = 73, 0, "the brokers have delete.topic.enable=false"
    FENCED_LEADER_EPOCH = 74, _R | _M, "the client knows an older leader than the broker; refresh metadata"
    UNKNOWN_LEADER_EPOCH = (
        75,
        _R,
        ("the client knows a newer leader than the broker, which catches up; try again shortly"),
    )
    UNSUPPORTED_COMPRESSION_TYPE = 76, 0, "zstd needs brokers and clients of 2.1 or newer; choose another codec"
    STALE_BROKER_EPOCH = 77, 0, "a request of a broker from before its restart; between brokers only, and it passes"
    OFFSET_NOT_AVAILABLE = 78, _R, "a new leader does not know its high watermark yet; try again shortly"
    MEMBER_ID_REQUIRED = 79, 0, "the first join got its member id with this response; join again with it"
    PREFERRED_LEADER_NOT_AVAILABLE = (
        80,
        _R | _M,
        ("the first replica in the list is down or not in sync; wait until it has caught up"),
    )
    GROUP_MAX_SIZE_REACHED = 81, 0, "as many members as group.max.size allows; run fewer or raise it"
    FENCED_INSTANCE_ID = 82, 0, "two consumers share one group.instance.id and the other was faster; give each its own"
    ELIGIBLE_LEADERS_NOT_AVAILABLE = (
        83,
        _R | _M,
        ("no replica in sync is up; start one, or allow an unclean election and lose records"),
    )
    ELECTION_NOT_NEEDED = 84, _R | _M, "the partition has the leader that the election would choose"
    NO_REASSIGNMENT_IN_PROGRESS = 85, 0, "there is nothing to cancel or list for the partition"
    GROUP_SUBSCRIBED_TO_TOPIC = 86, 0, "the group still consumes the topic; its offsets can be deleted when it does not"
    INVALID_RECORD = 87, 0, "the broker's checks refused a record: key, timestamp or sequence; the message says which"
    UNSTABLE_OFFSET_COMMIT = 88, _R, "offsets of an open transaction are pending; try again when it has ended"
    THROTTLING_QUOTA_EXCEEDED = (
        89,
        _R,
        ("more topics or partitions changed than the quota allows; wait as long as the response says"),
    )
    PRODUCER_FENCED = 90, 0, "a newer producer uses the same transactional id; check that only one runs"
    RESOURCE_NOT_FOUND = 91, 0, "no user, group or other thing of that name; check the spelling"
    DUPLICATE_RESOURCE = 92, 0, "the request names the same thing twice"
    UNACCEPTABLE_CREDENTIAL = 93, 0, "too few iterations, or an empty name or password; see the mechanism's limits"
    INCONSISTENT_VOTER_SET = 94, 0, "the controllers disagree about who votes; compare controller.quorum.voters on all"
    INVALID_UPDATE_VERSION = (
        95,
        0,
        "a feature cannot have this level: see which ones the cluster supports; between brokers: a stale replica set",
    )
    FEATURE_UPDATE_FAILED = (
        96,
        0,
        ("not all brokers support the feature's level, or it depends on another; see the message"),
    )
    PRINCIPAL_DESERIALIZATION_FAILURE = (
        97,
        0,
        ("a broker forwarded a user that the controller cannot read; give both the same principal builder"),
    )
    SNAPSHOT_NOT_FOUND = (
        98,
        0,
        ("the controller's snapshot was replaced meanwhile; between controllers only, and it passes"),
    )
    POSITION_OUT_OF_RANGE = 99, 0, "a read beyond the end of a snapshot; between controllers only"
    UNKNOWN_TOPIC_ID = (
        100,
        _R | _M,
        ("the topic was deleted and perhaps created again, or the broker has not heard of it yet; refresh metadata"),
    )
    DUPLICATE_BROKER_REGISTRATION = 101, 0, "another live broker has the same node.id; give each its own"
    BROKER_ID_NOT_REGISTERED = (
        102,
        0,
        ("the controller does not know the broker; check that it started and reached the controller"),
    )
    INCONSISTENT_TOPIC_ID = 103, _R | _M, "a deleted topic's id with a name that lives on; refresh metadata"
    INCONSISTENT_CLUSTER_ID = 104, 0, "a node of another cluster; check addresses and cluster.id in meta.properties"
    TRANSACTIONAL_ID_NOT_FOUND = 105, 0, "no such transactional id, or it expired; check the spelling"
    FETCH_SESSION_TOPIC_ID_ERROR = (
        106,
        _R,
        ("a fetch session began without topic ids and went on with them; fetch with a new session"),
    )
    INELIGIBLE_REPLICA = 107, 0, "a replica that is fenced or shutting down cannot join those in sync; it passes"
    NEW_LEADER_ELECTED = 108, 0, "the change itself made another broker the leader; refresh metadata"
    OFFSET_MOVED_TO_TIERED_STORAGE = (
        109,
        0,
        ("the offset is in remote storage only; between brokers, for followers that catch up"),
    )
    FENCED_MEMBER_EPOCH = 110, 0, "the coordinator has fenced the member; release its partitions and join again"
    UNRELEASED_INSTANCE_ID = 111, 0, "another live member has this group.instance.id; stop it, or give each its own"
    UNSUPPORTED_ASSIGNOR = (
        112,
        0,
        ("the coordinator has no assignor of that name; see group.consumer.assignors of the brokers"),
    )
    STALE_MEMBER_EPOCH = (
        113,
        0,
        ("the member's epoch is behind, mostly because a heartbeat's response is on its way; retry with the new one"),
    )
    MISMATCHED_ENDPOINT_TYPE = (
        114,
        0,
        ("a broker got a request that only controllers handle, or the reverse; check the address"),
    )
    UNSUPPORTED_ENDPOINT_TYPE = 115, 0, "the node knows no endpoints of this type; send the request without it"
    UNKNOWN_CONTROLLER_ID = 116, 0, "no controller has that id; see the quorum's members"
    UNKNOWN_SUBSCRIPTION_ID = 117, 0, "the cluster's telemetry subscription changed; request it again"
    TELEMETRY_TOO_LARGE = 118, 0, "more telemetry than telemetry.max.bytes allows; send fewer metrics"
    INVALID_REGISTRATION = 119, 0, "the controller refused the broker's registration; its log says which part"
    TRANSACTION_ABORTABLE = 120, 0, "the transaction cannot be committed, but a new one can begin; abort it"
    INVALID_RECORD_STATE = (
        121,
        0,
        ("the record's lock timed out or it was acknowledged before; it may be delivered again"),
    )
    SHARE_SESSION_NOT_FOUND = 122, _R, "the broker restarted or dropped the share session; open a new one"
    INVALID_SHARE_SESSION_EPOCH = 123, _R, "a share fetch was lost or came twice; open a new session"
    FENCED_STATE_EPOCH = 124, 0, "the share partition's state has a newer owner; between brokers only"
    INVALID_VOTER_KEY = 125, 0, "the directory id of the request is not this controller's; check its meta.properties"
    DUPLICATE_VOTER = 126, 0, "the controller is a voter already"
    VOTER_NOT_FOUND = 127, 0, "the controller is no voter; see the quorum's members"
    INVALID_REGULAR_EXPRESSION = (
        128,
        0,
        ("the subscription's pattern is not RE2, which brokers use; it lacks backreferences and lookaround"),
    )
    REBOOTSTRAP_REQUIRED = (
        129,
        0,
        ("the client's view is too old to go on with; begin again from the bootstrap addresses"),
    )
    STREAMS_INVALID_TOPOLOGY = 130, 0, "the topology contradicts itself or the topics; see the message"
    STREAMS_INVALID_TOPOLOGY_EPOCH = (
        131,
        0,
        ("the topology's epoch is not the group's; run one version of the application"),
    )
    STREAMS_TOPOLOGY_FENCED = 132, 0, "the group has a newer topology; update this instance of the application"
    SHARE_SESSION_LIMIT_REACHED = (
        133,
        _R,
        ("the broker has as many share sessions as it allows; try again or raise the limit"),
    )
    GROUP_DELETION_FAILED = 134, 0, "the group or a part of it could not be deleted; see the message and try again"
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = (
        135,
        0,
        ("the broker's plugin did not take the description of the topology; see its log"),
    )
    CONTROLLER_ID_NOT_REGISTERED = 136, 0, "no controller has registered with that id; check that it started"


_CODES: Mapping[int, ErrorCode] = {int(code): code for code in ErrorCode}

# Sets of codes, not properties of ErrorCode: a response may carry a code that ErrorCode lacks.
# The topic is unknown to a broker: it does not exist, or the broker has not heard of it yet.
UNKNOWN_TOPIC_CODES: frozenset[int] = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
# Metadata errors of a topic that waiting does not cure.
PERMANENT_TOPIC_CODES: frozenset[int] = frozenset(
    {ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.TOPIC_AUTHORIZATION_FAILED}
)
_TOPIC_CODES = UNKNOWN_TOPIC_CODES | {ErrorCode.INVALID_TOPIC_EXCEPTION}
_SIZE_CODES = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_AUTHORIZATION_CODES = frozenset(code for code in ErrorCode if code.name.endswith("_AUTHORIZATION_FAILED"))


# What Kafka asks for before it carries out an API, by the code that says it was refused ("Authorization Primitives" in
# Kafka's documentation). Of APIs that ask for several things of one kind the usual one is here.
_NEEDED_OPERATIONS: Mapping[int, Mapping[str, str]] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: {
        **dict.fromkeys(("Produce", "AddPartitionsToTxn"), "write"),
        **dict.fromkeys((
            "Fetch", "OffsetCommit", "TxnOffsetCommit", "OffsetDelete", "DescribeProducers", "ShareFetch",
            "ShareAcknowledge", "AlterShareGroupOffsets", "DeleteShareGroupOffsets",
        ), "read"),
        **dict.fromkeys((
            "Metadata", "ListOffsets", "OffsetFetch", "OffsetForLeaderEpoch", "ConsumerGroupHeartbeat",
            "ConsumerGroupDescribe", "ShareGroupHeartbeat", "ShareGroupDescribe", "DescribeShareGroupOffsets",
            "DescribeTopicPartitions",
        ), "describe"),
        **dict.fromkeys(("DeleteTopics", "DeleteRecords"), "delete"),
        "CreateTopics": "create",
        "CreatePartitions": "alter",
        "DescribeConfigs": "describe_configs",
        **dict.fromkeys(("AlterConfigs", "IncrementalAlterConfigs"), "alter_configs"),
    },
    ErrorCode.GROUP_AUTHORIZATION_FAILED: {
        **dict.fromkeys((
            "OffsetCommit", "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "AddOffsetsToTxn", "TxnOffsetCommit",
            "ConsumerGroupHeartbeat", "ShareGroupHeartbeat", "ShareFetch", "ShareAcknowledge",
            "AlterShareGroupOffsets",
        ), "read"),
        **dict.fromkeys((
            "FindCoordinator", "OffsetFetch", "DescribeGroups", "ConsumerGroupDescribe", "ShareGroupDescribe",
            "DescribeShareGroupOffsets",
        ), "describe"),
        **dict.fromkeys(("DeleteGroups", "OffsetDelete", "DeleteShareGroupOffsets"), "delete"),
        "DescribeConfigs": "describe_configs",
        "IncrementalAlterConfigs": "alter_configs",
    },
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: {
        **dict.fromkeys((
            "Produce", "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "TxnOffsetCommit",
        ), "write"),
        **dict.fromkeys(("FindCoordinator", "DescribeTransactions", "ListTransactions"), "describe"),
    },
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: {
        **dict.fromkeys(("Produce", "InitProducerId"), "idempotent_write"),
        **dict.fromkeys((
            "CreateAcls", "DeleteAcls", "AlterReplicaLogDirs", "ElectLeaders", "AlterPartitionReassignments",
            "AlterUserScramCredentials", "UpdateFeatures", "UnregisterBroker", "UnregisterController", "AddRaftVoter",
            "RemoveRaftVoter", "WriteTxnMarkers",
        ), "alter"),
        **dict.fromkeys((
            "DescribeAcls", "DescribeLogDirs", "ListPartitionReassignments", "DescribeUserScramCredentials",
            "DescribeCluster", "DescribeQuorum", "ListGroups",
        ), "describe"),
        **dict.fromkeys(("DescribeConfigs", "DescribeClientQuotas", "ListConfigResources"), "describe_configs"),
        **dict.fromkeys(("AlterConfigs", "IncrementalAlterConfigs", "AlterClientQuotas"), "alter_configs"),
        "CreateTopics": "create",
    },
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: {
        "CreateDelegationToken": "create_tokens", "DescribeDelegationToken": "describe",
    },
}  # fmt: skip


def error_name(code: int) -> str:
    """Return Kafka's name for an error code, or UNRECOGNISED_ERROR_<n> for one that `ErrorCode` lacks."""
    return _CODES[code].name if code in _CODES else f"UNRECOGNISED_ERROR_{code}"


def broker_error(code: int, message: str | None = None, *, remedy: str | None = None, **where: object) -> BrokerError:
    """Return the error for a code in a response, of its class. `message` is the broker's, if it sent one."""
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
    error = cls(text, code=code, remedy=remedy, **where)
    if cls is AuthorizationError:
        error.at(principal=acting_principal.get())
    error.broker_message = message or None
    return error


def timeout_error(
    what: str, cause: KwireError | None = None, *, remedy: str | None = None, **where: object
) -> RequestTimeoutError:
    """Return the error for an operation that took too long. `cause` is the last failure that it met, if any.

    >>> str(timeout_error("no offset in time", ConnectError("refused"), topic="orders"))
    'no offset in time; the last failure was: refused [topic orders]'
    """
    why = f"; the last failure was: {cause}" if cause is not None else ""
    error = RequestTimeoutError(f"{what}{why}", remedy=remedy, **where)
    error.__cause__ = cause
    return error
