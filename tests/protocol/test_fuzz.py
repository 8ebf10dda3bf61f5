"""tools/fuzz_protocol for a second with fixed seeds, and that it finds deliberate bugs."""

import pytest
from checks import fuzz_protocol as fuzzing

from kwire.protocol import Message, diagnose
from kwire.protocol.schema import BytesLike

CASES = 3000
DECODE = Message.decode.__func__  # type: ignore[attr-defined]


@pytest.mark.slow
def test_broken_messages_are_read_or_refused() -> None:
    readable = sum(fuzzing.check(seed) for seed in range(CASES))
    assert 0.05 < readable / CASES < 0.6, "broken, but not beyond all reading"


def test_a_seed_is_a_case() -> None:
    first, second = fuzzing.case_of(7), fuzzing.case_of(7)
    assert (first.name, first.data) == (second.name, second.data)
    assert len({fuzzing.case_of(seed).data for seed in range(100)}) > 90


def lenient(cls: type[Message], data: BytesLike, version: int, start: int = 0) -> Message:
    return diagnose.decode_prefix(cls, bytes(data), version, start)[0]  # type: ignore[no-any-return]


def careless(cls: type[Message], data: BytesLike, version: int, start: int = 0) -> Message:
    if len(data) % 7 == 3:
        raise IndexError("index out of range")
    return DECODE(cls, data, version, start)  # type: ignore[no-any-return]


def slow(cls: type[Message], data: BytesLike, version: int, start: int = 0) -> Message:
    if len(data) % 7 == 3:
        sum(range(5 * 10**6))
    return DECODE(cls, data, version, start)  # type: ignore[no-any-return]


@pytest.mark.slow
@pytest.mark.parametrize("decode", [lenient, careless, slow])
def test_a_decoder_with_a_fault_is_found(decode: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Message, "decode", classmethod(decode))  # type: ignore[arg-type]
    monkeypatch.setattr(fuzzing, "SECONDS_MAX", 0.02)  # so that being slow is quickly done
    with pytest.raises(fuzzing.BrokenRuleError, match="seed"):
        list(map(fuzzing.check, range(CASES)))


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzzing.main(["--seed", "12"]) == 0
    assert capsys.readouterr().out in ("readable\n", "refused\n")
    assert fuzzing.main(["0.002"]) == 0
    assert "cases from seed" in capsys.readouterr().out
