"""`kwire error 74`: what an error code means, whether to retry, and its usual cause."""

from __future__ import annotations

from typing import Any

import click

from kwire.cli.arguments import complete_error
from kwire.cli.output import Output, output_options
from kwire.errors import ErrorCode, broker_error, error_name
from kwire.option_checks import did_you_mean


@click.command()
@click.argument("codes", metavar="[CODE|NAME]...", nargs=-1, shell_complete=complete_error)
@output_options
def command(codes: tuple[str, ...], output: Output) -> None:
    """What a broker's error code means.

    CODE is a number, NAME is Kafka's name or a part of it. Without arguments, all codes are listed.

    \b
        kwire error 74
        kwire error NOT_LEADER_OR_FOLLOWER
        kwire error leader
    """
    found: dict[ErrorCode, None] = {}
    for text in codes:
        found.update(dict.fromkeys(matching(text)))
    chosen = list(found) if codes else list(ErrorCode)
    if not output.is_table:
        for code in chosen:
            output.json(as_json(code))
    elif len(chosen) == 1:
        _describe(chosen[0], output)
    else:
        rows = ([int(code), code.name, "yes" if code.is_retriable else "", code.usual_cause] for code in chosen)
        output.table(["code", "name", "retry", "usual cause"], rows, right=["code"], whole=["name"])


# An option-like argument is a number here: `kwire error -1`.
command.context_settings["ignore_unknown_options"] = True


def matching(text: str) -> list[ErrorCode]:
    """Return the codes of a number, a name or a part of a name. Raises UsageError if there is none."""
    try:
        return [ErrorCode.__members__[error_name(int(text))]]
    except (KeyError, ValueError):
        pass
    if text.lstrip("-").isdigit():
        last = max(ErrorCode)
        raise click.UsageError(f"{text} is not an error code of Kafka 4.4 (-1 to {int(last)})")
    wanted = text.upper().replace("-", "_").replace(" ", "_").removesuffix("_EXCEPTION")
    names = [code.name for code in ErrorCode]
    if wanted in names:
        return [ErrorCode[wanted]]
    # Java's logs say NotLeaderOrFollowerException.
    squeezed = wanted.replace("_", "").removesuffix("EXCEPTION")
    exact = [code for code in ErrorCode if code.name.replace("_", "").removesuffix("EXCEPTION") == squeezed]
    partial = [code for code in ErrorCode if squeezed in code.name.replace("_", "")]
    if squeezed and (exact or partial):
        return exact or partial
    hint = did_you_mean(wanted, names, max_names=3)
    raise click.UsageError(f"there is no error {text}" + (f"; {hint}" if hint else ""))


def as_json(code: ErrorCode) -> dict[str, Any]:
    return {
        "code": int(code),
        "name": code.name,
        "retriable": code.is_retriable,
        "invalidates_metadata": code.invalidates_metadata,
        "usual_cause": code.usual_cause or None,
        "class": type(broker_error(code)).__name__,
    }


def _describe(code: ErrorCode, output: Output) -> None:
    details = [
        ("code", f"{int(code)} {code.name}"),
        ("retriable", "yes: the same request may succeed later" if code.is_retriable else "no"),
        ("metadata", "refresh it before trying again" if code.invalidates_metadata else "stays valid"),
        ("raises", f"kwire.errors.{type(broker_error(code)).__name__}"),
        ("usual cause", code.usual_cause),
    ]
    for name, text in details:
        if text:
            output.text(f"{name + ':':<13}{text}")
