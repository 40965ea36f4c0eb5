"""Records the collectives of a PyTorch training program, for `lockstep verify`.

lockstep_record.py, beside this folder, is the command and says how it is used;
docs/record-python.md says what is recorded and what is assumed.

Each rank is a forked process with a process group of PyTorch's `fake` backend, in which the
dispatcher's c10d operators are replaced by kernels that record the call and complete it at once.
DDP's Reducer, FSDP2, DTensor, functional collectives and `torch.distributed` all use these
operators, whether they are called from Python or from C++. The kernels of `fake` itself are not
enough: in 2.11 the Reducer does not accept their futures, and they do not compute sums.

    program.py       what a training script provides
    histories.py     derive(): every rank, in every history, by forked processes (children.py)
    live.py          run(): the steps for real, as one of the ranks that torchrun started
    one_rank.py      one rank: builds the program and runs its steps
    recorder.py      records calls: into trace.py, with names.py and source_lines.py
    kernels.py       c10d's operators, which hand every call to the recorder
    wrappers.py      PyTorch's functions that say what the operators do not: names, groups, batches
    world.py         answers in place of the other ranks
"""

from lockstep_record.histories import derive
from lockstep_record.live import run
from lockstep_record.program import Condition, Program, RecordError
from lockstep_record.recorder import carries

__all__ = ["Condition", "Program", "RecordError", "carries", "derive", "run"]
