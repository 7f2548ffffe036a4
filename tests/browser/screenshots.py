"""`scripts/screenshots`: the pictures under docs/images, of a service with demo data.

To add a picture, add a line to PICTURES. A page that is not there makes the script fail, after all the others.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import structlog
from playwright.sync_api import Browser, sync_playwright

from docsite.__main__ import build, server_of_site
from solely import AsyncClient
from solely.service.demo import GROUP
from tests.browser.conftest import FLAGS
from tests.browser.demonstrated import traffic
from tests.conftest import CHROMIUM
from tests.service.serving import Running, running

IMAGES = Path(__file__).parents[2] / "docs" / "images"
SIZES = {1440: 900, 390: 844}  # width → height of the window, in pixels: a desktop and a phone
SCHEMES = ("light", "dark")
TRAFFIC = 75.0  # seconds of the demo before the first picture: enough for lines in the charts
SETTLE = 1500  # ms after a page is loaded: its charts are drawn, and its first update has come
LETTER = "demo:charge:order-4711"


class Picture(NamedTuple):
    """A picture: its file begins with the name; `service` is a key of SERVICES."""

    name: str
    service: str
    path: str
    scheme: str = ""  # only this one
    full: bool = False  # the whole page, not only what the window shows


PICTURES = (
    Picture("overview", "demo", "/"),
    Picture("events", "demo", "/events"),
    Picture("locks", "demo", "/locks"),
    Picture("key", "demo", "/keys/lock/demo:backup:db"),
    Picture("queues", "demo", "/queues"),
    Picture("dead-letter", "demo", f"/dead-letters/letter?group={GROUP}&id={LETTER}"),
    Picture("alerts", "alerts", "/alerts"),
    Picture("site", "site", "/"),
)


@contextmanager
def demonstration(seconds: float) -> Iterator[Running]:
    """A service with all applications, after so many seconds of traffic."""
    with running() as it, traffic(it):
        it.run(_park(it.service.once))
        time.sleep(seconds)
        yield it


async def _park(once: AsyncClient) -> None:
    """A dead letter, and queues with some work in them."""
    payload = {"order": LETTER, "amount": 129.9, "currency": "EUR", "card": "visa **** 4242"}
    await once.dead_letters(GROUP).push(payload, error="TimeoutError: the bank did not answer", key=LETTER)
    for number in range(12):
        await once.queue("demo:thumbnails").push(f"image-{number}", {"width": 640})
    await once.queue("demo:exports").push("export-2026-11", {"customer": 17}, delay=900)


@contextmanager
def firing(seconds: float) -> Iterator[Running]:
    """A service whose receiver of alerts has two criticals that fire, one of them acknowledged, and a warning."""
    with running(apps=("alerts",)) as it:
        for name, severity, fingerprint in (
            ("Database down", "critical", "db-1/down"),
            ("Payments fail", "critical", "payments/failing"),
            ("Disk filling up", "warning", "web-3/disk"),
        ):
            alert = {"name": name, "severity": severity, "fingerprint": fingerprint, "source": "prometheus"}
            assert it.post("/api/alerts", alert).status_code == 200
        made = {"fingerprint": "db-1/down", "for": 7200.0, "comment": "failover under way"}
        assert it.post("/api/alerts/acknowledge", made).status_code == 200
        for _ in range(4):
            it.post("/api/alerts", alert)
        yield it


class ServedSite(NamedTuple):
    """The documentation site, on loopback."""

    address: str


@contextmanager
def documentation(seconds: float) -> Iterator[ServedSite]:
    """The documentation site, built anew."""
    assert build() == 0, "the site could not be built"
    with server_of_site(0) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield ServedSite(f"http://127.0.0.1:{server.server_port}")
        server.shutdown()


SERVICES: dict[str, Callable[[float], AbstractContextManager[Running | ServedSite]]] = {
    "demo": demonstration, "alerts": firing, "site": documentation,
}  # fmt: skip


def photograph(browser: Browser, address: str, picture: Picture, out: Path) -> Iterator[str]:
    """Makes the files of a picture; yields what went wrong."""
    for width, height in SIZES.items():
        for scheme in SCHEMES:
            if picture.scheme not in ("", scheme):
                continue
            file = out / f"{picture.name}-{width}-{scheme}.png"
            context = browser.new_context(
                base_url=address,
                viewport={"width": width, "height": height},
                color_scheme="dark" if scheme == "dark" else "light",
            )
            page = context.new_page()
            answer = page.goto(picture.path)
            if answer is None or not answer.ok:
                yield f"{file.name}: {picture.path} answered {answer and answer.status}"
            else:
                page.wait_for_timeout(SETTLE)
                page.screenshot(path=file, full_page=picture.full)
                print(file)
            context.close()


def main() -> int:
    """Makes the pictures; returns 1 if some could not be made."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=IMAGES)
    parser.add_argument("--seconds", type=float, default=TRAFFIC)
    parser.add_argument("--only", default="", choices=["", *(picture.name for picture in PICTURES)])
    asked = parser.parse_args()
    logging.disable()  # of the services: what they do is in the pictures
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    asked.out.mkdir(parents=True, exist_ok=True)
    wanted = [picture for picture in PICTURES if asked.only in ("", picture.name)]
    wrong = list[str]()
    for name, start in SERVICES.items():
        pictures = [picture for picture in wanted if picture.service == name]
        if not pictures:
            continue
        with start(asked.seconds) as it, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            for picture in pictures:
                wrong += photograph(browser, it.address, picture, asked.out)
            browser.close()
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
