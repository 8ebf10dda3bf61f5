"""AlterUserScramCredentials (key 51): set or delete SCRAM passwords. They travel salted.

v0   flexible (KIP-554)
"""

from kwire.protocol.fields import bytes_, int8, int16, int32, string
from kwire.protocol.schema import Request, Response, Struct


class AlterUserScramCredentialsRequest(
    Request["AlterUserScramCredentialsResponse"], key=51, versions=(0, 0), flexible=0
):
    class Deletion(Struct):
        name: string
        mechanism: int8

    class Upsertion(Struct):
        name: string
        mechanism: int8
        iterations: int32
        salt: bytes_
        salted_password: bytes_

    deletions: list[Deletion]
    upsertions: list[Upsertion]


class AlterUserScramCredentialsResponse(Response, key=51, versions=(0, 0), flexible=0):
    class Result(Struct):
        user: string
        error_code: int16
        error_message: string | None

    throttle_time_ms: int32 = 0
    results: list[Result]
