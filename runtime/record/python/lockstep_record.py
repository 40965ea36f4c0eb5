#!/usr/bin/env python3
"""Records the collectives of a PyTorch training program, for `lockstep verify`.

Can any mix of batches over the ranks make a job hang, or match the wrong tensors? This command runs
the program's own training step, one rank at a time and without the other ranks, once for every
*condition* that a rank can be in (its batch holds images or not, ...), and records every
collective that it calls. `lockstep verify` then decides for all mixes and any number of steps.
Needs torch (tested with 2.11 and 2.15) and the standard library; no GPU and no network.

Add one function to the training script:

    def lockstep():
        return {"build": make_trainer,          # () -> a function that trains one step: step(batch)
                "conditions": {"image+text": batch_a, "text": batch_b}}

and call on the command line

    python runtime/record/python/lockstep_record.py train.py --world-size 4 --output derived
    lockstep verify derived

or, from Python, `lockstep_record.derive(build=..., conditions=..., world_size=4, output=...)`.
docs/record-python.md says what is recorded and what is assumed.

This file is the command. The package `lockstep_record`, the folder beside it, does the work: copy
both.
"""

import os
import sys

_HERE = os.path.dirname(os.path.realpath(__file__))


def main() -> int:
    if not os.path.exists(os.path.join(_HERE, "lockstep_record", "__init__.py")):
        print(f"lockstep_record.py: the folder lockstep_record is not in {_HERE}; copy it there, "
              "beside this file", file=sys.stderr)
        return 2
    try:
        import torch  # noqa: F401  # pylint: disable=unused-import
    except ImportError as missing:
        if {"-h", "--help"} & set(sys.argv[1:]):
            print(__doc__)
            print("This Python cannot import torch; with one that can, --help lists the options.")
            return 0
        print(f"lockstep_record.py: this Python ({sys.executable}) cannot import torch: {missing}; "
              "use the one that the script runs with", file=sys.stderr)
        return 2
    if sys.path[0] != _HERE:
        sys.path.insert(0, _HERE)  # the package, for us and for the script; `python -P` leaves it out
    from lockstep_record.command_line import main as run
    return run(sys.argv[1:])


if __name__ != "__main__":  # Python prefers the folder, where it is there
    raise ImportError("lockstep_record.py is a command; the package lockstep_record, the folder that "
                      "belongs beside it, is missing")
sys.exit(main())
