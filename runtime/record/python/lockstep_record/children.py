"""Processes, one for each rank and history."""

import contextlib
import os
import pickle
import signal
import sys
import traceback
from pathlib import Path
from typing import Any, Callable

from lockstep_record.program import RecordError


class Children:
    """Forked processes, at most `most` at once. Each writes its function's result to a file."""

    def __init__(self, most: int) -> None:
        self._most = max(1, most)
        self._running: dict[int, tuple[str, Path]] = {}

    def start(self, name: str, work: Callable[[], Any], result: Path) -> None:
        while len(self._running) >= self._most:
            self._wait_for_one()
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            self._be_child(work, result)
        self._running[child] = (name, result)

    def finish(self) -> None:
        while self._running:
            self._wait_for_one()

    def kill(self) -> None:
        for child in self._running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
        self._running.clear()

    def _wait_for_one(self) -> None:
        child, status = os.waitpid(next(iter(self._running)), 0)
        name, result = self._running.pop(child)
        code = os.waitstatus_to_exitcode(status)
        if code == 0:
            return
        log = result.with_suffix(".log")
        said = log.read_text(errors="replace").splitlines()[-12:] if log.exists() else []
        how = f"was ended by signal {-code}" if code < 0 else "could not be recorded"
        raise RecordError(f"{name} {how}:\n" + "\n".join("  " + line for line in said) +
                          f"\n  all of it: {log}")

    @staticmethod
    def _be_child(work: Callable[[], Any], result: Path) -> None:
        code = 1
        try:
            log = os.open(result.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            for stream in (1, 2):
                os.dup2(log, stream)
            value = work()
            with open(result, "wb") as out:
                pickle.dump(value, out)
            code = 0
        except RecordError as error:
            print(error, file=sys.stderr)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)  # the parent's exit handlers must not run here
