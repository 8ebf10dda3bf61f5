"""The bytes of every field: contiguous, complete, and up to the first error of an invalid message."""

from random import Random

import pytest

from kwire.errors import DecodeError
from kwire.protocol import Message
from kwire.protocol.diagnose import FieldBytes, annotate
from kwire.protocol.messages.api_versions import ApiVersionsRequest
from kwire.protocol.messages.metadata import MetadataRequest
from tests.protocol.samples import declared_messages, random_message


def test_a_flexible_message() -> None:
    data = ApiVersionsRequest(client_software_name="ab", client_software_version="1").encode(3)
    assert annotate(ApiVersionsRequest, data, 3) == [
        FieldBytes("client_software_name", "string", 0, 3, "ab"),
        FieldBytes("client_software_version", "string", 3, 5, "1"),
        FieldBytes("tagged_fields", "count", 5, 6, 0),
    ]


def test_an_old_message_that_is_cut_off() -> None:
    whole = MetadataRequest(topics=[MetadataRequest.Topic(name="abc")]).encode(1)
    *good, last = annotate(MetadataRequest, whole[:-1], 1)
    assert good == [FieldBytes("topics", "[]Topic", 0, 4, 1)]
    assert (last.path, last.start, last.end) == ("topics[0].name", 6, 8)
    assert isinstance(last.value, DecodeError)


def test_where_a_message_starts_in_a_frame() -> None:
    data = b"head" + MetadataRequest(topics=[]).encode(1)
    assert annotate(MetadataRequest, data, 1, 4) == [FieldBytes("topics", "[]Topic", 4, 8, 0)]


@pytest.mark.slow
@pytest.mark.parametrize("cls", declared_messages(), ids=lambda cls: cls.__name__)
def test_every_byte_belongs_to_one_field(cls: type[Message]) -> None:
    random = Random(3)
    for version in cls.VERSIONS:
        data = random_message(cls, version, random, unknown_tags=True).encode(version)
        found = annotate(cls, data, version)
        assert [field.start for field in found] == [0, *(field.end for field in found)][: len(found)]
        assert (found[-1].end if found else 0) == len(data)
        cut = random.randrange(len(data)) if data else 0
        if cut:
            *good, last = annotate(cls, data[:cut], version)
            assert good == found[: len(good)], "what came before the cut is what it was"
            assert isinstance(last.value, DecodeError)
            assert last.end == cut
