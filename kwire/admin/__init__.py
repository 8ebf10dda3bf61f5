"""The admin client: create and delete topics, describe the cluster.

    admin      `Admin`, whose methods block the calling thread
    topics     CreateTopics and DeleteTopics            (state machines)
    cluster    DescribeCluster and Metadata
    operation  a request to the controller, retried until every resource has a result

Imports: cluster, protocol.
"""

from kwire.admin.admin import Admin
from kwire.admin.cluster import ClusterDescription
from kwire.admin.topics import CreatedTopic, NewTopic

__all__ = ["Admin", "ClusterDescription", "CreatedTopic", "NewTopic"]
