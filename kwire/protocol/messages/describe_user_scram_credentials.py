"""DescribeUserScramCredentials (key 50): which SCRAM mechanisms users have passwords for. Never the passwords.

v0   flexible (KIP-554)
"""

from kwire.protocol.fields import int8, int16, int32, string
from kwire.protocol.schema import Request, Response, Struct


class DescribeUserScramCredentialsRequest(
    Request["DescribeUserScramCredentialsResponse"], key=50, versions=(0, 0), flexible=0
):
    class User(Struct):
        name: string

    users: list[User] | None


class DescribeUserScramCredentialsResponse(Response, key=50, versions=(0, 0), flexible=0):
    class Result(Struct):
        class CredentialInfo(Struct):
            mechanism: int8
            iterations: int32

        user: string
        error_code: int16
        error_message: string | None
        credential_infos: list[CredentialInfo]

    throttle_time_ms: int32 = 0
    error_code: int16
    error_message: string | None
    results: list[Result]
