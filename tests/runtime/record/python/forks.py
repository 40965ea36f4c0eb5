"""Python processes that are forked from one that has imported torch, which takes longer than most tests run.

Otherwise they are as if started again: they run the program as __main__, with arguments, environment and
output of their own, and end as Python ends.

usage of its own: python forks.py MODULE...     a line of JSON on standard input starts a process
"""

import ctypes
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Optional

PR_SET_CHILD_SUBREAPER = 36


class Fork:
    """What the tests use of a subprocess.Popen."""

    def __init__(self, pid: int, output: Path) -> None:
        self.pid, self.returncode, self._output = pid, None, output  # type: int, Optional[int], Path

    def poll(self) -> Optional[int]:
        return self._wait(os.WNOHANG)

    def wait(self) -> Optional[int]:
        return self._wait(0)

    def _wait(self, options: int) -> Optional[int]:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            if pid == self.pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def communicate(self, timeout: Optional[float] = None) -> "tuple[str, None]":
        """What it printed, after its end."""
        end = None if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            if end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
            time.sleep(0.01)
        return self._output.read_text(errors="replace"), None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Forks:
    """Starts processes; close() when done."""

    def __init__(self, modules: "list[str]", environment: "dict[str, str]") -> None:
        # Forked by a process between, which ends at once, they are children of this one.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._folder = tempfile.TemporaryDirectory()
        self._started = 0
        self._server = subprocess.Popen(
            [sys.executable, "-B", __file__, *modules], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, env={**os.environ, **environment})

    def start(self, arguments: "list[str]", environment: "dict[str, str]") -> Fork:
        """A program's file and its arguments; `environment`: in addition to the server's."""
        self._started += 1
        output = Path(self._folder.name) / str(self._started)
        output.touch()
        request = {"arguments": arguments, "environment": environment, "output": str(output)}
        assert self._server.stdin and self._server.stdout
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        return Fork(int(self._server.stdout.readline()), output)

    def close(self) -> None:
        self._server.communicate()
        self._folder.cleanup()


def serve() -> "Optional[list[str]]":
    """In a forked process: the arguments of the program that it is to run."""
    for module in sys.argv[1:]:
        importlib.import_module(module)
    for line in sys.stdin:
        request = json.loads(line)
        pid_read, pid_write = os.pipe()
        between = os.fork()
        if between != 0:
            os.waitpid(between, 0)  # now the new process is a child of the tests
            print(int(os.read(pid_read, 32)), flush=True)
            os.close(pid_read)
            os.close(pid_write)
            continue
        pid = os.fork()
        if pid != 0:
            os.write(pid_write, str(pid).encode())
            os._exit(0)
        os.close(pid_read)
        os.close(pid_write)
        output = os.open(request["output"], os.O_WRONLY | os.O_APPEND)
        for target in (1, 2):
            os.dup2(output, target)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ.update(request["environment"])
        sys.path[1:1] = filter(None, request["environment"].get("PYTHONPATH", "").split(os.pathsep))
        return list(request["arguments"])
    return None


if __name__ == "__main__":
    sys.argv = serve() or sys.exit(0)
    sys.path[0] = os.path.dirname(sys.argv[0])
    runpy.run_path(sys.argv[0], run_name="__main__")
