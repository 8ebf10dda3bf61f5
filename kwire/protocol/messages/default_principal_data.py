"""DefaultPrincipalData: the principal in an Envelope request, behind two bytes of its version.

v0   flexible (KIP-590)
"""

from kwire.protocol.fields import boolean, string
from kwire.protocol.schema import Message


class DefaultPrincipalData(Message, versions=(0, 0), flexible=0):
    type: string
    name: string
    token_authenticated: boolean
