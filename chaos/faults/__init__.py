"""Faults: what is done to processes, servers, connections, clocks and stores while workers work."""

from .clients import KillClients, KillClientsAtPoints, PauseClients
from .fault import Arena, Fault, NoFault
from .network import CutConnections, HalfOpen, LostReplies
from .servers import KillServer, PauseServer, Wipe

ANY_CLIENT: tuple[Fault, ...] = (
    NoFault(),
    KillClients(),
    KillClientsAtPoints(),
    PauseClients(0.5),
    PauseClients(1.5),
    PauseClients(5.0),
)
ANY_SERVER: tuple[Fault, ...] = (KillServer(), PauseServer(), Wipe(), LostReplies(), HalfOpen(), CutConnections())

FAULTS: dict[str, Fault] = {fault.kind: fault for fault in (*ANY_CLIENT, *ANY_SERVER)}

__all__ = ["FAULTS", "Arena", "Fault", "NoFault"]
