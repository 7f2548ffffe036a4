"""scripts/bench tables FILES: the tables of docs/scale.md, in Markdown, from what `scripts/bench costs` printed."""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

STORES = {"redis": "Redis", "postgres": "PostgreSQL", "sqlite": "SQLite"}
AT_REST = {
    "bytes_per_lease": "bytes of the client per lease that is held and renewed",
    "bytes_per_waiter": "bytes of the client per task that waits",
    "client_us_per_renewal": "µs of the client's CPU per renewal",
    "store_us_per_renewal": "µs of the store's CPU per renewal",
}


def tables(result: dict[str, Any]) -> Iterator[str]:
    """Yields the lines."""
    stores = {key: name for key, name in STORES.items() if key in result}
    yield "| call | " + " | ".join(f"{name}: client + store" for name in stores.values()) + " |"
    yield "|---" * (len(stores) + 1) + "|"
    for call in next(iter(result[store] for store in stores))["calls"]:
        yield f"| {call} | " + " | ".join(_cpu(result[store]["calls"][call]) for store in stores) + " |"
    yield ""
    served = [store for store in stores if "sent_bytes" in result[store]["calls"]["renew"]]
    yield "| call | " + " | ".join(f"{stores[store]}: bytes sent, received, round trips" for store in served) + " |"
    yield "|---" * (len(served) + 1) + "|"
    for call, costs in result[served[0]]["calls"].items() if served else ():
        if "sent_bytes" in costs:
            yield f"| {call} | " + " | ".join(_bytes(result[store]["calls"][call]) for store in served) + " |"
    yield ""
    yield from _rows("bytes in the store per", "bytes_per_entry", result, stores)
    yield ""
    yield from _rows("at rest", "at_rest", result, stores, AT_REST)


def _cpu(costs: dict[str, float]) -> str:
    spent = [costs["client_us"], *([costs["store_us"]] if costs["store_us"] else [])]
    return " + ".join(f"{each:.1f}" if each < 100 else f"{each:,.0f}" for each in spent) + " µs"


def _bytes(costs: dict[str, float]) -> str:
    return f"{costs['sent_bytes']:.0f}, {costs['received_bytes']:.0f}, {costs['round_trips']:.3g}"


def _rows(
    head: str, part: str, result: dict[str, Any], stores: dict[str, str], names: dict[str, str] | None = None
) -> Iterator[str]:
    yield f"| {head} | " + " | ".join(stores.values()) + " |"
    yield "|---" * (len(stores) + 1) + "|"
    for key in names or result[next(iter(stores))][part]:
        values = (f"{result[store][part][key]:,.0f}" for store in stores)
        yield f"| {names[key] if names else key} | " + " | ".join(values) + " |"


def main(arguments: list[str]) -> int:
    """Prints the tables."""
    parser = argparse.ArgumentParser(prog="scripts/bench tables", description=__doc__)
    parser.add_argument("results", type=Path, nargs="+", help="what `scripts/bench costs` printed; a later one counts")
    result: dict[str, Any] = {}
    for file in parser.parse_args(arguments).results:
        result |= json.loads(file.read_text())
    print("\n".join(tables(result)))
    return 0
