"""The simulator's commands, asked from Python: options in, what they print as JSON out."""
import json
import pathlib
import subprocess
import tempfile


class Refused(Exception):
    """The command could not answer; its message says why."""


class Lockstep:
    """A `lockstep` program; its commands' answers as dictionaries."""

    def __init__(self, program):
        self.program = str(program)

    def ask(self, *arguments):
        """(exit status, JSON of the answer). Raises Refused for a status above 1."""
        command = [self.program, *map(str, arguments), "--quiet", "--output", "json=-"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1):
            raise Refused(done.stderr.strip() or f"it ended with {done.returncode}")
        return done.returncode, json.loads(done.stdout)

    def collective(self, op, algorithm, ranks, size, alpha, beta, *more):
        """Picoseconds of one collective."""
        return self.ask("simulate", "collective", "--op", op, "--algorithm", algorithm,
                        "--ranks", ranks, "--bytes", size, "--alpha", alpha, "--beta", beta,
                        *more)[1]["time_ps"]

    def together(self, ranks, sizes, alpha, beta):
        """Picoseconds of each of several ring all-reduces that share their links."""
        answer = self.ask("simulate", "collective", "--ranks", ranks, "--bytes", ",".join(sizes),
                          "--alpha", alpha, "--beta", beta, "--level", "message")[1]
        return [one["time_ps"] for one in answer["collectives"]]

    def pipeline(self, schedule, stages, micro_batches, forward, backward, *more):
        return self.ask("simulate", "pipeline", "--schedule", schedule, "--stages", stages,
                        "--micro-batches", micro_batches, "--forward", forward,
                        "--backward", backward, *more)[1]

    def trace(self, programs, alpha, beta):
        """The programs of all ranks, each a list of lines (dictionaries), simulated."""
        with tempfile.TemporaryDirectory() as folder:
            for rank, lines in enumerate(programs):
                header = {"header": 1, "rank": rank, "world_size": len(programs)}
                text = "\n".join(json.dumps(line) for line in [header, *lines, {"end": "clean"}])
                (pathlib.Path(folder) / f"rank_{rank}.trace.jsonl").write_text(text + "\n")
            return self.ask("simulate", "trace", folder, "--alpha", alpha, "--beta", beta)[1]


class Program:
    """A rank's lines, in the trace format (docs/trace-format.md)."""

    def __init__(self, *groups):
        self.lines = [{"group": name, "ranks": ranks} for name, ranks in groups]
        self.calls = 0

    def work(self, nanos):
        self.lines.append({"ev": "span", "name": "work", "t": 0, "dur": nanos})
        return self

    def holds(self, step, *modalities):
        self.lines.append({"ev": "modality", "n": step, "has": list(modalities)})
        return self

    def call(self, op, elements=None, group="world", out=None, **more):
        """Blocks, unless `async` is among the further keys."""
        line = {"ev": "issue", "id": self.calls, "g": group, "op": op, "step": 0}
        if elements is not None:
            line.update({"in": [[elements]], "out": [[elements if out is None else out]],
                         "dtype": "float32"})
        self.lines.append(line | more)
        self.calls += 1
        return self

    def wait(self, call):
        self.lines += [{"ev": "wait", "id": call}, {"ev": "waited", "id": call}]
        return self
