"""lockstep_record.py's options."""

import argparse
import importlib.util
import os
import sys
from typing import Any, Sequence

from lockstep_record.histories import derive
from lockstep_record.live import run
from lockstep_record.program import RecordError


def _load_script(path: str, arguments: Sequence[str]) -> dict[str, Any]:
    """Returns the result of the script's lockstep(). Imports the script, not as __main__."""
    file = os.path.abspath(path)
    sys.argv = [path, *arguments]
    sys.path.insert(0, os.path.dirname(file))
    spec = importlib.util.spec_from_file_location("lockstep_script", file)
    if spec is None or spec.loader is None or not os.path.exists(file):
        raise RecordError(f"{path} is not a Python script")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    hook = getattr(module, "lockstep", None)
    if hook is None:
        raise RecordError(f"{path} has no function lockstep(); write one that returns "
                          "{\"build\": ..., \"conditions\": {...}}")
    told = hook()
    if not isinstance(told, dict) or not {"build", "conditions"} <= set(told):
        raise RecordError(f"lockstep() in {path} does not return "
                          "{\"build\": ..., \"conditions\": {...}}")
    return told


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lockstep_record.py", formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="%(prog)s SCRIPT --output DIR --world-size N [OPTIONS] [-- THE SCRIPT'S ARGUMENTS]",
        description="Records what a PyTorch training script calls under every condition.",
        epilog="""SCRIPT has a function lockstep() that returns the arguments of
lockstep_record.derive, at least {"build": ..., "conditions": {...}}.

Examples:
  Can any mix of batches make this job hang or mispair its tensors?
    lockstep_record.py train.py --world-size 4 --output derived
    lockstep verify derived
  Run some of the steps for real, on all ranks, and record them:
    torchrun --nproc-per-node 2 lockstep_record.py train.py --output traces --live image+text,text
    lockstep verify traces

Exit status: 0 recorded; 1 the script could not be recorded; 2 bad usage.""")
    parser.add_argument("script", metavar="SCRIPT", help="the training script")
    parser.add_argument("--output", metavar="DIR", required=True,
                        help="where the traces go: a new folder")
    parser.add_argument("--world-size", metavar="N", type=int, help="how many ranks the job has")
    parser.add_argument("--ranks", metavar="R,R", type=_numbers,
                        help="record only these; the others do as the first")
    parser.add_argument("--backend", metavar="NAME", help="the real job's transport: gloo, nccl")
    parser.add_argument("--first-steps", metavar="N", type=int,
                        help="how many steps the program takes to settle down (1)")
    parser.add_argument("--jobs", metavar="N", type=int, help="ranks at once (default 2)")
    parser.add_argument("--live", metavar="CONDITION,...",
                        help="make these steps for real, as a rank that torchrun started")
    return parser


def main(arguments: Sequence[str]) -> int:
    mine, theirs = list(arguments), []
    if "--" in mine:
        mine, theirs = mine[:mine.index("--")], mine[mine.index("--") + 1:]
    options = _parser().parse_args(mine)
    try:
        told = _load_script(options.script, theirs)
        if options.backend:
            told["backend"] = options.backend
        if options.live is not None:
            told.pop("output", None)
            run(steps=options.live.split(","), output=options.output, **told)
            return 0
        for key in ("world_size", "first_steps", "jobs"):
            if getattr(options, key) is not None:
                told[key] = getattr(options, key)
        if options.ranks:
            told["ranks"] = options.ranks
        if "world_size" not in told:
            raise RecordError("how many ranks the job has is not known; give --world-size")
        folders = derive(output=options.output, **{k: v for k, v in told.items() if k != "output"})
    except RecordError as error:
        print(f"lockstep_record.py: {error}", file=sys.stderr)
        return 1
    for folder in folders:
        print(f"recorded; next: lockstep verify {folder}")
    return 0
