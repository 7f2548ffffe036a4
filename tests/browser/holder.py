"""Another process: takes a lock straight from the store, says when, and says how it ended.

python -m tests.browser.holder URL KEY TTL
"""

from __future__ import annotations

import sys
import time

import solely


def main() -> None:
    url, key, ttl = sys.argv[1], sys.argv[2], float(sys.argv[3])
    with solely.Client(url) as once:
        print("ready", flush=True)
        sys.stdin.readline()
        lease = once.lock(key, ttl=ttl, purpose="deploy of the web")
        print(f"held {time.time()}", flush=True)
        ends = time.monotonic() + 30
        while not lease.lost and time.monotonic() < ends:
            time.sleep(0.02)
        print(f"lost {lease.lost_how}", flush=True)


if __name__ == "__main__":
    main()
