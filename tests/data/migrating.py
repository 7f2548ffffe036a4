"""Brings tables up to date as a process of its own: `python migrating.py URL PACKAGE`, after a line on its input."""

from __future__ import annotations

import asyncio
import json
import sys

from solely.data import migrate, open_database


async def main(url: str, package: str) -> None:
    database = open_database(url)
    await database.check()
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(await migrate(database, "notes", package)))
    await database.close()


asyncio.run(main(*sys.argv[1:]))
