"""No text of an alert becomes a header or a part of a mail: what a real server gets, byte by byte."""

import base64
import quopri
from email.header import decode_header, make_header

import msgspec
import pytest

from solely.apps.alerts.model import Alert, Member, Notification
from solely.apps.alerts.publishers import PublisherSettings
from solely.outgoing import sanitized
from tests.apps.alerts.mails import mails
from tests.apps.alerts.test_publishers_mail import TO, mailing

HEADERS = [
    b"From",
    b"To",
    b"Subject",
    b"Date",
    b"Message-ID",
    b"Auto-Submitted",
    b"Content-Type",
    b"Content-Transfer-Encoding",
    b"MIME-Version",
]
FORGED = "\r\nReply-To: evil@example.com\r\nContent-Type: text/html\r\n\r\n<h1>forged</h1>"
VECTORS = {
    "encoded q": "=?utf-8?q?x=0d=0aReply-To:_evil@example.com=0d=0a=0d=0a<h1>forged</h1>?=",
    "encoded b": f"=?utf-8?b?{base64.b64encode(FORGED.encode()).decode()}?=",
    "encoded lone LF": "=?us-ascii?Q?x=0aBcc:_evil@example.com?=",
    "encoded lone CR": "=?iso-8859-1?q?x=0dBcc:_evil@example.com?=",
    "encoded NUL": "=?utf-8?q?x=00=0d=0ay?=",
    "encoded twice": "=?utf-8?q?=3D=3Futf-8=3Fq=3Fx=3D0d=3D0aBcc:_e@x.example=3F=3D?=",
    "encoded neighbours": "=?utf-8?q?x=0d?= =?utf-8?q?=0aBcc:_evil@example.com?=",
    "encoded with a language": "=?utf-8*en?q?x=0d=0aBcc:_evil@example.com?=",
    "encoded across a space": "=?utf-8?q?x=0d=0a Bcc: evil@example.com?=",
    "encoded after text": "abc=?utf-8?q?=0d=0aBcc:_evil@example.com?=def",
    "not ended": "=?utf-8?q?x=0d=0aBcc:_evil@example.com",
    "CR LF": f"x{FORGED}",
    "CR": "x\rBcc: evil@example.com",
    "LF": "x\nBcc: evil@example.com\n\n<h1>forged</h1>",
    "folded": "x\r\n Bcc: evil@example.com\r\n\tmore",
    "NUL": "x\0\0Bcc: evil@example.com",
    "line separators": "x\u2028Bcc: evil@example.com\u2029y\x85z\x0bq\x0cr\x1cs",
    "not ASCII": "Größe ✓ 漢字 =?utf-8?q?=0d=0aBcc:_evil@example.com?=",
    "surrogate": "x\udc0d\udc0aBcc: evil@example.com",
    "long": "x" * 5000,
    "long, not ASCII": "ö" * 5000,
    "long words": ("=?utf-8?q?=0d=0aB:_c?= " * 200),
    "boundary": '--===============0==\r\nContent-Type: text/html\r\n\r\n<h1>forged</h1>\r\n"; boundary="x',
}


def notification(text: str) -> Notification:
    """The text stands wherever a caller can put one."""
    alert = Alert(
        name=text,
        severity=text,
        source=text,
        fingerprint=text,
        labels={text: text},
        annotations={text: text},
        group=text,
    )
    member = Member(fingerprint=text, name=text, severity=text)
    return Notification(id="msg_2b1f", alert=alert, at=1_760_000_000.0, members=(member,))


def lines(text: str) -> list[str]:
    """The body: a line per fact, and nothing else."""
    facts = [f"{name}: {text}" for name in ("name", "severity", "source", "fingerprint")]
    return [
        *facts,
        "",
        f"alert of the group: {sanitized(f'{text}: {text}')}",
        "",
        f"{text}: {text}",
        "",
        f"{text}: {text}",
    ]


@pytest.mark.parametrize("text", VECTORS.values(), ids=VECTORS.keys())
async def test_no_text_of_an_alert_becomes_a_header_or_a_part(text: str) -> None:
    with mails() as server:
        async with mailing(server.port) as publisher:
            await publisher.publish(notification(text))
        ((recipients, mail),) = server.received
        (raw,) = server.raw
    head, _, body = raw.partition(b"\r\n\r\n")
    unfolded = head.replace(b"\r\n ", b" ").replace(b"\r\n\t", b" ").split(b"\r\n")
    assert recipients == list(TO)
    assert [line.partition(b":")[0] for line in unfolded] == HEADERS
    assert not set(head.replace(b"\r\n", b"")) & set(b"\r\n\0")
    assert max(map(len, raw.split(b"\r\n"))) <= 998  # the most that RFC 5322 allows in a line
    assert (mail.get_content_type(), mail.is_multipart()) == ("text/plain", False)
    assert quopri.decodestring(body).decode().splitlines() == lines(sanitized(text))
    subject = dict(line.split(b": ", 1) for line in unfolded)[b"Subject"].decode("ascii")
    assert str(make_header(decode_header(subject))) == sanitized(f"[FIRING] {text}: {text} (group {text})")


@pytest.mark.parametrize("address", ["=?utf-8?q?a=0d=0aBcc:?=@example.org", "a=?b@example.org"])
@pytest.mark.parametrize("field", ["sender", "to"])
def test_an_address_that_reads_as_an_encoded_word_is_refused(address: str, field: str) -> None:
    usual = {"type": "email", "host": "a.example", "sender": "a@b.example", "to": ["c@d.example"]}
    given = {field: [address] if field == "to" else address}
    with pytest.raises(msgspec.ValidationError, match="is not a mail address"):
        msgspec.convert(usual | given, PublisherSettings)


@pytest.mark.parametrize("id", ["", "msg_1\r\nBcc: e@x.example", "msg_1\n", "=?utf-8?q?x=0d=0a?=", "ü", "x" * 65])
def test_an_id_that_is_none_of_ours_is_not_read(id: str) -> None:
    """Ids stand in Message-ID and webhook-id; what comes out of the store may have been put there by others."""
    written = msgspec.to_builtins(notification("x")) | {"id": id}
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(written, Notification)
