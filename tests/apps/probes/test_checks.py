"""Checks of real servers: what is expected of a response, connections, certificates and names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from solely import InvalidInput
from solely.apps.probes.checks import Checker
from solely.apps.probes.model import Expectations, FlowStep, ProbeTarget
from solely.apps.probes.settings import ProbesSettings
from tests.apps.hooks import DROP, HANG, Answer, hooks
from tests.apps.probes.sites import NameServer, StringsServer
from tests.certificates import make_certificate, server_side
from tests.streams import served

LOOPBACK = ("127.0.0.0/8", "::1/128")
PHASES = ("resolve", "connect", "tls", "processing", "transfer")


@pytest.fixture
async def checker() -> AsyncIterator[Checker]:
    it = Checker(guard_allow=LOOPBACK)
    yield it
    await it.close()


def target(url: str, **given: Any) -> ProbeTarget:
    return msgspec.convert({"name": "web", "url": url, **given}, ProbeTarget)


async def test_a_response_as_expected_passes_with_the_time_of_each_phase(checker: Checker) -> None:
    async with hooks() as site:
        site.answers.append(Answer(body=b"fine"))
        outcome = await checker.check(target(site.url, method="POST", headers={"X-Probe": "yes"}, body="hello"))
        assert (outcome.error, outcome.status, outcome.address, outcome.length) == ("", 200, "127.0.0.1", 4)
        assert tuple(outcome.phases) == PHASES
        assert outcome.phases["connect"] > 0
        assert outcome.phases["processing"] > 0
        assert outcome.phases["tls"] == 0
        (got,) = site.received
        assert (got.method, got.headers["x-probe"], got.body) == ("POST", "yes", b"hello")


async def test_every_probe_opens_a_connection_of_its_own(checker: Checker) -> None:
    async with hooks() as site:
        for _ in range(3):
            outcome = await checker.check(target(site.url))
            assert outcome.phases["connect"] > 0
        assert site.connections == 3


JSON = b'{"ok": true, "checks": [{"name": "db", "ms": 12}], "version": null}'


@pytest.mark.parametrize(
    ("expect", "answer", "error"),
    [
        ({}, Answer(204), ""),
        ({}, Answer(404), "status 404 is not 2xx"),
        ({"status": [404]}, Answer(404), ""),
        ({"status": ["4xx", 301]}, Answer(410), ""),
        ({"status": ["4xx", 301]}, Answer(200), "status 200 is not 4xx or 301"),
        ({"body": r"it w\w+s"}, Answer(body=b"yes, it works"), ""),
        ({"body": r"it w\w+s"}, Answer(body=b"no"), r"the body does not contain 'it w\\w+s'"),
        ({"body_not": "error"}, Answer(body=b"an error"), "the body contains 'error'"),
        ({"json": {"$.ok": True, "$.checks[0].name": "db", "version": None}}, Answer(body=JSON), ""),
        ({"json": {"$.ok": False}}, Answer(body=JSON), "$.ok in the JSON is not False"),
        ({"json": {"$.ok": 1}}, Answer(body=JSON), "$.ok in the JSON is not 1"),
        ({"json": {"$.checks[3].name": "db"}}, Answer(body=JSON), "the JSON has no $.checks[3].name"),
        ({"json": {"$.ok": True}}, Answer(body=b"<html>"), "the body is not JSON"),
        ({"certificate_days": 1}, Answer(), "there is no certificate whose end is known"),
    ],
)
async def test_what_is_not_as_expected_is_said(
    checker: Checker, expect: dict[str, Any], answer: Answer, error: str
) -> None:
    async with hooks() as site:
        site.answers.append(answer)
        assert (await checker.check(target(site.url, expect=expect))).error == error


async def test_a_response_that_takes_longer_than_the_expected_latency_fails(checker: Checker) -> None:
    async with hooks() as site:
        outcome = await checker.check(target(site.url, expect={"latency": 1e-6}))
        assert "more than 1e-06 s" in outcome.error
        assert outcome.status == 200


@pytest.mark.parametrize(("answer", "error"), [(HANG, "no answer within 0.3 s"), (DROP, "did not answer")])
async def test_a_site_that_does_not_answer_fails_in_time(checker: Checker, answer: Answer, error: str) -> None:
    async with hooks() as site:
        site.answers.append(answer)
        assert error in (await checker.check(target(site.url, timeout=0.3))).error


async def test_nobody_there_and_no_such_name_are_errors_that_say_so(checker: Checker) -> None:
    async with hooks() as site:
        url = site.url
    assert "cannot connect to 127.0.0.1: Connection refused" in (await checker.check(target(url))).error
    assert "cannot connect to 127.0.0.1" in (await checker.check(target(f"tcp://127.0.0.1:{site.port}"))).error
    assert "cannot be resolved" in (await checker.check(target("http://no-such-host.invalid/"))).error


async def test_redirects_are_followed_within_their_bound(checker: Checker) -> None:
    async with hooks() as site:
        moved = Answer(302, (("location", "/there"),))
        site.answers.extend((moved, Answer(body=b"there")))
        assert (await checker.check(target(site.url, expect={"body": "there"}))).error == ""
        site.answers.append(moved)
        outcome = await checker.check(target(site.url, max_redirects=0, expect={"status": [302]}))
        assert outcome.error == ""


async def test_a_tcp_target_is_connected_to_and_may_have_to_say_something(checker: Checker) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n")
        if b"QUIT" in await reader.read(100):
            writer.write(b"221 bye\r\n")

    async with served(greet) as port:
        url = f"tcp://127.0.0.1:{port}"
        outcome = await checker.check(target(url))
        assert (outcome.error, outcome.address) == ("", "127.0.0.1")
        assert outcome.phases["connect"] > 0
        assert (await checker.check(target(url, expect={"body": "^220 "}))).error == ""
        assert (await checker.check(target(url, body="QUIT\r\n", expect={"body": "221"}))).error == ""
        wrong = await checker.check(target(url, body="HELO\r\n", expect={"body": "^421"}))
        assert (wrong.error, wrong.failed_by_pattern) == ("the peer did not send '^421'", True)


async def test_a_certificate_is_checked_for_its_name_and_its_days(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path, "localhost")
    checker = Checker(guard_allow=LOOPBACK, ca_file=str(certificate))
    async with hooks(server_side(certificate)) as site:
        for url in (f"https://localhost:{site.port}/", f"tls://localhost:{site.port}"):
            outcome = await checker.check(target(url, expect={"certificate_days": 1}))
            assert outcome.error == ""
            assert outcome.phases["tls"] > 0
            assert outcome.certificate_expires is not None
            short = await checker.check(target(url, expect={"certificate_days": 3}))
            assert short.error.startswith("the certificate ends in ")
        for url in (f"https://127.0.0.1:{site.port}/", f"tls://127.0.0.1:{site.port}"):
            assert "certificate" in (await checker.check(target(url))).error.lower()
    await checker.close()
    trusting_nobody = Checker(guard_allow=LOOPBACK)
    async with hooks(server_side(certificate)) as site:
        assert "self-signed" in (await trusting_nobody.check(target(f"tls://localhost:{site.port}"))).error
    await trusting_nobody.close()


async def test_a_name_server_is_asked_and_its_answer_checked(checker: Checker) -> None:
    loop = asyncio.get_running_loop()

    async def ask(server: NameServer, **given: Any) -> str:
        transport, _ = await loop.create_datagram_endpoint(lambda: server, ("127.0.0.1", 0))
        outcome = await checker.check(target(f"dns://127.0.0.1:{server.port}/www.example.org?type=a", **given))
        transport.close()
        return outcome.error

    fine = NameServer(0, "192.0.2.7", "192.0.2.8")
    assert await ask(fine, expect={"body": r"^192\.0\.2\.8$"}) == ""
    assert b"\x03www\x07example\x03org\x00\x00\x01\x00\x01" in fine.asked[0]
    assert await ask(fine, expect={"body": "^10"}) == "no record contains '^10'"
    assert await ask(NameServer(3)) == "the name server answered NXDOMAIN"
    assert await ask(NameServer(0)) == "there is no A record"


async def test_a_text_of_several_strings_is_read_as_one(checker: Checker) -> None:
    server = StringsServer(b"v=DKIM1; k=rsa; p=" + b"A" * 200, b"B" * 200 + b" end")
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(lambda: server, ("127.0.0.1", 0))
    url = f"dns://127.0.0.1:{server.port}/x.example?type=TXT"
    assert (await checker.check(target(url, expect={"body": "^v=DKIM1; k=rsa; p=A{200}B{200} end$"}))).error == ""
    transport.close()


async def test_a_truncated_reply_is_asked_for_over_a_connection(checker: Checker) -> None:
    server = StringsServer(*[b"x" * 250] * 8, b"the end", truncated=True)
    async with served(server.serve) as port:
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(lambda: server, ("127.0.0.1", port))
        url = f"dns://127.0.0.1:{port}/x.example?type=TXT"
        outcome = await checker.check(target(url, expect={"body": "^x+the end$"}))
        assert (outcome.error, outcome.sections and outcome.sections.answer) == ("", 1)
        assert len(server.asked) == 1
        transport.close()
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(lambda: server, ("127.0.0.1", 0))
    nowhere = await checker.check(target(f"dns://127.0.0.1:{server.port}/x.example?type=TXT"))
    assert "cannot connect to 127.0.0.1" in nowhere.error
    transport.close()


async def test_a_reply_to_another_question_is_refused(checker: Checker) -> None:
    class Liar(NameServer):
        def datagram_received(self, packet: bytes, sender: Any) -> None:
            super().datagram_received(bytes([packet[0] ^ 1]) + packet[1:], sender)

    loop = asyncio.get_running_loop()
    transport, liar = await loop.create_datagram_endpoint(lambda: Liar(0, "192.0.2.7"), ("127.0.0.1", 0))
    outcome = await checker.check(target(f"dns://127.0.0.1:{liar.port}/example.org"))
    assert outcome.error == "the reply belongs to another question"
    transport.close()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"url": "ftp://x.example/"}, "url must begin with http://, https://, tcp://, tls://, dns://, not 'ftp'"),
        ({"url": "tcp://x.example"}, "tcp:// needs a port, as in tcp://x.example:443"),
        ({"url": "dns://9.9.9.9/"}, "write dns://server/name?type=A"),
        ({"url": "dns://9.9.9.9/x.example?type=AXFR"}, "write dns://server/name?type=A"),
        ({"url": "https://user:pass@x.example/"}, "has a user or password in it"),
        ({"url": "https://x.example/", "expect": {"status": ["6xx"]}}, "status '6xx' is neither a code"),
        ({"url": "https://x.example/", "expect": {"body": "("}}, "the pattern '(' is invalid"),
        ({"url": "tcp://x.example:1", "steps": [{}]}, "steps need a URL that begins with https://"),
        ({"url": "https://x.example/", "steps": [{"url": "/{id}"}]}, "{id} is neither a value of the target nor"),
        ({"url": "https://x.example/", "steps": [{"extract": {"id": "page:x"}}]}, "extract 'id': write one of body:…"),
        ({"url": "https://x.example/", "headers": {"A b": "c"}}, "header 'A b' must be printable ASCII"),
    ],
)
def test_a_target_that_can_never_be_probed_is_refused_in_the_settings(given: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        ProbesSettings(targets=(msgspec.convert({"name": "web", **given}, ProbeTarget),))
    assert says in str(refused.value)
    assert str(refused.value).startswith("target 'web'")


def test_two_targets_cannot_have_the_same_name() -> None:
    same = ProbeTarget(name="web", url="https://x.example/")
    with pytest.raises(InvalidInput, match="targets have the same name: web"):
        ProbesSettings(targets=(same, same))


def test_what_is_shown_of_a_target_has_no_secrets() -> None:
    step = FlowStep(
        url="/login", form={"password": "{password}"}, headers={"X-Key": "k3y-of-the-api"}, body="s3cret-body"
    )
    given = ProbeTarget(
        name="web",
        url="https://x.example/",
        headers={"Authorization": "Bearer t0ken-of-the-api"},
        values={"password": "p4ssword"},
        body="b0dy",
        steps=(step,),
        expect=Expectations(body="fine"),
    )
    shown = msgspec.json.encode(given.without_secrets()).decode()
    assert not any(secret in shown for secret in ("t0ken", "p4ssword", "b0dy", "k3y", "s3cret"))
    assert all(kept in shown for kept in ("Authorization", "password", "X-Key", "fine"))
