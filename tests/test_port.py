"""docs/port.md names calls and options that exist, in kwire and in each of the libraries that it compares."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.admin
import confluent_kafka
import confluent_kafka.admin
import kafka
import kafka.admin
import pytest

import kwire
import kwire.errors
from kwire.cluster import ClientConfig
from kwire.consumer.options import ConsumerOptions
from kwire.option_checks import options_of
from kwire.option_names import FOREIGN, NOT_SUPPORTED, kwire_name, normalized
from kwire.producer.options import ProducerSettings

PAGE = (Path(__file__).parent.parent / "docs" / "port.md").read_text()
Exists = Callable[[str], bool]
ADMIN = kwire.Admin("localhost:1")  # connects at the first call

_CLIENT = {"bootstrap", *options_of(ClientConfig)}
_KAFKA_PYTHON = {*kafka.KafkaProducer.DEFAULT_CONFIG, *kafka.KafkaConsumer.DEFAULT_CONFIG}
_AIOKAFKA = {
    name
    for client in (aiokafka.AIOKafkaProducer, aiokafka.AIOKafkaConsumer)
    for name in inspect.signature(client).parameters
}


def librdkafka_has(name: str) -> bool:
    """Try the option with a value that most are too strict for: only the name is of interest."""
    try:
        confluent_kafka.Consumer({"group.id": "g", "log_level": 0, name: "nonsense"}).close()
    except confluent_kafka.KafkaException as error:
        return "No such configuration property" not in str(error)
    return True


def of(client: type[Any]) -> Exists:
    return lambda name: callable(getattr(client, name, None))


def admin_has(name: str) -> bool:
    noun, _, verb = name.rpartition(".")
    return callable(getattr(getattr(ADMIN, noun) if noun else kwire.Admin, verb, None))


def among(names: set[str] | dict[str, Any]) -> Exists:
    return lambda name: name in names


OPTIONS = librdkafka_has, among(_KAFKA_PYTHON), among(_AIOKAFKA)
SECTIONS: dict[str, tuple[Exists, ...]] = {
    "Calls of the producer": (
        of(kwire.Producer), of(confluent_kafka.Producer), of(kafka.KafkaProducer), of(aiokafka.AIOKafkaProducer),
    ),
    "Calls of the consumer": (
        of(kwire.Consumer), of(confluent_kafka.Consumer), of(kafka.KafkaConsumer), of(aiokafka.AIOKafkaConsumer),
    ),
    "Calls of the administrator": (
        admin_has, of(confluent_kafka.admin.AdminClient), of(kafka.admin.KafkaAdminClient),
        of(aiokafka.admin.AIOKafkaAdminClient),
    ),
    "Java's Admin": (admin_has,),
    "Options of every client": (among(_CLIENT), *OPTIONS),
    "Options of the producer": (among({*options_of(ProducerSettings)}), *OPTIONS),
    "Options of the consumer": (among({*options_of(ConsumerOptions)}), *OPTIONS),
}  # fmt: skip


def rows(section: str) -> Iterator[list[str]]:
    """Yield the cells of a section's table, without its head."""
    (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    for line in re.findall(r"^\| (?:`|- ).*", text, re.MULTILINE):
        yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


@pytest.mark.parametrize("section", SECTIONS)
def test_every_name_exists(section: str) -> None:
    table = list(rows(section))
    assert len(table) > 4
    wrong = [
        (cells[0], cell)
        for cells in table
        for cell, exists in zip(cells, SECTIONS[section], strict=False)
        if cell != "-" and not exists(cell.strip("`"))
    ]
    assert wrong == []


def test_every_option_of_kwire_that_others_have_is_on_the_page() -> None:
    of_page = {cells[0].strip("`") for section in SECTIONS if "Options" in section for cells in rows(section)}
    of_others = {*FOREIGN.values(), *_KAFKA_PYTHON, *_AIOKAFKA}
    declared = {*options_of(ClientConfig), *options_of(ProducerSettings), *options_of(ConsumerOptions)}
    assert "linger_ms" in declared & of_others
    assert (declared & of_others) - of_page == set()


def test_the_page_and_the_hints_of_the_constructors_agree() -> None:
    """An option in a column of another library has the translation that `kwire.option_names` gives."""
    for section in SECTIONS:
        if "Options" in section:
            for own, *others in rows(section):
                own = own.strip("`")
                for other in {cell.strip("`") for cell in others[:3]} - {"-", own}:
                    if own == "-":
                        assert normalized(other) in NOT_SUPPORTED, other
                    else:
                        assert kwire_name(other) == own, other


def test_the_numbers_among_the_defaults_are_those_of_the_code() -> None:
    """confluent-kafka cannot be asked for its defaults."""
    declared = {
        name: one.default
        for each in (ConsumerOptions, ProducerSettings, ClientConfig)  # of two with a name, the producer's
        for name, one in options_of(each).items()
    }
    aiokafkas = {
        name: parameter.default
        for client in (aiokafka.AIOKafkaConsumer, aiokafka.AIOKafkaProducer)
        for name, parameter in inspect.signature(client).parameters.items()
    }
    kafka_pythons = {**kafka.KafkaConsumer.DEFAULT_CONFIG, **kafka.KafkaProducer.DEFAULT_CONFIG}
    names: dict[str, list[str]] = {}
    for section in SECTIONS:
        if "Options" in section:
            for own, *others in rows(section):
                names.setdefault(own.strip("`"), [cell.strip("`") for cell in others])
    compared = 0
    for own, default, _, of_kafka_python, of_aiokafka in rows("Defaults that differ"):
        name = own.split("`")[1]
        _, kafka_python, aiokafkas_name, *_ = names.get(name, ["-"] * 3)
        for cell, code in (
            (default, declared[name]),
            (of_kafka_python, kafka_pythons.get(kafka_python)),
            (of_aiokafka, aiokafkas.get(aiokafkas_name)),
        ):
            if cell.replace(",", "").isdecimal():
                assert int(cell.replace(",", "")) == code, (name, cell)
                compared += 1
    assert compared > 20


@pytest.mark.parametrize(
    ("section", "client"),
    [
        ("Calls of the consumer", kwire.Consumer("localhost:1")),
        ("Calls of the administrator", ADMIN),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_call_of_another_library_says_what_to_use(section: str, client: object) -> None:
    """A producer has no such hook, which would make its `send` slower."""
    missing = {
        name.strip("`") for own, *others in rows(section) for name in others[:3] if own != "-" and name.startswith("`")
    }
    missing = {name for name in missing if not hasattr(type(client), name)}
    assert len(missing) > 8
    for name in missing:
        with pytest.raises(AttributeError, match=f"has no attribute '{name}': ") as caught:
            getattr(client, name)
        if client is ADMIN:
            verb = re.search(r": it is (\S+) here$", str(caught.value))
            assert verb is not None
            assert admin_has(verb[1])


def test_every_error_of_kwire_exists() -> None:
    names = re.findall(r"^\| [^`|]+ \| `(\w+)`", PAGE[PAGE.index("## Errors") :], re.MULTILINE)
    assert len(names) > 5
    assert [name for name in names if not hasattr(kwire.errors, name)] == []
