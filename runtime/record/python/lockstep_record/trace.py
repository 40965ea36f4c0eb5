"""The trace of one rank."""

import contextlib
import json
import time
from pathlib import Path
from typing import Any, Iterator, Mapping, Optional


class Trace:
    """The lines of one rank's trace, format 1 (docs/trace-format.md).

    With a `live` file every line is written and flushed at once, so that it survives a hang.
    Otherwise lines are kept in memory until `write`.
    """

    def __init__(self, header: Mapping[str, Any], live: Optional[Path] = None) -> None:
        self.header = dict(header)
        self.lines: list[dict[str, Any]] = []
        self.issued = 0
        self._insert: Optional[int] = None
        self._live = open(live, "w", encoding="utf-8") if live else None
        if self._live:
            self._print(self.header)

    def _print(self, line: Mapping[str, Any]) -> None:
        assert self._live is not None
        self._live.write(json.dumps(line, separators=(",", ":")) + "\n")
        self._live.flush()

    def add(self, line: dict[str, Any]) -> None:
        if self._live:
            if "ev" in line:
                line["t"] = time.monotonic_ns()
            self._print(line)
        elif self._insert is not None:
            self.lines.insert(self._insert, line)
            self._insert += 1
        else:
            self.lines.append(line)

    @contextlib.contextmanager
    def before(self, index: int) -> Iterator[None]:
        """Lines added inside are inserted at `index` (only without a `live` file)."""
        self._insert = index
        try:
            yield
        finally:
            self._insert = None

    def end(self, how: str) -> None:
        self.add({"end": how})
        if self._live:
            self._live.close()

    def write(self, file: Path) -> None:
        """Writes all lines. Call ids are renumbered in file order, because of `before`."""
        ids: dict[int, int] = {}
        with open(file, "w", encoding="utf-8") as out:
            for line in [self.header, *self.lines]:
                if line.get("ev") == "issue":
                    ids[line["id"]] = len(ids)
                if "id" in line:
                    line = {**line, "id": ids[line["id"]]}
                out.write(json.dumps(line, separators=(",", ":")) + "\n")
