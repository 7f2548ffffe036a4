"""Faults: what is done to processes, servers, connections, clocks and stores while workers work."""

from .bounds import NoConnections, StoreFull
from .clients import KillClients, KillClientsAtPoints, PauseClients
from .clocks import ClientClockJumps, ServerClockJumps
from .failover import KillPrimary, Promotion, Restart, SentinelFailover, SlotMigration, StepDown
from .fault import Arena, Fault, NoFault
from .network import CutConnections, HalfOpen, LostReplies
from .partitions import Partition
from .servers import KillServer, PauseServer, Wipe

FAULTS: dict[str, Fault] = {
    fault.kind: fault
    for fault in (
        NoFault(),
        KillClients(),
        KillClientsAtPoints(),
        PauseClients(0.5),
        PauseClients(1.5),
        PauseClients(5.0),
        KillServer(),
        PauseServer(),
        Wipe(),
        LostReplies(),
        HalfOpen(),
        CutConnections(),
        ClientClockJumps(),
        ServerClockJumps(),
        SentinelFailover(),
        SlotMigration(),
        StepDown(),
        KillPrimary(),
        Restart(),
        Promotion(),
        StoreFull(),
        NoConnections(),
        Partition(),
    )
}

__all__ = ["FAULTS", "Arena", "Fault", "NoFault"]
