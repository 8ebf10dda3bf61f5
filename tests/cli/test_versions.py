"""Which version is used with several brokers, old ones among them."""

from __future__ import annotations

import pytest

from kwire.cli.versions import BrokerVersions, negotiated
from kwire.protocol.messages.api_versions import ApiVersionsResponse


def broker(node: int, **ranges: tuple[int, int]) -> BrokerVersions:
    """A broker that speaks these versions of the APIs k<key>."""
    keys = [
        ApiVersionsResponse.ApiVersion(api_key=int(key[1:]), min_version=low, max_version=high)
        for key, (low, high) in ranges.items()
    ]
    return BrokerVersions(node, "h:1", ApiVersionsResponse(error_code=0, api_keys=keys))


OLD = BrokerVersions(9, "h:9", None)


@pytest.mark.parametrize(
    ("ours", "brokers", "used"),
    [
        (range(0, 14), [broker(1, k3=(0, 12))], 12),
        (range(0, 14), [broker(1, k3=(0, 12)), broker(2, k3=(4, 9))], 9),
        (range(0, 5), [broker(1, k3=(4, 12))], 4),
        (range(0, 4), [broker(1, k3=(4, 12))], None),
        (range(0, 14), [broker(1, k3=(0, 2)), broker(2, k3=(3, 4))], None),
        (range(0, 14), [broker(1, k3=(0, 2)), broker(2)], None),
        (range(0, 14), [broker(1, k3=(5, 2))], None),
        (range(0, 14), [broker(1, k3=(0, 12)), OLD], 0),
        (None, [broker(1, k3=(0, 12))], None),
        (range(0, 14), [], None),
    ],
)
def test_negotiated(ours: range | None, brokers: list[BrokerVersions], used: int | None) -> None:
    assert negotiated(ours, brokers, 3) == used
