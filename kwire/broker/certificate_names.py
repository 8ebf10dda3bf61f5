"""The name of a client's certificate, as Kafka's default principal has it: RFC 2253, with Java's escapes.

The subject is read out of the certificate's DER, since `ssl` shows neither its types nor its order of values.
"""

from __future__ import annotations

from collections.abc import Iterator

# What RFC 2253 names; every other type is its number, with the DER of its value in hex.
_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_ESCAPED = frozenset(',=+<>#;"\\')
_VERSION = 0xA0  # the optional first field of a certificate
_UTF16 = 30  # BMPString; the other texts are UTF-8 or a part of it
_TEXTS = frozenset({12, 19, 20, 22, 27, 28, _UTF16})


def subject_name(certificate: bytes) -> str:
    """Return the subject of a certificate in DER, such as "CN=me,OU=ops,O=Example". Raises ValueError."""
    try:
        ((_, whole, _),) = _values(certificate)
        fields = list(_values(next(_values(whole))[1]))
        subject = fields[5 if fields[0][0] == _VERSION else 4][1]
        return ",".join(_relative_name(value) for _, value, _ in reversed(list(_values(subject))))
    except (IndexError, StopIteration, UnicodeDecodeError) as error:
        raise ValueError("the certificate is malformed") from error


def _relative_name(data: bytes) -> str:
    return "+".join(_attribute(value) for _, value, _ in _values(data))


def _attribute(data: bytes) -> str:
    (_, type_, _), (tag, value, der) = _values(data)
    number = _object_identifier(type_)
    keyword = _KEYWORDS.get(number)
    if keyword is None or tag not in _TEXTS:
        return f"{keyword or number}=#{der.hex()}"
    return f"{keyword}={_escaped(value.decode('utf-16-be' if tag == _UTF16 else 'utf-8'))}"


def _escaped(text: str) -> str:
    inner = "".join(f"\\{char}" if char in _ESCAPED else "\\00" if char == "\0" else char for char in text.strip(" "))
    if not text.strip(" "):
        return "\\ " * len(text)
    before, after = len(text) - len(text.lstrip(" ")), len(text) - len(text.rstrip(" "))
    return "\\ " * before + inner + "\\ " * after


def _object_identifier(data: bytes) -> str:
    numbers, number = [], 0
    for byte in data:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _values(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield the tag, the content and the whole of each DER value in `data`."""
    at = 0
    while at < len(data):
        start, tag, size = at, data[at], data[at + 1]
        at += 2
        if size & 0x80:
            count = size & 0x7F
            size = int.from_bytes(data[at : at + count], "big")
            at += count
        if at + size > len(data):
            raise IndexError
        yield tag, data[at : at + size], data[start : at + size]
        at += size
