"""The admin client: create and delete topics, describe the cluster, administer groups.

    admin        `Admin`, whose methods block the calling thread
    topics       CreateTopics and DeleteTopics            (state machines)
    cluster      DescribeCluster and Metadata
    groups       `Admin.groups`: list, describe, lag, offsets, reset, delete
    operation    a request to the controller, retried until every resource has a result
    coordinated  a request per group to its coordinator, likewise
    results      `Results`: one result or error for each thing that a call names

Imports: consumer, cluster, protocol.
"""

from kwire.admin.admin import Admin
from kwire.admin.cluster import ClusterDescription
from kwire.admin.groups import Group, GroupLag, GroupListing, GroupMember, Groups, Move, PartitionLag
from kwire.admin.results import Results
from kwire.admin.topics import CreatedTopic, NewTopic

__all__ = [
    "Admin",
    "ClusterDescription",
    "CreatedTopic",
    "Group",
    "GroupLag",
    "GroupListing",
    "GroupMember",
    "Groups",
    "Move",
    "NewTopic",
    "PartitionLag",
    "Results",
]
