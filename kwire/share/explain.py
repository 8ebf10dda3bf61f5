"""Why a share consumer gets no records. All current reasons are listed; one that must end first comes first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kwire.cluster.requests import ClusterView
from kwire.errors import KwireError
from kwire.share.fetcher import ShareFetcher
from kwire.share.membership import MemberState, ShareMembership


@dataclass(frozen=True, slots=True)
class ShareReason:
    """One reason: what is missing, and the last failure, if there was one."""

    detail: str
    cause: KwireError | None = None

    def __str__(self) -> str:
        return f"{self.detail}; the last failure was: {self.cause}" if self.cause is not None else self.detail


@dataclass(frozen=True, slots=True)
class ShareExplanation:
    """The reasons why `poll` returns nothing. None: the brokers have no available records, or a response is due."""

    group: str
    state: str
    assigned_partitions: int
    reasons: tuple[ShareReason, ...]

    def __str__(self) -> str:
        text = f"share group {self.group}: {self.state}, partitions assigned: {self.assigned_partitions}"
        return "\n".join([text, *(f"  {reason}" for reason in self.reasons)])


def explain(
    membership: ShareMembership, fetcher: ShareFetcher, topics: Sequence[str], now: float, view: ClusterView
) -> ShareExplanation:
    """Return what is missing. On the loop's thread, or while none runs."""
    reasons = [*_of_membership(membership, view), *_of_topics(topics, view)]
    if membership.state is MemberState.STABLE:
        if not fetcher.assigned_count:
            reasons.append(ShareReason("no partition is assigned to this member yet"))
        reasons += [ShareReason(detail, cause) for detail, cause in fetcher.obstacles(now, view)]
    return ShareExplanation(membership.group, membership.state.value, fetcher.assigned_count, tuple(reasons))


def _of_membership(membership: ShareMembership, view: ClusterView) -> list[ShareReason]:
    match membership.state:
        case MemberState.UNSUBSCRIBED:
            return [ShareReason("nothing is subscribed")]
        case MemberState.FATAL:
            return [ShareReason("the coordinator refuses this member", membership.error)]
        case MemberState.STALE:
            return [ShareReason("the consumer left the group, as it did not poll for max_poll_interval_ms: poll again")]
        case MemberState.LEAVING:
            return [ShareReason("the consumer leaves the group", membership.last_error)]
        case MemberState.JOINING:
            return [ShareReason("the coordinator has not let the member join yet", membership.last_error or
                    view.connection_error)]  # fmt: skip
        case _ if membership.last_error is not None:
            return [ShareReason("the last heartbeat failed", membership.last_error)]
    return []


def _of_topics(topics: Sequence[str], view: ClusterView) -> list[ShareReason]:
    known = view.snapshot.topics
    if not view.snapshot.brokers:
        return [ShareReason("no broker has been reached", view.connection_error)]
    return [
        ShareReason(f"there is no topic {topic!r} that this client may see")
        for topic in topics
        if topic not in known or not known[topic].partitions
    ]
