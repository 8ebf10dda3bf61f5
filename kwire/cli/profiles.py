"""Profiles: the options of a connection under a name, in ~/.config/kwire/config.toml.

    [prod]
    bootstrap = "broker1:9093,broker2:9093"
    cafile = "~/prod-ca.pem"
    username = "alice"
    password_file = "~/.prod-password"

    [prod.options]
    request_timeout_ms = 60000

A key is a connection option with underscores; `options` are those of -X. Options on the command line come first. A
profile named there comes before the variables of the environment, one named by KWIRE_PROFILE after them.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

from kwire.errors import ConfigurationError
from kwire.option_checks import did_you_mean

# Key -> its type. A password has no key: files of settings are copied and shown.
KEYS: dict[str, type] = {
    "bootstrap": str, "timeout": float, "tls": bool, "cafile": str, "cert": str, "key": str, "insecure": bool,
    "sasl_mechanism": str, "username": str, "password_file": str, "command_config": str, "options": dict,
}  # fmt: skip
_FILES = frozenset({"cafile", "cert", "key", "password_file", "command_config"})


def profile_file() -> Path:
    """Return where the profiles are: kwire/config.toml below XDG_CONFIG_HOME, or else below ~/.config."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "kwire" / "config.toml"


def read_profile(name: str) -> dict[str, Any]:
    """Return the options of a profile by name. Raises ConfigurationError; paths begin at the file's folder."""
    path = profile_file()
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigurationError(
            f"there is no profile {name}: {path} does not exist", remedy=f'write [{name}] bootstrap = "HOST:PORT" there'
        ) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(
            f"{path} cannot be read: {error}", remedy="write TOML, a table for each profile"
        ) from None
    profile = found.get(name)
    if not isinstance(profile, dict):
        remedy = did_you_mean(name, found) or f"it has {', '.join(found) or 'none'}"
        raise ConfigurationError(f"{path} has no profile {name}", remedy=remedy)
    return {key: _checked(path, name, key, value) for key, value in profile.items()}


def _checked(path: Path, profile: str, key: str, value: Any) -> Any:
    where = f"{path}: [{profile}] {key}"
    if key not in KEYS:
        if key == "password":
            raise ConfigurationError(f"{where} is not read", remedy="give password_file, or set KWIRE_PASSWORD")
        raise ConfigurationError(
            f"{where} is no option of a connection", remedy=did_you_mean(key, KEYS) or f"options are {', '.join(KEYS)}"
        )
    wanted = KEYS[key]
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, wanted):
        name = {str: "a text", float: "a number", bool: "true or false", dict: "a table"}[wanted]
        raise ConfigurationError(f"{where} is {value!r:.60}", remedy=f"give {name}")
    if key in _FILES:
        file = path.parent / Path(str(value)).expanduser()
        if not file.is_file():
            raise ConfigurationError(f"{where}: there is no file {file}")
        return str(file)
    return value
