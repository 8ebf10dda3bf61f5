"""CRC-32C in Python in a tenth of the time that a loop takes, for where crcmod was installed without its C extension.

The data is cut into lanes of LANE_BYTES, and the CRCs of all lanes are computed side by side: the state's four bytes
are four planes, each a byte string with one byte a lane; a step looks a whole column of bytes up with
`bytes.translate`, and xors planes as integers. Then each lane's CRC is carried over the length of the lanes after it.

Measured in one run, in ns a byte: 16 at 16 kB and 9 at 1 MB, where crcmod's loop in Python takes 75 and its C 2.
"""

from __future__ import annotations

from kwire.wire.buffers import Bytes

LANE_BYTES = 256
LANES_MIN = 16  # with fewer, a loop is faster
_POLYNOMIAL = 0x82F63B78  # Castagnoli's, reflected
_ONES = 0xFFFFFFFF


def _byte_table() -> list[int]:
    table = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (_POLYNOMIAL if n & 1 else 0)
        table.append(n)
    return table


_TABLE = _byte_table()
_PLANES = [bytes(entry >> shift & 0xFF for entry in _TABLE) for shift in (0, 8, 16, 24)]


def _over_bytes(data: Bytes, state: int) -> int:
    table = _TABLE
    for byte in data:
        state = state >> 8 ^ table[(state ^ byte) & 0xFF]
    return state


def _carry_table(shift: int) -> list[int]:
    """What each value of one of the state's bytes becomes over LANE_BYTES of zeros. It is linear, so bits will do."""
    table = [0]
    for n in range(1, 256):
        lowest = n & -n
        table.append(table[n ^ lowest] ^ (table[lowest] if n != lowest else _over_bytes(bytes(LANE_BYTES), n << shift)))
    return table


_CARRY = [_carry_table(shift) for shift in (0, 8, 16, 24)]


def crc32c(data: Bytes, value: int = 0) -> int:
    """`value` is the CRC of what stands before `data`."""
    data = bytes(data)
    state = value ^ _ONES
    lanes = len(data) // LANE_BYTES
    if lanes >= LANES_MIN:
        carry0, carry1, carry2, carry3 = _CARRY
        for lane in zip(*_lane_states(data, lanes), strict=True):
            state = (
                carry0[state & 0xFF] ^ carry1[state >> 8 & 0xFF] ^ carry2[state >> 16 & 0xFF] ^ carry3[state >> 24]
            ) ^ int.from_bytes(lane, "little")
        data = data[lanes * LANE_BYTES :]
    return _over_bytes(data, state) ^ _ONES


def _lane_states(data: bytes, lanes: int) -> tuple[bytes, ...]:
    """The states of all lanes after all their bytes, from a state of zero, as planes: the lowest byte's first."""
    end = lanes * LANE_BYTES
    table0, table1, table2, table3 = _PLANES
    read = int.from_bytes
    plane0 = plane1 = plane2 = plane3 = 0
    for at in range(LANE_BYTES):
        index = (plane0 ^ read(data[at:end:LANE_BYTES], "little")).to_bytes(lanes, "little")
        plane0 = plane1 ^ read(index.translate(table0), "little")
        plane1 = plane2 ^ read(index.translate(table1), "little")
        plane2 = plane3 ^ read(index.translate(table2), "little")
        plane3 = read(index.translate(table3), "little")
    return tuple(plane.to_bytes(lanes, "little") for plane in (plane0, plane1, plane2, plane3))
