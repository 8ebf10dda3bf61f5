"""Message classes: constructor, equality, repr, and the grammar of declarations."""

import copy
import inspect
import pickle
import pydoc
import re
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import TypeVar, assert_type, cast

import pytest

from kwire.errors import UnsupportedVersionError
from kwire.protocol import Api, ApiKey, Message, Request, Response, Struct, api, message_class, messages
from kwire.protocol.api import OTHER_MESSAGES
from kwire.protocol.fields import int32, string
from kwire.protocol.messages.fetch import FetchResponse
from kwire.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kwire.protocol.schema import since, tagged
from tests.protocol.samples import declared_messages, random_message

Topic = MetadataRequest.Topic
R = TypeVar("R", bound=Response)


def test_construction_is_by_keyword_and_required_fields_are_required() -> None:
    with pytest.raises(TypeError, match="name"):
        Topic()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="positional"):
        Topic("t")  # type: ignore[call-arg, arg-type]
    with pytest.raises(TypeError, match="nmae"):
        Topic(nmae="t")  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        Topic(name="t").nmae = "u"  # type: ignore[attr-defined]
    assert Topic(name="t").topic_id.int == 0


def test_default_lists_and_structs_are_not_shared() -> None:
    first, second = (
        FetchResponse.Topic.Partition(partition_index=0, error_code=0, high_watermark=0, records=None) for _ in "12"
    )
    assert first == second
    assert first.aborted_transactions is not second.aborted_transactions
    assert first.current_leader is not second.current_leader
    first.current_leader.leader_id = 5
    assert first != second
    decoded = FetchResponse.decode(FetchResponse(responses=[]).encode(16), 16)
    assert decoded.node_endpoints is not FetchResponse.decode(FetchResponse(responses=[]).encode(16), 16).node_endpoints


def test_equality_and_hash() -> None:
    assert Topic(name="t") == Topic(name="t")
    assert Topic(name="t") != Topic(name="u")
    assert Topic(name="t") != "t"
    request = MetadataRequest(topics=[Topic(name="t")])
    other = MetadataRequest(topics=[Topic(name="t")])
    other.unknown_tagged_fields = {9: b""}
    assert request != other
    with pytest.raises(TypeError, match="unhashable"):
        hash(request)


def test_text_shows_what_differs_from_the_defaults() -> None:
    request = MetadataRequest(topics=[Topic(name="t")])
    assert repr(request) == "MetadataRequest(topics=[MetadataRequest.Topic(name='t')])"
    partition = FetchResponse.Topic.Partition(
        partition_index=0, error_code=0, high_watermark=0, records=memoryview(bytes(1000))
    )
    assert repr(partition).endswith("high_watermark=0, records=<1000 bytes>)")


@pytest.mark.parametrize("cls", declared_messages(), ids=lambda cls: cls.__name__)
def test_copies_and_pickles(cls: type[Message]) -> None:
    message = random_message(cls, cls.VERSIONS[-1], Random(1), unknown_tags=True)
    assert pickle.loads(pickle.dumps(message)) == message
    assert copy.deepcopy(message) == message


FILES = sorted({cls.__module__ for cls in declared_messages()})


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.rpartition(".")[2])
def test_every_file_lists_the_history_of_its_versions(file: str) -> None:
    history = sys.modules[file].__doc__ or ""
    described = [line.split()[0] for line in history.splitlines() if line[:1] == "v" and line[1:2].isdigit()]
    versions = {version for cls in declared_messages() if cls.__module__ == file for version in cls.VERSIONS}
    assert described == [f"v{version}" for version in sorted(versions)]


# Changes of 0.8 and 0.9, when there were no KIPs; first versions are as old, or have the KIP of their API.
WITHOUT_KIP = {("controlled_shutdown", 1), ("offset_commit", 1), ("offset_commit", 2), ("offset_fetch", 1),
               ("classic_group_records", 1)}  # fmt: skip


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.rpartition(".")[2])
def test_every_version_names_its_kip(file: str) -> None:
    """Or the issue, where a change was made without one."""
    history = sys.modules[file].__doc__ or ""
    for version, text in re.findall(r"^v(\d+)(.*(?:\n  .*)*)", history, re.MULTILINE):
        is_old = version == "0" or (file.rpartition(".")[2], int(version)) in WITHOUT_KIP
        assert is_old or re.search(r"KIP-\d+|KAFKA-\d+", text), f"v{version}"


def test_every_api_is_declared_and_every_file_is_known() -> None:
    assert {cls.API_KEY for cls in declared_messages() if issubclass(cls, Request)} == set(ApiKey)
    files = {f"kwire.protocol.messages.{path.stem}" for path in Path(messages.__file__).parent.glob("[a-z]*.py")}
    assert files == set(FILES)


def test_registry() -> None:
    found = api(3)
    assert found == Api(ApiKey.METADATA, "Metadata", MetadataRequest, MetadataResponse, range(14))
    assert api("Metadata") is api("Metadata")
    assert api(ApiKey.METADATA).request is MetadataRequest
    assert MetadataRequest.RESPONSE is MetadataResponse
    assert MetadataRequest.API_KEY == MetadataResponse.API_KEY == 3
    assert MetadataRequest.FLEXIBLE == 9
    assert message_class("MetadataResponse") is MetadataResponse
    assert list(message_class("ConsumerProtocolAssignment").VERSIONS) == [0, 1, 2, 3]


@pytest.mark.parametrize("key", [-1, 95, 32767, "Nonsense", "metadata"])
def test_apis_that_do_not_exist(key: int | str) -> None:
    with pytest.raises(UnsupportedVersionError, match="no API"):
        api(key)


@pytest.mark.parametrize("name", ["Metadata", "MetadataReply", "", "Request", "ConsumerProtocol", "__init__Request"])
def test_messages_that_do_not_exist(name: str) -> None:
    with pytest.raises(UnsupportedVersionError, match="no message"):
        message_class(name)


def test_requests_and_responses_are_pairs() -> None:
    for cls in declared_messages():
        if issubclass(cls, Request):
            response = cls.RESPONSE
            assert issubclass(response, Response)
            assert (response.API_KEY, response.VERSIONS, response.FLEXIBLE) == (cls.API_KEY, cls.VERSIONS, cls.FLEXIBLE)
            assert ApiKey(cls.API_KEY).api_name + "Request" == cls.__name__ or cls.__name__ in OTHER_MESSAGES


def test_a_call_with_a_request_returns_its_response_type() -> None:
    def send(request: Request[R]) -> R:
        return cast(R, type(request).RESPONSE.decode(bytes(8), 0))

    # mypy reads these lines too, and that is the test.
    response = assert_type(send(MetadataRequest(topics=[])), MetadataResponse)
    assert_type(response.topics[0].partitions[0].leader_id if response.topics else 0, int)
    assert_type(response.cluster_id, str | None)


def test_invalid_declarations_raise() -> None:
    with pytest.raises(TypeError, match="needs a default"):

        class Missing(Struct):
            field: int32 = since(1)

    with pytest.raises(TypeError, match="needs a default"):

        class Ended(Struct):
            field: int32 = since(0, until=3)

    with pytest.raises(TypeError, match="nullable_since"):

        class Never(Struct):
            field: string = since(0, nullable_since=1)

    with pytest.raises(TypeError, match="not a wire type"):

        class Unknown(Struct):
            field: int

    with pytest.raises(TypeError, match="not a wire type"):

        class Union(Struct):
            field: int32 | string

    with pytest.raises(TypeError, match="tag"):

        class Required(Struct):
            field: int32 = tagged(0, since=1)  # type: ignore[call-arg]


def test_no_message_is_imported_before_it_is_used() -> None:
    code = (
        "import sys, kwire.protocol\n"
        "assert 'kwire.protocol.schema' not in sys.modules\n"
        "kwire.protocol.api('Metadata')\n"
        "names = {n for n in sys.modules if n.startswith('kwire.protocol.messages.')}\n"
        "assert names == {'kwire.protocol.messages.metadata'}, names\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_misspelt_field_names_the_class_and_the_right_one() -> None:
    with pytest.raises(TypeError, match=r"^MetadataRequest has no field allow_auto_create: did you mean allow_auto_"):
        MetadataRequest(topics=[], allow_auto_create=True)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^MetadataRequest\.Topic has no field xyz: it has topic_id, name$"):
        Topic(name="t", xyz=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^MetadataRequest has no field topic: did you mean topics\?$"):
        MetadataRequest(topic=[])  # type: ignore[call-arg]


def test_a_missing_field_is_named() -> None:
    with pytest.raises(TypeError, match=r"^MetadataRequest needs topics$"):
        MetadataRequest()  # type: ignore[call-arg]


def test_help_shows_fields_with_types_and_versions() -> None:
    plain = pydoc.plaintext  # type: ignore[attr-defined]
    shown = pydoc.render_doc(MetadataRequest, renderer=plain)
    assert "MetadataRequest(*, topics, allow_auto_topic_creation=True, " in shown
    assert "MetadataRequest: API key 3, versions 0 to 13." in shown
    for line in (
        "topics                                 []Topic or None  v0+, None from v1  required",
        "allow_auto_topic_creation              boolean          v4+                default True",
        "include_cluster_authorized_operations  boolean          v8 to v10          default False",
    ):
        assert line in shown
    assert "name      string or None  v0+, None from v10  required" in (inspect.getdoc(Topic) or "")


def test_every_message_has_documentation() -> None:
    for cls in declared_messages():
        lines = (inspect.getdoc(cls) or "").splitlines()
        for field in cls.FIELDS:
            assert any(line.split()[:1] == [field.name] for line in lines), f"{cls.__qualname__}.{field.name}"
        assert list(inspect.signature(cls).parameters) == [field.name for field in cls.FIELDS]
