"""Ids that the cluster allocates."""

from __future__ import annotations

from random import Random

from kwire.broker.ids import make_uuid
from kwire.protocol.json import uuid_text


def test_the_text_of_an_id_is_no_option() -> None:
    # One of 64 texts would begin with a dash: `kwire tokens renew -x...` would be an unknown option.
    random = Random(1)
    assert not [text for text in (uuid_text(make_uuid(random)) for _ in range(2_000)) if text.startswith("-")]
