"""Bugs in the functions of the PostgreSQL store; each function alters the schema of one namespace."""

from ..deployments import Deployment
from .planting import alter_sql


def release_of_anybody(deployment: Deployment, namespace: str) -> None:
    """Release frees the key, whoever holds it now."""
    change = ("held := r.state = 'h' AND r.owner = who;", "held := r.state = 'h';")
    alter_sql(deployment, namespace, "release", change)


def fence_of_the_second(deployment: Deployment, namespace: str) -> None:
    """Fences are seconds of the clock, and the sequence is not looked at."""
    change = ("greatest(s.last_value + 1, moment) INTO", "(moment / 1000000) * 1000000 INTO")
    alter_sql(deployment, namespace, "next_fences", change)


def finish_of_anybody(deployment: Deployment, namespace: str) -> None:
    """A winner that lost its claim overwrites its successor's."""
    change = ("IF r.state = 'h' AND r.owner = who THEN", "IF r.state <> 'f' THEN r.owner := who;")
    alter_sql(deployment, namespace, "finish", change)


def take_of_the_taken(deployment: Deployment, namespace: str) -> None:
    """Take finds items whether they are taken or not."""
    alter_sql(deployment, namespace, "take", ("AND e.available <= moment", ""))


def seen_is_first(deployment: Deployment, namespace: str) -> None:
    """A mark that another owner made is answered as if it were the first."""
    alter_sql(deployment, namespace, "mark", ("(r.state = 'd' AND r.owner = who)::integer", "1"))
