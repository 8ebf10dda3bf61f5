"""Asking a cluster to be different, and what it is: a file per noun.

    admin      the face
    topics     create and delete them      (state machines)
    cluster    what it consists of
    operation  a request to the controller that is repeated until it is settled

Imports: cluster, protocol.
"""

from kwire.admin.admin import Admin
from kwire.admin.cluster import ClusterDescription
from kwire.admin.topics import CreatedTopic, NewTopic

__all__ = ["Admin", "ClusterDescription", "CreatedTopic", "NewTopic"]
