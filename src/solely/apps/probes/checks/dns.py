"""DNS: a question to a name server, and what it answered. Only what a probe needs of RFC 1035."""

from __future__ import annotations

import secrets
import socket
import struct

from ..model import RECORD_TYPES

_RECURSION = 0x0100  # the flag that asks the server to resolve the name itself
_TRUNCATED = 0x0200  # the flag of an answer that did not fit
_INTERNET = 1  # the class of all records that are in use
_POINTER = 0xC0  # marks a name that continues elsewhere in the packet
_MOST_JUMPS = 20  # of such pointers in one name: a packet that needs more is a loop
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


def answers(packet: bytes, number: int, record: str) -> tuple[str, list[str]]:
    """The response code, and the records of this type as texts; InvalidReply if the packet is no such reply."""
    try:
        found, flags, questions, count, _, _ = struct.unpack_from("!6H", packet)
        if found != number or not flags & 0x8000:
            raise InvalidReply("the reply belongs to another question")
        if flags & _TRUNCATED:
            raise InvalidReply("the reply is truncated")
        place = 12
        for _ in range(questions):
            place = _name(packet, place)[1] + 4
        records = _records(packet, place, count, RECORD_TYPES[record])
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise InvalidReply(f"the reply is invalid: {error}") from None
    code = flags & 0xF
    return RCODES[code] if code < len(RCODES) else str(code), records


def _records(packet: bytes, place: int, count: int, wanted: int) -> list[str]:
    texts = []
    for _ in range(count):
        place = _name(packet, place)[1]
        kind, _, _, length = struct.unpack_from("!2HIH", packet, place)
        place += 10
        if kind == wanted:
            texts.append(_text(packet, place, kind, length))
        place += length
    return texts


def _text(packet: bytes, place: int, kind: int, length: int) -> str:
    data = packet[place : place + length]
    if kind == RECORD_TYPES["A"]:
        return socket.inet_ntop(socket.AF_INET, data)
    if kind == RECORD_TYPES["AAAA"]:
        return socket.inet_ntop(socket.AF_INET6, data)
    if kind == RECORD_TYPES["TXT"]:
        return data[1 : 1 + data[0]].decode(errors="replace")
    if kind == RECORD_TYPES["MX"]:
        return f"{struct.unpack_from('!H', data)[0]} {_name(packet, place + 2)[0]}"
    if kind == RECORD_TYPES["SRV"]:
        return f"{' '.join(map(str, struct.unpack_from('!3H', data)))} {_name(packet, place + 6)[0]}"
    return _name(packet, place)[0]


def _name(packet: bytes, place: int) -> tuple[str, int]:
    """The name at this place, and the place behind it."""
    labels, end, jumps = list[str](), 0, 0
    while length := packet[place]:
        if length & _POINTER == _POINTER:
            end = end or place + 2
            place, jumps = struct.unpack_from("!H", packet, place)[0] & 0x3FFF, jumps + 1
            if jumps > _MOST_JUMPS:
                raise InvalidReply("a name of the reply never ends")
        else:
            labels.append(packet[place + 1 : place + 1 + length].decode("ascii"))
            place += 1 + length
    return ".".join(labels), end or place + 1
