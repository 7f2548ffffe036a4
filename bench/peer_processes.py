"""Child processes in which libraries are measured, each in the environment in which it is installed."""

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Any, Self

from .harness import Skipped, pin
from .libraries import BESIDE_OURS

ROOT = Path(__file__).parent.parent
PEERS = ROOT / ".venv-peers" / "bin" / "python"
HEAD_START = 0.1  # seconds between the request to the processes and the first turn: enough to reach all of them
ENDS_WITHIN = 10.0  # seconds that a process may take to close its client; one that is stuck is then killed


class PeerProcess:
    """One process of one library."""

    def __init__(self, library: str, url: str) -> None:
        interpreter = Path(sys.executable) if library in BESIDE_OURS else PEERS
        if not interpreter.exists():
            raise Skipped("there is no .venv-peers: run scripts/setup peers")
        self._process = subprocess.Popen(
            [interpreter, "-W", "ignore", "-m", "bench.peer_program", library, url],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip
        self._library = library

    def opened(self) -> None:
        """Waits until its client is open, and pins it to the core of the clients."""
        self._reply()
        pin(self._process.pid, 0)

    def request(self, **request: Any) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(request) + "\n")

    def result(self) -> tuple[Any, float]:
        """Returns what the program measured, and the CPU seconds that it took."""
        result, cpu = self._reply()
        return result, float(cpu)

    def _reply(self) -> Any:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise Skipped(f"{self._library} failed, as shown above")
        return json.loads(line)

    def close(self) -> None:
        with suppress(OSError):
            self._process.communicate(timeout=ENDS_WITHIN)
        self._process.kill()
        self._process.wait()


class Peers:
    """Processes of one library."""

    def __init__(self, library: str, url: str, processes: int = 1, threads: int = 1) -> None:
        self._library, self._url, self._size, self._threads = library, url, processes, threads
        self._processes: list[PeerProcess] = []
        self.cpu_us: list[float] = []  # µs of CPU per call, of each time that a rate was measured

    def __enter__(self) -> Self:
        try:
            for _ in range(self._size):
                self._processes.append(PeerProcess(self._library, self._url))
            for process in self._processes:
                process.opened()
        except BaseException:
            self.__exit__()
            raise
        return self

    def rate(self, do: str, seconds: float) -> float:
        """Returns how many "pairs", "replays" or "fresh" calls per second the first process makes."""
        self._processes[0].request(do=do, seconds=seconds)
        rate, cpu = self._processes[0].result()
        self.cpu_us.append(cpu / max(rate * seconds, 1) * 1e6)
        return float(rate)

    def turns(self, seconds: float) -> list[int]:
        """Returns how many turns each thread of each process had in that time."""
        begin = perf_counter() + HEAD_START
        for process in self._processes:
            process.request(do="turns", seconds=seconds, begin=begin, threads=self._threads)
        return [count for process in self._processes for count in process.result()[0]]

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):
                process.close()
