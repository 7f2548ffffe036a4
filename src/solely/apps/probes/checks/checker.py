"""Calls a target as its URL says, within its timeout. Every outcome is returned; nothing is raised."""

from __future__ import annotations

import asyncio
import re
import time

from .... import InvalidInput
from ....kit import Caller, CallFailed, GuardedConnector, OutgoingSettings, Request, Timings
from ..model import ProbeTarget, place_of, question_of
from . import dns
from .expectations import unmet, unmet_certificate
from .flows import check_flow
from .outcome import Outcome, outcome_of, phases_of

_LONGEST = 60.0  # seconds: the longest timeout that a target can have
_MOST_READ = 256 << 10  # bytes of a body that are searched: the pages of a login have some ten KiB


class Checker:
    """Performs checks, each on a connection of its own, so that its timings include the connect."""

    def __init__(self, *, guard_allow: tuple[str, ...] = (), ca_file: str = "", at_once: int = 500) -> None:
        settings = OutgoingSettings(
            timeout=_LONGEST,
            retries=0,
            at_once=at_once,
            guard=True,
            guard_allow=guard_allow,
            ca_file=ca_file,
            max_response=_MOST_READ,
            reuse=False,
        )
        self._caller, self._connector = Caller("probe", settings), GuardedConnector("probe", settings)

    async def check(self, target: ProbeTarget) -> Outcome:
        """What came of one check of the target. It takes at most the target's timeout."""
        try:
            async with asyncio.timeout(target.timeout):
                return await self._check(target)
        except TimeoutError:
            return Outcome(f"no answer within {target.timeout:g} s")
        except (CallFailed, InvalidInput) as failure:
            return Outcome(str(failure).removeprefix("probe: "))

    async def close(self) -> None:
        """Closes all connections."""
        await self._caller.close()

    async def _check(self, target: ProbeTarget) -> Outcome:
        if target.kind == "http":
            return await (check_flow(self._caller, target) if target.steps else self._http(target))
        return await (self._dns(target) if target.kind == "dns" else self._stream(target))

    async def _http(self, target: ProbeTarget) -> Outcome:
        request = Request(
            target.method, target.url, target.headers, target.body.encode(), max_redirects=target.max_redirects
        )
        response = await self._caller.call(request)
        return outcome_of(response, *unmet(target.expect, response))

    async def _stream(self, target: ProbeTarget) -> Outcome:
        """Connects; sends the body, if there is one; and reads until the expected pattern is found."""
        host, port = place_of(target.url)
        async with self._connector.stream(host, port, tls=target.kind == "tls") as stream:
            if target.body:
                stream.writer.write(target.body.encode())
            began = time.perf_counter()
            found = await _contains(stream.reader, target.expect.body) if target.expect.body else True
            timings = stream.timings._replace(transfer=time.perf_counter() - began)
            expires = stream.certificate_expires
        ends = None if expires is None else expires.timestamp()
        error = "" if found else f"the peer did not send {target.expect.body!r}"
        error = error or unmet_certificate(target.expect, ends) or _late(target, timings)
        phases, address = phases_of(timings), stream.address
        return Outcome(error, None, phases, {}, ends, address, failed_by_pattern=not found)

    async def _dns(self, target: ProbeTarget) -> Outcome:
        """Asks the name server; the expected pattern must be found in one of the records."""
        name, record = question_of(target.url)
        try:
            packet, number = dns.question(name, record)
            reply, timings = await self._connector.ask(*place_of(target.url), packet)
            code, records = dns.answers(reply, number, record)
        except ValueError as invalid:  # of which UnicodeError and InvalidReply are some
            return Outcome(str(invalid))
        missing = bool(target.expect.body) and not any(re.search(target.expect.body, each) for each in records)
        error = "" if code == "NOERROR" else f"the name server answered {code}"
        error = error or ("" if records else f"there is no {record} record")
        error = error or (f"no record contains {target.expect.body!r}" if missing else "") or _late(target, timings)
        return Outcome(error, None, phases_of(timings), failed_by_pattern=missing)


async def _contains(reader: asyncio.StreamReader, pattern: str) -> bool:
    """True as soon as what the peer sent contains the pattern; False if it ends before."""
    received = b""
    while len(received) < _MOST_READ and (part := await reader.read(4096)):
        received += part
        if re.search(pattern, received.decode(errors="replace")):
            return True
    return False


def _late(target: ProbeTarget, timings: Timings) -> str:
    latency = target.expect.latency
    late = latency is not None and timings.total > latency
    return f"it took {timings.total:.3f} s, more than {latency:g} s" if late else ""
