"""Faults of client processes: SIGKILL at random and at named points, SIGSTOP for parts and multiples of a ttl."""

from __future__ import annotations

import signal
import time

from solely.rules import local_clock

from ..crew import Member
from ..worker import Job
from .fault import Arena, Fault

POINTS = {  # by workload
    "w1_mutex": ("acquired", "renewed", "before release"),
    "w2_unfenced_set": ("read", "checked"),
    "w3_fenced_set": ("read", "checked"),
    "w4_fences": ("acquired",),
    "w5_dedup": ("delivered",),
    "w6_reservations": ("reserved", "sent"),
    "w7_claims": ("won", "before publish"),
    "w8_liveness": ("acquired",),
    "w9_queue": ("taken", "before ack"),
}
ONE_IN = 8  # passes of its point: a worker lives for some turns before it dies
LOOK = 0.02  # seconds


class KillClients(Fault):
    """SIGKILL of a worker at a random moment; another one takes its place."""

    kind = "kill client"

    def inject(self, arena: Arena) -> None:
        for _ in arena.moments():
            arena.rest(0.1, 0.5)
            victim = arena.crew.any(arena.chance)
            if victim is not None:
                arena.crew.kill(victim)
                arena.injected += 1
                arena.crew.replace(victim)


class KillClientsAtPoints(Fault):
    """Workers kill themselves at named points: after a grant, before a release, a publication, an ack, …"""

    kind = "kill client at point"

    def job(self, job: Job) -> Job:
        points = POINTS[job.workload]
        return job._replace(kill_at=points[job.number % len(points)], one_in=ONE_IN)

    def inject(self, arena: Arena) -> None:
        for _ in arena.moments():
            time.sleep(LOOK)
            for victim in arena.crew.killed_by_themselves():
                arena.injected += 1
                victim.job = victim.job._replace(kill_at=arena.chance.choice(POINTS[victim.job.workload]))
                arena.crew.replace(victim)


class PauseClients(Fault):
    """SIGSTOP of workers for a part or a multiple of the ttl: of some at random moments, of some at the worst one."""

    def __init__(self, ttls: float) -> None:
        self.kind = f"pause client {ttls:g} ttl"
        self._ttls = ttls

    def job(self, job: Job) -> Job:
        return job._replace(stop_at="checked", one_in=3)

    def inject(self, arena: Arena) -> None:
        stopped: dict[int, tuple[float, Member]] = {}
        pause, at_random = self._ttls * arena.ttl, local_clock()
        for _ in arena.moments():
            now = local_clock()
            if now >= at_random and (victim := arena.crew.any(arena.chance)) is not None:
                victim.send(signal.SIGSTOP)
                stopped[victim.pid] = now, victim
                at_random = now + max(0.3, pause / 2)
            for member in arena.crew.alive:
                if member.is_stopped and member.pid not in stopped:
                    stopped[member.pid] = now, member
            self._continue(arena, stopped, now - pause)
            time.sleep(LOOK)
        self._continue(arena, stopped, float("inf"))

    @staticmethod
    def _continue(arena: Arena, stopped: dict[int, tuple[float, Member]], before: float) -> None:
        for pid, (since, member) in list(stopped.items()):
            if since <= before:
                member.send(signal.SIGCONT)
                del stopped[pid]
                arena.injected += 1
