"""The admin client. A noun of Kafka is an attribute of `Admin` and a file here; a verb is a method.

    admin     `Admin`, whose methods block the calling thread
    topics    `Admin.topics`: create, delete, list, describe, add_partitions
    configs   `Admin.configs`: get, set, append, subtract, reset
    groups    `Admin.groups`: list, describe, lag, offsets, reset, delete
    cluster   `Admin.cluster`: describe, features, quorum, explain
    noun      what all nouns stand on: deadlines, requests to those who are responsible
    metadata  Metadata requests that create no topic
    operation a request to the controller, retried until every resource has a result
    routed    a request per thing to its broker, retried until each has a result
    results   `Results`: one result or error for each thing that a call names

Imports: consumer, cluster, protocol.
"""

from kwire.admin.admin import Admin
from kwire.admin.cluster import ClusterDescription, Feature, Quorum
from kwire.admin.configs import ConfigEntry, ConfigResource
from kwire.admin.groups import Group, GroupLag, GroupListing, GroupMember, Groups, Move, PartitionLag
from kwire.admin.results import Results
from kwire.admin.topics import CreatedTopic, NewTopic, TopicDescription

__all__ = [
    "Admin",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigResource",
    "CreatedTopic",
    "Feature",
    "Group",
    "GroupLag",
    "GroupListing",
    "GroupMember",
    "Groups",
    "Move",
    "NewTopic",
    "PartitionLag",
    "Quorum",
    "Results",
    "TopicDescription",
]
