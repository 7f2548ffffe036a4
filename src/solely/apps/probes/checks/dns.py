"""DNS: a question to a name server, and what it answered. Only what a probe needs of RFC 1035."""

from __future__ import annotations

import secrets
import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

from ..model import RECORD_TYPES
from .outcome import DnsSections

_RECURSION = 0x0100  # the flag that asks the server to resolve the name itself
_TRUNCATED = 0x0200  # the flag of an answer that did not fit
_INTERNET = 1  # the class of all records that are in use
_POINTER = 0xC0  # marks a name that continues elsewhere in the packet
_MOST_JUMPS = 20  # of such pointers in one name: a packet that needs more is a loop
_LONGEST_NAME = 255  # bytes, by RFC 1035: names that share longer ones would take the square of the packet's length
RCODES = ("NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED")


class InvalidReply(ValueError):
    """The packet is no reply to the question."""


def question(name: str, record: str) -> tuple[bytes, int]:
    """The packet that asks for the records of this type, and its id; ValueError if the name is none."""
    number = secrets.randbelow(1 << 16)
    labels = [part.encode("idna") for part in name.rstrip(".").split(".")]
    if not all(0 < len(label) <= 63 for label in labels):
        raise ValueError(f"{name!r:.80} is not a name")
    encoded = b"".join(bytes([len(label)]) + label for label in labels) + b"\0"
    return struct.pack("!6H", number, _RECURSION, 1, 0, 0, 0) + encoded + struct.pack(
        "!2H", RECORD_TYPES[record], _INTERNET
    ), number


class Reply(NamedTuple):
    """What a name server answered: the response code, and the records of the type that was asked for, as texts."""

    code: str
    records: list[str]
    sections: DnsSections
    serial: int | None = None  # of the zone, if it was asked for: 0 if the answer does not say


def is_truncated(packet: bytes, number: int) -> bool:
    """True if this reply says that it did not fit: the question is then repeated over a connection."""
    return len(packet) >= 4 and struct.unpack_from("!H", packet)[0] == number and bool(packet[2] & _TRUNCATED >> 8)


def answers(packet: bytes, number: int, record: str) -> Reply:
    """The reply to the question for this type; InvalidReply if the packet is no such reply."""
    try:
        found, flags, questions, *sections = struct.unpack_from("!6H", packet)
        if found != number or not flags & 0x8000:
            raise InvalidReply("the reply belongs to another question")
        if flags & _TRUNCATED:
            raise InvalidReply("the reply is truncated")
        place = 12
        for _ in range(questions):
            place = _name(packet, place)[1] + 4
        records = _records(packet, place, sections[0], RECORD_TYPES[record])
        serial = max((_serial(packet, data) for _, data in records), default=0) if record == "SOA" else None
        texts = [text for text, _ in records]
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise InvalidReply(f"the reply is invalid: {error}") from None
    code = flags & 0xF
    return Reply(RCODES[code] if code < len(RCODES) else str(code), texts, DnsSections(*sections), serial)


def _records(packet: bytes, place: int, count: int, wanted: int) -> list[tuple[str, int]]:
    """The records of this type as texts, each with the place of its data."""
    texts = []
    for _ in range(count):
        place = _name(packet, place)[1]
        kind, _, _, length = struct.unpack_from("!2HIH", packet, place)
        place += 10
        if kind == wanted:
            texts.append((_text(packet, place, kind, length), place))
        place += length
    return texts


def _text(packet: bytes, place: int, kind: int, length: int) -> str:
    data = packet[place : place + length]
    if kind == RECORD_TYPES["A"]:
        return socket.inet_ntop(socket.AF_INET, data)
    if kind == RECORD_TYPES["AAAA"]:
        return socket.inet_ntop(socket.AF_INET6, data)
    if kind == RECORD_TYPES["TXT"]:
        return b"".join(_strings(data)).decode(errors="replace")
    if kind == RECORD_TYPES["MX"]:
        return f"{struct.unpack_from('!H', data)[0]} {_name(packet, place + 2)[0]}"
    if kind == RECORD_TYPES["SRV"]:
        return f"{' '.join(map(str, struct.unpack_from('!3H', data)))} {_name(packet, place + 6)[0]}"
    return _name(packet, place)[0]


def _serial(packet: bytes, place: int) -> int:
    """The serial number of the SOA record whose data is at this place: it follows two names."""
    return int(struct.unpack_from("!I", packet, _name(packet, _name(packet, place)[1])[1])[0])


def _strings(data: bytes) -> Iterator[bytes]:
    """The strings of a TXT record, which together are its text: one has at most 255 bytes."""
    place = 0
    while place < len(data):
        yield data[place + 1 : place + 1 + data[place]]
        place += 1 + data[place]


def _name(packet: bytes, place: int) -> tuple[str, int]:
    """The name at this place, and the place behind it."""
    labels, end, jumps, size = list[str](), 0, 0, 0
    while length := packet[place]:
        if length & _POINTER == _POINTER:
            end = end or place + 2
            place, jumps = struct.unpack_from("!H", packet, place)[0] & 0x3FFF, jumps + 1
            if jumps > _MOST_JUMPS:
                raise InvalidReply("a name of the reply never ends")
        else:
            size += 1 + length
            if size >= _LONGEST_NAME:
                raise InvalidReply("a name of the reply is too long")
            labels.append(packet[place + 1 : place + 1 + length].decode("ascii"))
            place += 1 + length
    return ".".join(labels), end or place + 1
