"""Plain threads: one at a time, once, and the same result for all.

    SOLELY_URL=sqlite:///solely.db python -m examples.threads

Start it several times at once: the processes share the store, so the mail is sent by one thread of one process.
"""

# ruff: noqa: T201 (an example prints)

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import solely

THREADS = 8


def main() -> None:
    with solely.Client() as once, ThreadPoolExecutor(THREADS) as pool:
        balance = {"before": 0, "after": 0}

        def deposit(amount: int) -> None:
            with once.lock("account:7", ttl=30, wait=60):  # one thread of all processes at a time
                balance["before"] = balance["after"]
                balance["after"] = balance["before"] + amount

        def welcome(thread: int) -> bool:
            return once.first("welcome-mail:ann", ttl=86_400)  # True for exactly one caller a day

        @once.idempotent(key="charge:{order}", keep=86_400)
        def charge(order: str) -> str:
            return f"receipt of {order}"

        list(pool.map(deposit, range(1, THREADS + 1)))
        sent = sum(pool.map(welcome, range(THREADS)))
        receipts = set(pool.map(charge, ["order-7"] * THREADS))

    print(f"balance {balance['after']}, mails sent {sent}, receipts {sorted(receipts)}")


if __name__ == "__main__":
    main()
