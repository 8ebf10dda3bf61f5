"""SCRAM users: list them, set and delete their passwords.

DescribeUserScramCredentials and AlterUserScramCredentials (KIP-554, Kafka 2.7). Passwords leave this process salted and
hashed only, and no repr shows them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kwire.admin.noun import Noun, check_code, checked_names, error_or_none, one_of
from kwire.admin.results import Results
from kwire.cluster import ToAny
from kwire.cluster.waiting import blocking
from kwire.errors import ConfigurationError, ErrorCode, KwireError
from kwire.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from kwire.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from kwire.session.sasl.scram import salted_password

_MECHANISMS: Mapping[str, int] = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
_NAMES = {number: name for name, number in _MECHANISMS.items()}
_HASHES = {1: "sha256", 2: "sha512"}
_SALT_BYTES = 24
_LEAST_ITERATIONS, _MOST_ITERATIONS = 4_096, 16_384  # of brokers


@dataclass(frozen=True, slots=True)
class ScramUser:
    """A user and the iterations of each mechanism for which there is a password: `{"SCRAM-SHA-512": 8192}`."""

    name: str
    iterations: Mapping[str, int]


class UserAdmin(Noun):
    """What both faces share."""

    async def _list(
        self, users: Iterable[str] | None = None, *, timeout: float | None = None
    ) -> Results[str, ScramUser]:
        """Return all users that have SCRAM passwords, or these. RESOURCE_NOT_FOUND is the error of one without."""
        names = None if users is None else checked_names("users", users)
        if names is not None and not names:
            return Results({})
        user = DescribeUserScramCredentialsRequest.User
        # An empty list means all. So does null, but for it Kafka's brokers send no response to who may not ask.
        wanted = [user(name=one) for one in names or ()]
        request = DescribeUserScramCredentialsRequest(users=wanted)
        response: DescribeUserScramCredentialsResponse = await self._ask(
            ToAny(), DescribeUserScramCredentialsRequest, lambda version: request, self._deadline(timeout)
        )
        check_code(response.error_code, "DescribeUserScramCredentials", response.error_message)
        found: dict[str, ScramUser | KwireError] = {}
        for result in sorted(response.results, key=lambda one: one.user):
            if result.error_code == ErrorCode.RESOURCE_NOT_FOUND and names is None:
                continue
            error = error_or_none(
                result.error_code, "DescribeUserScramCredentials", result.error_message, resource=f"user {result.user}"
            )
            infos = result.credential_infos
            iterations = {_NAMES.get(one.mechanism, str(one.mechanism)): one.iterations for one in infos}
            found[result.user] = error or ScramUser(result.user, iterations)
        return Results(found)

    async def _set_scram(
        self,
        user: str,
        password: str,
        *,
        mechanism: str = "SCRAM-SHA-512",
        iterations: int = 8_192,
        timeout: float | None = None,
    ) -> None:
        """Set the password of a user for one mechanism. It is salted here and does not leave this process."""
        number = one_of("mechanism", mechanism, _MECHANISMS)
        checked_names("user", [user])
        if not isinstance(password, str) or not password:
            raise ConfigurationError("password is empty or no str", remedy="give a str that is not empty")
        if type(iterations) is not int or not _LEAST_ITERATIONS <= iterations <= _MOST_ITERATIONS:
            raise ConfigurationError(
                f"iterations is {iterations!r}", remedy=f"give a number from {_LEAST_ITERATIONS} to {_MOST_ITERATIONS}"
            )
        salt = os.urandom(_SALT_BYTES)
        upsertion = AlterUserScramCredentialsRequest.Upsertion(
            name=user,
            mechanism=number,
            iterations=iterations,
            salt=salt,
            salted_password=salted_password(_HASHES[number], password, salt, iterations),
        )
        await self._alter(user, AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion]), timeout)

    async def _delete_scram(self, user: str, *, mechanism: str = "SCRAM-SHA-512", timeout: float | None = None) -> None:
        """Delete the password of a user for one mechanism."""
        number = one_of("mechanism", mechanism, _MECHANISMS)
        checked_names("user", [user])
        deletion = AlterUserScramCredentialsRequest.Deletion(name=user, mechanism=number)
        await self._alter(user, AlterUserScramCredentialsRequest(deletions=[deletion], upsertions=[]), timeout)

    async def _alter(self, user: str, request: AlterUserScramCredentialsRequest, timeout: float | None) -> None:
        def parse(response: AlterUserScramCredentialsResponse) -> None:
            for result in response.results:
                error = error_or_none(
                    result.error_code, "AlterUserScramCredentials", result.error_message, resource=f"user {user}"
                )
                if error is not None:
                    raise error

        await self._controlled(
            AlterUserScramCredentialsRequest, lambda version: request, parse, self._deadline(timeout)
        )


class Users(UserAdmin):
    """`Admin.users`, for threads."""

    set_scram = blocking(UserAdmin._set_scram)
    delete_scram = blocking(UserAdmin._delete_scram)
    list = blocking(UserAdmin._list)
