"""Calls a target as its URL says, within its timeout. Every outcome is returned; nothing is raised."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import structlog

from .... import InvalidInput
from ....kit import (
    AddressRefused,
    Caller,
    CallFailed,
    GuardedConnector,
    OutgoingSettings,
    Request,
    Timings,
    TooManyRedirects,
    search_pattern,
    watched,
    watching,
)
from ..model import ProbeTarget, place_of, question_of
from . import dns
from .expectations import unmet, unmet_certificate
from .flows import FlowProgress, check_flow
from .outcome import Outcome, outcome_of, phases_of

log = structlog.get_logger("solely.probes")

_LONGEST = 60.0  # seconds: the longest timeout that a target can have
_MOST_READ = 256 << 10  # bytes of a body that are searched: the pages of a login have some ten KiB
_MOST_COUNTED = 16 << 20  # bytes of a body that are counted: beyond, its length is no longer of interest
_PAUSE = 0.02  # seconds between searches in what a peer sends: it may send single bytes, and each search is of all


class Checker:
    """Performs checks, each on a connection of its own, so that its timings include the connect. It resolves names on
    threads of its own, one for each check at once: name servers that hang delay no checks of another checker."""

    def __init__(self, *, guard_allow: tuple[str, ...] = (), ca_file: str = "", at_once: int = 500) -> None:
        settings = OutgoingSettings(
            timeout=_LONGEST,
            retries=0,
            at_once=at_once,
            guard=True,
            guard_allow=guard_allow,
            ca_file=ca_file,
            max_response=_MOST_READ,
            max_counted=_MOST_COUNTED,
            reuse=False,
        )
        self._resolvers = ThreadPoolExecutor(at_once, thread_name_prefix="solely-resolve")
        self._caller = Caller("probe", settings, resolvers=self._resolvers)
        self._connector = GuardedConnector("probe", settings, resolvers=self._resolvers)

    async def check(self, target: ProbeTarget) -> Outcome:
        """What came of one check of the target. It takes at most the target's timeout."""
        watching()
        progress = FlowProgress(dict(target.values))
        try:
            async with asyncio.timeout(target.timeout):
                return await self._check(target, progress)
        except TimeoutError:
            outcome = _failed(f"no answer within {target.timeout:g} s")
        except TooManyRedirects as failure:  # of which blackbox_exporter counts the last one, and reads no body
            outcome = outcome_of(failure.last, _said(failure))
            outcome = outcome._replace(redirects=outcome.redirects + 1, length=0)
        except (CallFailed, InvalidInput) as failure:
            outcome = _failed(_said(failure))._replace(refused=isinstance(failure, AddressRefused))
        except Exception as defect:  # what a target sends never makes it look as if it were up
            log.exception("check_failed", target=target.name)
            outcome = Outcome(f"the check failed: {type(defect).__name__}; the log has its traceback")
        return outcome._replace(error=progress.named(outcome.error), steps=progress.seconds)

    async def close(self) -> None:
        """Closes all connections."""
        await self._caller.close()
        self._resolvers.shutdown(wait=False, cancel_futures=True)

    async def _check(self, target: ProbeTarget, progress: FlowProgress) -> Outcome:
        if target.kind == "http":
            return await (check_flow(self._caller, target, progress) if target.steps else self._http(target))
        return await (self._dns(target) if target.kind == "dns" else self._stream(target))

    async def _http(self, target: ProbeTarget) -> Outcome:
        request = Request(
            target.method,
            target.url,
            target.headers,
            target.body.encode(),
            max_redirects=target.max_redirects,
            server_name=target.hostname,
        )
        response = await self._caller.session().call(request)  # a redirect may need the cookie that came with it
        return outcome_of(response, *await unmet(target.expect, response))

    async def _stream(self, target: ProbeTarget) -> Outcome:
        """Connects; sends the body, if there is one; and reads until the expected pattern is found."""
        host, port = place_of(target.url)
        tls = target.kind == "tls"
        async with self._connector.stream(host, port, tls=tls, server_name=target.hostname) as stream:
            if target.body:
                stream.writer.write(target.body.encode())
            began = time.perf_counter()
            found = await _sends(stream.reader, target.expect.body) if target.expect.body else True
            timings = stream.timings._replace(transfer=time.perf_counter() - began)
            expires = stream.certificate_expires
        ends = None if expires is None else expires.timestamp()
        error = "" if found else f"the peer did not send {target.expect.body!r}"
        error = error or unmet_certificate(target.expect, ends) or _late(target, timings)
        phases, address = phases_of(timings), stream.address
        return Outcome(error, None, phases, {}, ends, address, failed_by_pattern=not found, tls=stream.tls)

    async def _dns(self, target: ProbeTarget) -> Outcome:
        """Asks the name server; the expected pattern must be found in one of the records."""
        (name, record), place = question_of(target.url), place_of(target.url)
        try:
            packet, number = dns.question(name, record)
            reply, timings = await self._connector.ask(*place, packet)
            if dns.is_truncated(reply, number):
                reply, timings = await self._connector.ask_by_stream(*place, packet)
            code, records, sections, serial = dns.answers(reply, number, record)
        except ValueError as invalid:  # of which UnicodeError and InvalidReply are some
            return _failed(str(invalid))
        missing = bool(target.expect.body) and not await _any_contains(records, target.expect.body)
        error = "" if code == "NOERROR" else f"the name server answered {code}"
        error = error or ("" if records else f"there is no {record} record")
        error = error or (f"no record contains {target.expect.body!r}" if missing else "") or _late(target, timings)
        outcome = _failed(error)
        return outcome._replace(phases=phases_of(timings), failed_by_pattern=missing, sections=sections, serial=serial)


def _failed(error: str) -> Outcome:
    """The outcome of a check that got no whole response: how far it came, and with which address."""
    watch = watched()
    watch.enter("")
    outcome = Outcome() if watch.head is None else outcome_of(watch.head, error)
    return outcome._replace(
        error=error,
        phases=phases_of(watch.timings()),
        address=watch.address,
        length=None if watch.head is None else watch.received,
        redirects=watch.redirects,
    )


def _said(failure: Exception) -> str:
    return str(failure).removeprefix("probe: ")


async def _any_contains(texts: Iterable[str], pattern: str) -> bool:
    return any([await search_pattern(pattern, each) is not None for each in texts])


async def _sends(reader: asyncio.StreamReader, pattern: str) -> bool:
    """True as soon as what the peer sent contains the pattern, whose ^ and $ are those of a line; False if it ends
    before."""
    received = b""
    while len(received) < _MOST_READ and (part := await reader.read(_MOST_READ)):
        received += part
        text = received.decode(errors="replace").replace("\r\n", "\n")
        if await search_pattern(f"(?m){pattern}", text) is not None:
            return True
        await asyncio.sleep(_PAUSE)
    return False


def _late(target: ProbeTarget, timings: Timings) -> str:
    latency = target.expect.latency
    late = latency is not None and timings.total > latency
    return f"it took {timings.total:.3f} s, more than {latency:g} s" if late else ""
