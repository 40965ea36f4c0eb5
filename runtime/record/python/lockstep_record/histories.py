"""All ranks and histories of a program, and its product.json."""

import contextlib
import functools
import hashlib
import importlib
import inspect
import json
import os
import pickle
import platform
import shutil
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any, Callable, Mapping, Optional, Sequence

import torch

from lockstep_record.children import Children
from lockstep_record.one_rank import Outcome, Plan, checked_conditions, record_alone
from lockstep_record.program import RecordError
from lockstep_record.world import BroadcastKey
from lockstep_record.wrappers import SLOW_IMPORTS


class Deriver:
    """Records all histories of all ranks; rank 0 first, because others get its broadcasts."""

    def __init__(self, plan: Plan, jobs: int) -> None:
        self.plan = plan
        self.jobs = jobs
        self.assumed: set[str] = set()
        self.raised: dict[str, str] = {}  # by rank and first condition
        self._firsts = list(plan.conditions)
        # The first rank that makes a group, which ranks it holds and where: by history and name.
        self._groups: dict[tuple[int, str], tuple[int, list[int], Optional[str]]] = {}

    def derive(self) -> list[Path]:
        """Returns the folders with a product.json: one; or, if rank 0's broadcasts depend on its
        first step, one for each first step of rank 0."""
        work = Path(tempfile.mkdtemp(prefix="lockstep-record-"))  # logs remain if this fails
        root = self.plan.ranks[0]
        traces = {(root, f, f): work / f"rank_{root}.first-{f}.jsonl"
                  for f in range(len(self._firsts))}
        outcomes = self._record({key: (path, {}) for key, path in traces.items()})
        sent = [outcomes[root, f, f].sent if root == 0 else {} for f in range(len(self._firsts))]
        # Histories may end early (a step raised), so their broadcasts are compared on the common
        # keys.
        longest = max(sent, key=len)
        alike = all(longest[key] == value for one in sent for key, value in one.items())
        roots = [sent.index(longest)] if alike else list(range(len(sent)))
        jobs = {(rank, first, r): (work / f"rank_{rank}.first-{first}.root-{r}.jsonl", sent[r])
                for r in roots for first in range(len(self._firsts))
                for rank in self.plan.ranks[1:]}
        self._record(jobs)
        folders = []
        for r in roots:
            folder = self.plan.output if alike else self.plan.output / f"root-{r}"
            for first in range(len(self._firsts)):
                self._lay_out(folder / f"first-{first}", {
                    rank: jobs[rank, first, r][0] if rank != root else traces[root, first, first]
                    for rank in self.plan.ranks})
            folders.append(folder)
        shutil.rmtree(work)
        return folders

    def _record(self, jobs: Mapping[tuple[int, int, int], tuple[Path, Mapping[BroadcastKey, Any]]]
                ) -> dict[tuple[int, int, int], Outcome]:
        children = Children(self.jobs)
        try:
            for (rank, first, _), (path, sent) in jobs.items():
                name = self._firsts[first]
                children.start(f"rank {rank}, first step \"{name}\",",
                               functools.partial(record_alone, self.plan, rank, name, path, sent),
                               path.with_suffix(".outcome"))
            children.finish()
        finally:
            children.kill()
        outcomes = {}
        for (rank, first, root), (path, _) in jobs.items():
            with open(path.with_suffix(".outcome"), "rb") as file:
                outcome = pickle.load(file)  # written by our own child
            outcomes[rank, first, root] = outcome
            self.assumed |= outcome.assumed
            if outcome.raised:
                self.raised[f"rank {rank}, first step \"{self._firsts[first]}\""] = outcome.raised
            for name, (members, place) in outcome.groups.items():
                self._check_group(first, name, rank, members, place)
        return outcomes

    def _check_group(self, first: int, name: str, rank: int, members: list[int],
                     place: Optional[str]) -> None:
        """PyTorch numbers the groups of a rank: those of one number must be one group."""
        other, theirs, _ = self._groups.setdefault((first, name), (rank, members, place))
        if theirs != members:
            raise RecordError(
                f"rank {rank} makes process groups in another order than rank {other}: its group "
                f"{name} ({place or 'no line known'}) holds ranks {', '.join(map(str, members))}, and "
                f"there {', '.join(map(str, theirs))}. They would wait for the wrong ranks, or talk "
                "to them. Call new_group on all ranks, in one order")

    def _lay_out(self, folder: Path, traces: Mapping[int, Path]) -> None:
        """Writes one trace for each rank of the world."""
        folder.mkdir(parents=True)
        for rank in range(self.plan.world_size):
            like = rank if rank in traces else self.plan.ranks[0]
            lines = traces[like].read_text(encoding="utf-8").splitlines(keepends=True)
            if rank != like:
                self._check_alike(lines, like)
            header = {**json.loads(lines[0]), "rank": rank}
            lines[0] = json.dumps(header, separators=(",", ":")) + "\n"
            (folder / f"rank_{rank}.trace.jsonl").write_text("".join(lines), encoding="utf-8")

    def _check_alike(self, lines: Sequence[str], rank: int) -> None:
        for line in map(json.loads, lines):
            # Point-to-point calls and sub-groups depend on the rank, so one rank cannot stand for
            # others.
            message = line.get("op") in ("send", "recv", "recv_any")
            if message or line.get("group", "world") != "world":
                raise RecordError(
                    f"rank {rank} sends messages or uses groups that not all ranks are in, so that "
                    "others cannot be taken to do the same; record all ranks (leave out --ranks)")


def _ranks(ranks: Any, world_size: int) -> list[int]:
    if world_size < 1:
        raise RecordError("the world has no rank; give --world-size")
    if ranks == "all":
        return list(range(world_size))
    out = sorted(set(ranks))
    if not out or out[0] < 0 or out[-1] >= world_size:
        raise RecordError(f"ranks {list(ranks)} are not ranks of a world of {world_size}")
    return out


def _assumed(plan: Plan, further: Sequence[str], file: str) -> list[str]:
    """What the verdict rests on, as sentences. `file`: of the program."""
    out = [
        "what a rank calls in a step depends on that step's condition and on the first step's",
        "sums and gathers are answered as if all ranks held what the rank holds; messages are "
        "zeros",
        *further,
        f"recorded by lockstep_record.py with PyTorch {torch.__version__} and Python "
        f"{platform.python_version()}",
    ]
    if plan.first_steps > 1:
        out.append(f"step 0 stands for the first {plan.first_steps} steps, in which a rank meets "
                   "the same condition")
    if len(plan.ranks) < plan.world_size:
        out.append(f"ranks other than {', '.join(map(str, plan.ranks))} do what rank "
                   f"{plan.ranks[0]} does")
    if os.path.exists(file):
        digest = hashlib.sha256(Path(file).read_bytes()).hexdigest()
        out.append(f"{os.path.basename(file)} has the SHA-256 {digest}")
    return out


def derive(build: Callable[[], Any], conditions: Mapping[str, Any], world_size: int, output: Any, *,
           has: Optional[Mapping[str, Sequence[str]]] = None, ranks: Any = "all",
           choice: str = "free", allowed: Sequence[Mapping[str, Any]] = (),
           assumptions: Sequence[str] = (), only_steps: Optional[int] = None, first_steps: int = 1,
           backend: Optional[str] = None, jobs: int = 2,
           program: Optional[str] = None) -> list[Path]:
    """Records a program for `lockstep verify`.

    build: creates the program in a separate process, where `torch.distributed` is initialised (a
        second init_process_group does nothing), and returns its step function or a `Program`.
    conditions: by name, a batch, a function that returns one, or a `Condition`.
    output: a new or empty folder. Gets product.json, and a trace for each history and rank.
    ranks: "all", or the ranks to run; the others are assumed to do what the first of them does.
    has, choice, allowed, only_steps: as in product.json (docs/product.md).
    first_steps: the number of steps until the program's calls no longer change. They are recorded
        as one step, step 0, all under the first condition.
    backend: the transport of the real job, if it differs from the one the program asks for here.
    jobs: the number of ranks to record at once, each with one thread.

    Returns the folders to verify: `output`; or, if rank 0's broadcasts depend on its first step,
    one for each first step of rank 0. Raises RecordError if the program cannot be recorded;
    exceptions of its steps are part of the traces. Forks, so call it before autograd or CUDA have
    run in this process.
    """
    output = Path(output)
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise RecordError(f"{output} is not a new or empty folder")
    if first_steps < 1:
        raise RecordError("\"first_steps\" is at least 1")
    if choice not in ("free", "agreed"):
        raise RecordError("\"choice\" is \"free\" or \"agreed\"")
    file = os.path.abspath(inspect.getsourcefile(build) or "program")
    plan = Plan(build, checked_conditions(conditions, has or {}), world_size, output,
                _ranks(ranks, world_size), backend, os.path.dirname(file), first_steps)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a thread pool would not survive the fork
    for module in SLOW_IMPORTS:  # import once, before the ranks fork
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    deriver = Deriver(plan, jobs)
    folders = deriver.derive()
    torch.set_num_threads(threads)
    product = {
        "product": 1, "program": program or os.path.basename(file), "world_size": world_size,
        "assumptions": _assumed(plan, [*sorted(deriver.assumed), *assumptions], file),
        "conditions": [{"name": n, "phase": c.phase, "has": list(c.has)}
                       for n, c in plan.conditions.items()],
        "choice": choice, "allowed": [],
        "histories": [{"first": n, "folder": f"first-{i}"} for i, n in enumerate(plan.conditions)],
        "steps": plan.later_steps(),
    }
    if only_steps is not None:
        product["only_steps"] = only_steps
    for folder in folders:
        rules = [dict(rule) for rule in allowed]
        if len(folders) > 1:
            first = list(plan.conditions)[int(folder.name.removeprefix("root-"))]
            rules.insert(0, {"ranks": [0], "steps": [0], "conditions": [first]})
        text = json.dumps({**product, "allowed": rules}, indent=1)
        (folder / "product.json").write_text(text + "\n", encoding="utf-8")
    for who, what in deriver.raised.items():
        print(f"{who}: raised in {textwrap.shorten(what, 100)}", file=sys.stderr)
    return folders
