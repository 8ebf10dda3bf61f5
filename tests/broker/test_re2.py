"""RE2's regular expressions: matches of whole names, rejected patterns, linear time, and RE2/J on random patterns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from brokers.jars import fetch_jars

from kwire.broker.re2 import Re2, Re2Error
from tests.java_program import JavaProgram


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("", [""], ["a"]),
        ("abc", ["abc"], ["abcd", "ab", "xabc"]),
        ("a.c", ["abc", "a.c"], ["ac", "a\nc"]),
        ("(?s)a.c", ["a\nc"], []),
        ("a*", ["", "aaa"], ["b"]),
        ("a+?b??", ["a", "aab"], ["", "abb"]),
        ("a{2}", ["aa"], ["a", "aaa"]),
        ("a{2,}", ["aa", "aaaa"], ["a"]),
        ("a{1,2}", ["a", "aa"], ["", "aaa"]),
        ("a{,2}", ["a{,2}"], ["", "aa"]),
        ("a|bc|", ["a", "bc", ""], ["b"]),
        ("(ab)+", ["ab", "abab"], ["aba"]),
        ("(?:a|b)(?P<name>c)(?<other>d)", ["acd", "bcd"], ["cd"]),
        ("[a-c]", ["a", "c"], ["d", "-"]),
        ("[^a-c]", ["d", "\n"], ["a"]),
        ("[]a]", ["]", "a"], ["b"]),
        ("[^]a]", ["b"], ["]", "a"]),
        ("[a-]", ["a", "-"], ["b"]),
        (r"[\w.-]+", ["a-b.c_1"], ["a b"]),
        (r"\d\D\s\S\w\W", ["1a xy!"], ["11 xy!"]),
        ("[[:alpha:]]+[[:^digit:]]", ["ab", "ab."], ["a1"]),
        (r"\pL\p{Lu}\P{Nd}\p{^L}", ["aBc1"], ["abc1", "aB11"]),
        (r"\p{Greek}", [], ["a", "1"]),
        (r"\p{Latin}+", ["aZ"], ["1"]),
        (r"\Qa.b*\E+", ["a.b*", "a.b**"], ["axb"]),
        (r"\x41\x{42}\103\.\n", ["ABC.\n"], ["ABCx\n"]),
        ("(?i)aBc[x-z]", ["AbCY", "abcy"], ["abcw"]),
        ("a(?i)b(?-i)c(?i:d)e", ["aBcDe", "abcde"], ["ABcde", "aBCde", "abcdE"]),
        ("^a$", ["a"], ["aa"]),
        (r"\Aa\z", ["a"], ["a\n"]),
        (r"(?m)a$\n^b", ["a\nb"], ["ab"]),
        (r"a\b.", ["a-"], ["ab"]),
        (r"\bab\b\B", [], ["ab"]),
        (r"a\Bb", ["ab"], []),
        ("a^b", [], ["ab", "a^b"]),
        ("(a*)*b", ["aaab", "b"], ["aaa"]),
    ],
)
def test_whole_names_match(pattern: str, matching: list[str], others: list[str]) -> None:
    compiled = Re2(pattern)
    assert [text for text in matching if not compiled.matches(text)] == []
    assert [text for text in others if compiled.matches(text)] == []


@pytest.mark.parametrize(
    "pattern",
    [
        "(?=a)", "(?!a)", "(?<=a)", "(?<!a)", "(?>a)", "(?#c)", r"(a)\1", "(?P=n)", r"\Z", r"\k<n>", r"\q", r"\8",
        "a**", "a++", "a?+", "a{2}{3}", "*a", "|*", "(?i)*", "a{1}{2}", "(", ")", "a)", "(a",
        "[", "[]", "[z-a]", "[[:nothing:]]", "[a", r"[\8]", "a{1001}", "a{2,1}", "(?P<n>a)(?P<n>b)", "(?P<n", "(?P<>a)",
        "(?z)a", "(?i", "(?-)a", "\\", r"\p{Nothing}", r"\p", r"\x{110000}", r"\xZ", "(" * 300 + ")" * 300,
        "((a{100}){100}){100}",
    ],
)  # fmt: skip
def test_what_re2_does_not_know_is_rejected(pattern: str) -> None:
    with pytest.raises(Re2Error):
        Re2(pattern)


def test_time_is_linear_where_backtracking_is_exponential() -> None:
    assert not Re2("(a+)+(a|aa)*$").matches("a" * 249 + "b")


ALPHABET = "aab.-_1A"


def random_pattern(random: Random, depth: int = 3) -> str:
    """Return a pattern that is usually valid."""
    kind = random.randrange(11) if depth else random.randrange(4)
    if kind < 2:
        return random.choice(ALPHABET)
    if kind == 2:
        atoms = [r"\d", r"\w", r"\W", r"\S", ".", r"\.", r"\b", r"\B", "^", "$", r"\pL", r"\p{Lu}", r"\PN", r"\x61"]
        return random.choice([*atoms, "[[:alpha:]]", "[[:punct:]]", r"\Qa.b\E", "}", "]"])
    if kind == 3:
        inside = "".join(random.choice(["a", "b", "1", "a-c", "0-9", r"\d", ".", "_", "[:upper:]"]) for _ in range(3))
        return f"[{random.choice(['', '^'])}{inside}]"
    inner = random_pattern(random, depth - 1)
    if kind == 4:
        return f"({inner}){random.choice(['*', '+', '?', '*?', '{2}', '{1,}', '{0,2}'])}"
    if kind == 5:
        return inner + random.choice(["*", "+", "?", "{2}", "**", "{2,1}", "+?"])
    if kind == 6:
        return f"{random.choice(['(?i)', '(?:', '(?i:', '(?P<n>', '(?s)', '(?-i:', '(?='])}{inner}" + random.choice(
            ["", ")"]
        )
    if kind == 7:
        return f"{inner}|{random_pattern(random, depth - 1)}"
    return inner + random_pattern(random, depth - 1)


@pytest.fixture(scope="module")
def oracle() -> Iterator[JavaProgram]:
    """Return RE2/J 1.8 in a Java program."""
    program = JavaProgram(fetch_jars("kafka", "4.3.1"), Path(__file__).with_name("AssignorOracle.java"))
    yield program
    program.close()


@pytest.mark.live
def test_random_patterns_match_as_in_re2j(oracle: JavaProgram) -> None:
    random = Random(5)
    cases = [
        (random_pattern(random), ["".join(random.choices(ALPHABET, k=random.randint(0, 6))) for _ in range(8)])
        for _ in range(10_000)
    ]
    lines = oracle.ask([json.dumps({"pattern": pattern, "texts": texts}) for pattern, texts in cases])
    valid = 0
    for (pattern, texts), line in zip(cases, lines, strict=True):
        theirs = json.loads(line)
        if isinstance(theirs, str):
            with pytest.raises(Re2Error):
                Re2(pattern)
        else:
            assert [Re2(pattern).matches(text) for text in texts] == theirs, (pattern, texts)
            valid += 1
    assert valid > 5_000
