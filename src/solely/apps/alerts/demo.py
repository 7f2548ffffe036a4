"""Sample alerts, so that a newcomer sees live pages: monitors fire again and again, and resolve after a while. All
fingerprints begin with `demo-`."""

from __future__ import annotations

import asyncio
import random

from ... import SolelyError
from .model import FIRING, RESOLVED, Alert
from .receiver import AlertReceiver

_ALERTS = (  # name, severity, summary
    ("CPU high", "critical", "load is over 90 % for five minutes"),
    ("Disk filling up", "warning", "full within four hours at this rate"),
    ("Latency", "warning", "the 99th percentile is over 500 ms"),
    ("Certificate ends soon", "info", "14 days are left"),
)
_HOSTS = ("web-1", "web-2", "api-1", "db-1")
_RESOLVED = 0.05  # of the alerts are resolved ones: so a window lasts for some minutes, as in a real night
_BURST = (1, 1, 1, 2, 5)  # copies sent at once: several monitors watch the same thing


async def demo(receiver: AlertReceiver) -> None:
    """Sends alerts until it is cancelled."""
    chance = random.Random()
    while True:
        alert = _alert(chance)
        try:
            await asyncio.gather(*(receiver.receive(alert) for _ in range(chance.choice(_BURST))))
        except SolelyError:  # the store is unreachable: the pages show it, and the demo continues later
            await asyncio.sleep(1.0)
        await asyncio.sleep(chance.uniform(0.2, 1.5))


def _alert(chance: random.Random) -> Alert:
    name, severity, text = chance.choice(_ALERTS)
    host = chance.choice(_HOSTS)
    return Alert(
        name=name,
        severity=severity,
        source="demo",
        fingerprint=f"demo-{name.lower().replace(' ', '-')}-{host}",
        labels={"host": host, "team": "platform"},
        annotations={"summary": f"{host}: {text}"},
        status=RESOLVED if chance.random() < _RESOLVED else FIRING,
    )
