"""Who may do what and how much, in the metadata log (__cluster_metadata): rules, quotas, passwords and tokens.

`metadata_broker_records` says how a record stands in the log. The stored keys of passwords and the ids of tokens are
secrets, and stand in the log as they are.

v0   flexible; quotas (KIP-546), rules (KIP-801), passwords (KIP-900) and delegation tokens (KIP-48)
"""

from kwire.protocol.fields import boolean, bytes_, float64, int8, int32, int64, string, uuid
from kwire.protocol.schema import Message, Struct


class DelegationTokenRecord(Message, key=10, versions=(0, 0), flexible=0):
    owner: string
    requester: string
    renewers: list[string]
    issue_timestamp: int64
    max_timestamp: int64
    expiration_timestamp: int64
    token_id: string


class UserScramCredentialRecord(Message, key=11, versions=(0, 0), flexible=0):
    name: string
    mechanism: int8
    salt: bytes_
    stored_key: bytes_
    server_key: bytes_
    iterations: int32


class ClientQuotaRecord(Message, key=14, versions=(0, 0), flexible=0):
    class Entity(Struct):
        entity_type: string
        entity_name: string | None

    entity: list[Entity]
    key: string
    value: float64
    remove: boolean


class AccessControlEntryRecord(Message, key=18, versions=(0, 0), flexible=0):
    id: uuid
    resource_type: int8
    resource_name: string
    pattern_type: int8
    principal: string
    host: string
    operation: int8
    permission_type: int8


class RemoveAccessControlEntryRecord(Message, key=19, versions=(0, 0), flexible=0):
    id: uuid


class RemoveUserScramCredentialRecord(Message, key=22, versions=(0, 0), flexible=0):
    name: string
    mechanism: int8


class RemoveDelegationTokenRecord(Message, key=26, versions=(0, 0), flexible=0):
    token_id: string
