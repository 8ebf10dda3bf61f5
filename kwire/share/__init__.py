"""Share groups (KIP-932): records as a queue, given to one consumer at a time, acknowledged one by one.

    share_consumer    `ShareConsumer`: the face for threads; that for asyncio is `aio.share_consumer`
    client            what both faces share: subscribe, poll, acknowledge, commit, close      (callers' threads)
    record            `ShareRecord`: accept, release, reject, renew, `with record:`           (callers' threads)
    acquired          the acquired offsets of one response: decoding, locks, what becomes of each
    acknowledgements  types by offset, and how requests carry them
    buffer            what passes from the loop thread to the callers' threads
    fetcher           what to fetch and to acknowledge at which broker, and when              (loop thread)
    share_session     the epoch of the session with one broker, and what it holds             (loop thread)
    membership        ShareGroupHeartbeat: join, live in and leave the group                  (loop thread)
    processor         `process`: records processed in parallel
    options           `ShareConsumerOptions`
    explain           why there are no records
    metrics           `ShareConsumerMetrics`

The loop thread decodes no records, and fetches none that no poll wants: a lock that runs while nobody works costs a
delivery.

Imports: cluster, consumer, protocol, records.
"""

from kwire.share.acknowledgements import AcknowledgeType
from kwire.share.explain import ShareExplanation, ShareReason
from kwire.share.metrics import ShareConsumerMetrics
from kwire.share.options import ShareConsumerOptions
from kwire.share.record import ShareRecord
from kwire.share.share_consumer import ShareConsumer

__all__ = [
    "AcknowledgeType",
    "ShareConsumer",
    "ShareConsumerMetrics",
    "ShareConsumerOptions",
    "ShareExplanation",
    "ShareReason",
    "ShareRecord",
]
