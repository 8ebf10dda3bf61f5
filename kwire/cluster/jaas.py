"""Lines of JAAS, such as `...PlainLoginModule required username="u" password="p";`. No error shows a value."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kwire.errors import ConfigurationError

_LOGIN_MODULES: Mapping[str, tuple[str, ...]] = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "OAuthBearerLoginModule": ("OAUTHBEARER",),
    "Krb5LoginModule": ("GSSAPI",),
    "IAMLoginModule": ("AWS_MSK_IAM",),
}


def jaas_options(text: str, mechanism: str, prefix: str = "") -> dict[str, str]:
    """Return the options in a JAAS line, whose login module must be that of the mechanism."""
    head = re.match(r"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b", text)
    module = head[1].rpartition(".")[2] if head else ""
    if head is None or mechanism not in _LOGIN_MODULES.get(module, ()):
        fitting = next(name for name, fits in _LOGIN_MODULES.items() if mechanism in fits)
        raise ConfigurationError(
            f"option {prefix}sasl.jaas.config does not fit the mechanism {mechanism}",
            remedy=f'it should look like `{fitting} required name="..." name="...";`',
        )
    entries = re.findall(r'([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))', text[head.end() :], re.DOTALL)
    return {key: re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL) or bare for key, quoted, bare in entries}


def parse_jaas(text: str, mechanism: str, prefix: str = "") -> tuple[str, str]:
    """Return user name and password in a line."""
    values = jaas_options(text, mechanism, prefix)
    if "username" not in values or "password" not in values:
        raise ConfigurationError(
            f"option {prefix}sasl.jaas.config has no username or no password",
            remedy='it should end with username="..." password="...";',
        )
    return values["username"], values["password"]
