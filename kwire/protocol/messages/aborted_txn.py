"""AbortedTxn: an entry of a log segment's index of aborted transactions (.txnindex), behind two bytes of its version.

v0   (KIP-98)
"""

from kwire.protocol.fields import int64
from kwire.protocol.schema import Message


class AbortedTxn(Message, versions=(0, 0), flexible=None):
    producer_id: int64
    first_offset: int64
    last_offset: int64
    last_stable_offset: int64
