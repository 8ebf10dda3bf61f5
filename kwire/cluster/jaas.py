"""Lines of JAAS, such as `...PlainLoginModule required username="u" password="p";`. No error shows a value.

Read as Java's client reads them: texts in either kind of quotes with the escapes of a StreamTokenizer, comments, the
control flag in any case. More is accepted where it can mean one thing only: a bare value of any characters, and no
semicolon at the end.
"""

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
# White space, the commas that Java passes over, and comments. A single slash begins one, too.
_SPACE = r"(?:[\s,]|/\*.*?\*/|/(?!\*)[^\r\n]*+)*+"
_QUOTED = r'"(?:[^"\\\r\n]|\\[^\r\n])*"|' + r"'(?:[^'\\\r\n]|\\[^\r\n])*'"
_HEAD = re.compile(
    rf"{_SPACE}([\w.$-]+|{_QUOTED}){_SPACE}(?i:required|requisite|sufficient|optional)\b(?![^\s,;/])", re.DOTALL
)
_OPTION = re.compile(rf"{_SPACE}([\w.$-]+|{_QUOTED}){_SPACE}={_SPACE}({_QUOTED}|[^\s;,\"']+)", re.DOTALL)
_END = re.compile(rf"{_SPACE}(?:;{_SPACE})?", re.DOTALL)
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def jaas_options(text: str, mechanism: str, prefix: str = "") -> dict[str, str]:
    """Return the options in a JAAS line, whose login module must be that of the mechanism."""
    head = _HEAD.match(text)
    module = _value(head[1]).rpartition(".")[2] if head else ""
    if head is None or mechanism not in _LOGIN_MODULES.get(module, ()):
        fitting = next(name for name, fits in _LOGIN_MODULES.items() if mechanism in fits)
        raise ConfigurationError(
            f"option {prefix}sasl.jaas.config does not fit the mechanism {mechanism}",
            remedy=f'it should look like `{fitting} required name="..." name="...";`',
        )
    options: dict[str, str] = {}
    at = head.end()
    while option := _OPTION.match(text, at):
        options[_value(option[1])] = _value(option[2])
        at = option.end()
    if not _END.fullmatch(text, at):
        raise ConfigurationError(
            f"option {prefix}sasl.jaas.config cannot be read on from character {at + 1} of {len(text)}",
            remedy='write one login module, name="value" pairs and a semicolon; in a value write '
            r"\" for a quotation mark and \\ for a backslash",
        )
    return options


def _value(token: str) -> str:
    """Return what a token means; only quoted ones have escapes."""
    if token[0] not in "\"'":
        return token

    def replace(match: re.Match[str]) -> str:
        escaped = match[1]
        return chr(int(escaped, 8)) if escaped[0] in "01234567" else _ESCAPED.get(escaped, escaped)

    return _ESCAPE.sub(replace, token[1:-1])


def parse_jaas(text: str, mechanism: str, prefix: str = "") -> tuple[str, str]:
    """Return user name and password in a line."""
    values = jaas_options(text, mechanism, prefix)
    if "username" not in values or "password" not in values:
        raise ConfigurationError(
            f"option {prefix}sasl.jaas.config has no username or no password",
            remedy='it should end with username="..." password="...";',
        )
    return values["username"], values["password"]
