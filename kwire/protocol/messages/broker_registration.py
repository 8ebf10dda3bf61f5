"""BrokerRegistration (key 62): a broker announces itself to the controller.

v0   flexible (KIP-631)
v1   brokers that come from ZooKeeper (KIP-866)
v2   log directories (KIP-858)
v3   the broker's epoch before a clean shutdown (KIP-966)
v4   features whose lowest version is 0 are listed (KAFKA-17011)
"""

from kwire.protocol.fields import boolean, int16, int32, int64, string, uint16, uuid
from kwire.protocol.schema import Request, Response, Struct, since


class BrokerRegistrationRequest(Request["BrokerRegistrationResponse"], key=62, versions=(0, 4), flexible=0):
    class Listener(Struct):
        name: string
        host: string
        port: uint16
        security_protocol: int16

    class Feature(Struct):
        name: string
        min_supported_version: int16
        max_supported_version: int16

    broker_id: int32
    cluster_id: string
    incarnation_id: uuid
    listeners: list[Listener]
    features: list[Feature]
    rack: string | None
    is_migrating_zk_broker: boolean = since(1, default=False)
    log_dirs: list[uuid] = since(2, default=[], ignorable=True)
    previous_broker_epoch: int64 = since(3, default=-1, ignorable=True)


class BrokerRegistrationResponse(Response, key=62, versions=(0, 4), flexible=0):
    throttle_time_ms: int32 = 0
    error_code: int16
    broker_epoch: int64 = -1
