"""What is known of a peer by its TLS connection: the version, its certificate, and when its chain expires."""

from __future__ import annotations

import hashlib
import re
import ssl
from collections.abc import Iterable
from typing import Any, NamedTuple

# The attributes of a name in the order in which Go writes them (RFC 2253, with fixed places), by OpenSSL's names. All
# others follow by their numbers, the last first, with their values as DER.
_ATTRIBUTES = {
    "serialNumber": "SERIALNUMBER", "commonName": "CN", "organizationalUnitName": "OU", "organizationName": "O",
    "postalCode": "POSTALCODE", "streetAddress": "STREET", "localityName": "L", "stateOrProvinceName": "ST",
    "countryName": "C",
}  # fmt: skip
_SINGLE = ("serialNumber", "commonName")  # of which Go knows the last value only
_ESCAPED = frozenset(',+"\\<>;')
_PRINTABLE = re.compile(r"[A-Za-z0-9 '()+,./:=?-]*")  # what a PrintableString may contain
_PRINTABLE_STRING, _UTF8_STRING = 0x13, 0x0C  # tags of DER
_DER = 2  # the encoding of a certificate, as the module _ssl numbers it


class PeerTls(NamedTuple):
    """The peer of a TLS connection. `version` is such as "TLS 1.3"; `fingerprint` is the SHA-256 of its certificate.
    Moments are seconds of UTC: `earliest` is the first end of any certificate that it sent, `chain_expires` that of the
    chain by which it was verified."""

    version: str
    subject: str
    issuer: str
    alternatives: tuple[str, ...]
    fingerprint: str
    earliest: float
    chain_expires: float


def peer_tls(connection: Any) -> PeerTls | None:
    """The peer of this ssl.SSLObject; None if it has no certificate, or if the chain is not to be had."""
    try:
        inner = connection._sslobj  # the only way to see the chain before Python 3.13, and its contents in any
        sent, verified = inner.get_unverified_chain() or (), inner.get_verified_chain() or ()
    except AttributeError:
        return None
    if not sent:
        return None
    leaf = sent[0].get_info()
    earliest = _first_end(sent)
    return PeerTls(
        version=(connection.version() or "").replace("v", " "),
        subject=_name(leaf.get("subject", ())),
        issuer=_name(leaf.get("issuer", ())),
        alternatives=tuple(value for kind, value in leaf.get("subjectAltName", ()) if kind == "DNS"),
        fingerprint=hashlib.sha256(sent[0].public_bytes(_DER)).hexdigest(),
        earliest=earliest,
        chain_expires=_first_end(verified) if verified else earliest,
    )


def _first_end(chain: Iterable[Any]) -> float:
    return float(min(ssl.cert_time_to_seconds(each.get_info()["notAfter"]) for each in chain))


def _name(parts: Iterable[Iterable[tuple[str, str]]]) -> str:
    """A distinguished name as Go writes it: CN=shop.example,O=Shop,C=DE."""
    known: dict[str, list[str]] = {}
    others = list[str]()
    for kind, value in (each for part in parts for each in part):
        if kind in _ATTRIBUTES:
            known.setdefault(kind, []).append(f"{_ATTRIBUTES[kind]}={_escaped(value)}")
        else:
            others.append(f"{_number(kind)}=#{_der(value).hex()}")
    written = [known[kind][-1:] if kind in _SINGLE else known[kind] for kind in _ATTRIBUTES if kind in known]
    return ",".join(["+".join(each) for each in written] + others[::-1])


def _number(kind: str) -> str:
    """The number of an attribute that OpenSSL may have a name for."""
    asn1: Any = ssl._ASN1Object  # nothing public says it
    try:
        return str(asn1.fromname(kind).oid)
    except ValueError:  # it has none: this is the number
        return kind


def _der(value: str) -> bytes:
    data = value.encode()
    size = len(data).to_bytes((len(data).bit_length() + 7) // 8)
    length = bytes([len(data)]) if len(data) < 0x80 else bytes([0x80 | len(size)]) + size
    return bytes([_PRINTABLE_STRING if _PRINTABLE.fullmatch(value) else _UTF8_STRING]) + length + data


def _escaped(value: str) -> str:
    ends = {0: " #", len(value) - 1: " "}  # what is escaped at these places only
    return "".join(
        f"\\{letter}" if letter in _ESCAPED or letter in ends.get(place, "") else letter
        for place, letter in enumerate(value)
    )
