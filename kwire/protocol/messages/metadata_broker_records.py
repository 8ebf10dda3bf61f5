"""Brokers and controllers in the metadata log (__cluster_metadata): who they are, and who is fenced.

A record has no key; its value stands behind a frame, its type (API_KEY here) and its version, see `internal_topics`.

v0   flexible (KIP-631); controllers register too (KIP-919)
v1   of RegisterBroker and BrokerRegistrationChange: controlled shutdown (KIP-841)
v2   of RegisterBroker: ZooKeeper's brokers on their way to KRaft (KIP-866);
     of BrokerRegistrationChange: log directories (KIP-858)
v3   of RegisterBroker: log directories (KIP-858); of BrokerRegistrationChange: cordoned ones (KIP-1066)
v4   of RegisterBroker: cordoned log directories (KIP-1066)
"""

from kwire.protocol.fields import boolean, int8, int16, int32, int64, string, uint16, uuid
from kwire.protocol.schema import Message, Struct, since, tagged


class Endpoint(Struct):
    name: string
    host: string
    port: uint16
    security_protocol: int16


class Feature(Struct):
    name: string
    min_supported_version: int16
    max_supported_version: int16


class RegisterBrokerRecord(Message, key=0, versions=(0, 4), flexible=0):
    broker_id: int32
    is_migrating_zk_broker: boolean = since(2, default=False)
    incarnation_id: uuid
    broker_epoch: int64
    end_points: list[Endpoint]
    features: list[Feature]
    rack: string | None
    fenced: boolean = True
    in_controlled_shutdown: boolean = since(1, default=False)
    log_dirs: list[uuid] = tagged(0, since=3, default=[])
    cordoned_log_dirs: list[uuid] | None = tagged(1, since=4, default=None)


class UnregisterBrokerRecord(Message, key=1, versions=(0, 0), flexible=0):
    broker_id: int32
    broker_epoch: int64


class FenceBrokerRecord(Message, key=7, versions=(0, 0), flexible=0):
    id: int32
    epoch: int64


class UnfenceBrokerRecord(Message, key=8, versions=(0, 0), flexible=0):
    id: int32
    epoch: int64


class BrokerRegistrationChangeRecord(Message, key=17, versions=(0, 3), flexible=0):
    """Of `fenced` and `in_controlled_shutdown` 1 is yes, -1 no, and 0 as before."""

    broker_id: int32
    broker_epoch: int64
    fenced: int8 = tagged(0, since=0, default=0)
    in_controlled_shutdown: int8 = tagged(1, since=1, default=0)
    log_dirs: list[uuid] = tagged(2, since=2, default=[])
    cordoned_log_dirs: list[uuid] | None = tagged(3, since=3, default=None)


class RegisterControllerRecord(Message, key=27, versions=(0, 0), flexible=0):
    controller_id: int32
    incarnation_id: uuid
    zk_migration_ready: boolean
    end_points: list[Endpoint]
    features: list[Feature]


class UnregisterControllerRecord(Message, key=29, versions=(0, 0), flexible=0):
    controller_id: int32
