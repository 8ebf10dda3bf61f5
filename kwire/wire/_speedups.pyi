"""Types of the C accelerator, as `kwire.wire.accel.speedups` has it. Each name is documented in its Python twin."""

from collections.abc import Sequence
from typing import Any, Protocol, overload

from kwire.net.channel import Piece, Sock
from kwire.records.reader import Columns, RecordReader, RecordSlice, SomeColumns
from kwire.records.rows import NewRecord, Row
from kwire.wire.buffers import Bytes

class Speedups(Protocol):
    """The module as an object: no such class is in it."""

    def crc32c(self, data: Bytes, value: int = 0, /) -> int: ...
    def murmur2(self, data: Bytes, /) -> int: ...
    def alloc(self, size: int, /) -> tuple[Bytes, memoryview]: ...
    def alloc_pooled(self, size: int, /) -> tuple[Bytes, memoryview]: ...
    def encode_records(self, records: Sequence[NewRecord], base_timestamp: int, /) -> bytes | None: ...
    def decode_records(
        self,
        data: bytes,
        pos: int,
        count: int,
        base_offset: int,
        base_timestamp: int,
        last_delta: int,
        timestamp: int | None,
        /,
    ) -> list[Row] | None: ...
    def open_reader(
        self,
        kind: type[Any],
        topic: str,
        partition: int,
        timestamp_type: int,
        position: int,
        next_offset: int,
        data: Bytes,
        pos: int,
        count: int,
        base_offset: int,
        base_timestamp: int,
        last_delta: int,
        timestamp: int | None,
        /,
    ) -> RecordReader | None: ...
    def open_batches(
        self,
        kind: type[Any],
        topic: str,
        partition: int,
        position: int,
        data: Bytes,
        pos: int,
        check_crc: bool,
        enough: int,
        /,
    ) -> tuple[RecordReader, int] | None: ...
    @overload
    def columns(self, pieces: Sequence[RecordSlice], has_headers: bool, /) -> Columns | None: ...
    @overload
    def columns(self, pieces: Sequence[RecordSlice], has_headers: bool, wanted: int, /) -> SomeColumns | None: ...
    def send_pieces(self, sock: Sock, pieces: Sequence[Piece], /) -> int: ...
    def receive_into(self, sock: Sock, target: Piece, /) -> int: ...
    def encode_starts(
        self, records: list[Any], queue: bytes, topic_id: bytes, after_ms: int, bytes_max: int, /
    ) -> list[bytes | None]: ...
    def encode_ends(self, records: list[Any], topic_id: bytes, /) -> list[bytes]: ...
    def skim_marker(self, data: bytes, /) -> tuple[int, bytes, int, int, int, bool, int] | None: ...
    def all_bytes(self, items: list[Any], /) -> bool: ...
    def split_lines(self, data: Bytes, delimiter: bytes, /) -> tuple[None, bytes, bytes, bool, int]: ...
    def future_class(self, full_name: str, /) -> type[Any]: ...
    def record_class(self, full_name: str, /) -> type[Any]: ...
    def delivery_class(self, full_name: str, /) -> type[Any]: ...
    def new_deliveries(self, kind: type[Any], records: list[Any], lease: Any, /) -> list[Any]: ...
