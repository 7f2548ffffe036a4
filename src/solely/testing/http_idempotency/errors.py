"""Section 2.7: the content of error responses, and requests that need no key."""

from __future__ import annotations

import json
import re
from urllib.parse import urljoin, urlsplit

from .checking import Checklist, expect, first
from .target import Target, TargetResponse, fresh

CHECKS = Checklist()


@CHECKS.check("2.7", "a request without a key, where one is required → 400")
def missing_key_is_refused(target: Target) -> None:
    reply = target.send()
    expect(reply.status == 400, "400", reply)


@CHECKS.check("2.7", "that 400 links to documentation, which exists")
def missing_key_links_to_a_page(target: Target) -> None:
    _links_to_a_page(target, target.send())


@CHECKS.check("2.7", "that 400 is application/problem+json")
def missing_key_is_a_problem(target: Target) -> None:
    _is_a_problem(target.send(), 400)


@CHECKS.check("2.7", "the 400 to a malformed key is application/problem+json")
def malformed_key_is_a_problem(target: Target) -> None:
    _is_a_problem(target.send(lines=["token"]), 400)


@CHECKS.check("2.7", "the 422 is application/problem+json and links to documentation, which exists")
def reused_key_links_to_a_page(target: Target) -> None:
    key = fresh()
    first(target.send(key))
    reply = target.send(key, body=target.other_body)
    _is_a_problem(reply, 422)
    _links_to_a_page(target, reply)


@CHECKS.check("safety", "a GET needs no key")
def get_needs_no_key(target: Target) -> None:
    reply = target.send(method="GET")
    expect(reply.status != 400, "anything but 400", reply)


def _is_a_problem(reply: TargetResponse, status: int) -> None:
    expect(reply.status == status, str(status), reply)
    kind = reply.headers.get_content_type()
    expect(kind == "application/problem+json", "application/problem+json", kind)
    document = json.loads(reply.body)
    expect(isinstance(document, dict) and "title" in document, "a problem with a title", reply)
    expect(document.get("status", status) == status, f"status {status} in the problem", reply)


def _links_to_a_page(target: Target, reply: TargetResponse) -> None:
    expect(reply.status in (400, 422), "400 or 422", reply)
    link = re.search(r'<([^>]+)>[^,]*rel="?describedby', reply.headers.get("Link", ""))
    document = json.loads(reply.body) if reply.headers.get_content_type().endswith("json") else {}
    kind = document.get("type", "") if isinstance(document, dict) else ""
    address = link[1] if link else kind
    expect(bool(address) and address != "about:blank", "a link in `type` or Link", reply)
    place = urljoin(target.url, address)
    if urlsplit(place).netloc == urlsplit(target.url).netloc:  # the service does not serve pages on other hosts
        page = target.send(url=place, method="GET")
        expect(page.status == 200, f"200 from {address}", page)
