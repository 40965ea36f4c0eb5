"""What the checks on a GPU share: commands that end in bounded time, and rows of one table.

A row of the table is a line of a file: RESULT, NAME, SECONDS, DETAIL, separated by tabs. RESULT is ok,
FAILED, or skipped: it could not be checked here, for the reason in DETAIL.
"""

import argparse
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

GRACE_S = 5  # between asking a command to end and killing it

_lock = threading.Lock()


def options_parser(usage: str, limit_s: float) -> argparse.ArgumentParser:
    """The options that all checks take. `limit_s`: the default for one command, in seconds."""
    parser = argparse.ArgumentParser(usage=usage.replace("%", "%%"))  # it formats what it shows
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1) // 4))
    parser.add_argument("--limit-s", type=float, default=limit_s)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--only", action="append", default=[])
    return parser


class Rows:
    """Appends to FILE, and says each row at once."""

    def __init__(self, file: Path):
        self.file = file
        self.failed = 0

    def add(self, result: str, name: str, seconds: float, detail: str) -> None:
        detail = " ".join(detail.split())
        with _lock:
            self.failed += result == "FAILED"
            with self.file.open("a") as sink:
                print(result, name, f"{seconds:.1f}", detail, sep="\t", file=sink)
            print(f"{result:<8} {name} ({seconds:.0f} s): {detail}", flush=True)

    @contextlib.contextmanager
    def check(self, name: str):
        """A check is a block that returns its details by `found.append`, and fails by CheckFailed."""
        began, found = time.monotonic(), []
        try:
            yield found
        except Skipped as why:
            self.add("skipped", name, time.monotonic() - began, str(why))
        except CheckFailed as why:
            self.add("FAILED", name, time.monotonic() - began, str(why))
        except Exception as why:  # ours: the other checks go on
            self.add("FAILED", name, time.monotonic() - began, f"the check itself: {why!r}")
        else:
            self.add("ok", name, time.monotonic() - began, "; ".join(found))


class CheckFailed(Exception):
    pass


class Skipped(Exception):
    pass


def require(condition: bool, what: str) -> None:
    if not condition:
        raise CheckFailed(what)


def end(process: "subprocess.Popen[bytes]") -> None:
    """Ends a command's session, whatever it started: first by asking."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
    process.wait()


def run(command: "list[str]", limit_s: float, log: Path, environment: "dict[str, str] | None" = None) -> int:
    """The exit status; output goes to `log`. Fails where the command does not end in time."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as sink:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT,
                                   env={**os.environ, **(environment or {})}, start_new_session=True)
        try:
            return process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise CheckFailed(f"not at its end after {limit_s:.0f} s: {command[0]} …; see {log}") from None
        finally:
            end(process)


def last_lines(log: Path, count: int = 3) -> str:
    if not log.exists():
        return f"there is no {log}"
    return " | ".join(log.read_text(errors="replace").splitlines()[-count:])


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def rank_environment(rank: int, ranks: int, port: str, gpus: int) -> "dict[str, str]":
    """As torchrun's; ranks that share a GPU are to NCCL ranks of different hosts."""
    out = {"RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
           "LOCAL_RANK": str(rank % gpus if gpus else rank), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    if 0 < gpus < ranks:
        out.update(NCCL_HOSTID=f"rank{rank}", NCCL_SOCKET_IFNAME="lo")
    return out


def table(file: Path) -> "tuple[str, int]":
    """The rows as a table, and how many failed. No row at all is a failure, too: nothing was looked at."""
    rows = [line.split("\t") for line in file.read_text().splitlines()]
    width = max((len(row[1]) for row in rows), default=0)
    lines = [f"{result:<8} {name:<{width}} {seconds:>6} s  {detail}" for result, name, seconds, detail in rows]
    counts = {kind: sum(row[0] == kind for row in rows) for kind in ("ok", "FAILED", "skipped")}
    lines.append(", ".join(f"{count} {kind}" for kind, count in counts.items()))
    return "\n".join(lines), counts["FAILED"] if rows else 1


if __name__ == "__main__":  # checks.py FILE: prints the table; 1 where something failed
    text, failures = table(Path(sys.argv[1]))
    print(text)
    sys.exit(1 if failures else 0)
