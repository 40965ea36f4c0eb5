"""Times all_reduce with and without the recorder; see torch_recorder, which calls this.

usage: torch_recorder.py LIBRARY CALLS REPEATS RANKS     (the job)
       torch_recorder.py --rank CALLS                    (one of its processes)
"""

import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

WARM_UP = 200
BLOCK = 500  # calls: the best of many such is the least disturbed by other programs


def be_rank(calls: int) -> None:
    """Prints the seconds of wall and of CPU time that a call took in the best block of calls, on rank 0."""
    import torch
    import torch.distributed as dist

    dist.init_process_group(
        "gloo",
        init_method="file://" + os.environ["MEETING_PLACE"],
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
    )
    value = torch.ones(1)
    for _ in range(WARM_UP):
        dist.all_reduce(value)
    walls, cpus = [], []
    for _ in range(max(1, calls // BLOCK)):
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(BLOCK):
            dist.all_reduce(value)
        walls.append((time.perf_counter() - wall) / BLOCK)
        cpus.append((time.process_time() - cpu) / BLOCK)
    if dist.get_rank() == 0:
        print(min(walls), min(cpus))
    dist.destroy_process_group()


def run_job(calls: int, ranks: int, library: str) -> tuple[float, float]:
    """The same of a job; `library`: what is preloaded, empty: nothing."""
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        environment = dict(os.environ, WORLD_SIZE=str(ranks), MEETING_PLACE=str(place / "meeting"))
        environment["OMP_NUM_THREADS"] = "1"
        if library:
            environment.update(LD_PRELOAD=library, LOCKSTEP_RECORD_DIR=str(place / "traces"))
        command = [sys.executable, __file__, "--rank", str(calls)]
        jobs = [
            subprocess.Popen(command, env=dict(environment, RANK=str(rank)), stdout=subprocess.PIPE, text=True)
            for rank in range(ranks)
        ]
        said = [job.communicate()[0] for job in jobs]
        if any(job.returncode != 0 for job in jobs):
            sys.exit("torch_recorder: a process failed")
        if library and len(list((place / "traces").glob("rank_*.ring"))) != ranks:
            sys.exit("torch_recorder: nothing was recorded; was the library built for this torch?")
        wall, cpu = said[0].split()
        return float(wall), float(cpu)


def main() -> None:
    if sys.argv[1] == "--rank":
        return be_rank(int(sys.argv[2]))
    library = sys.argv[1]
    calls, repeats, ranks = (int(argument) for argument in sys.argv[2:5])
    times: dict[str, list[tuple[float, float]]] = {"": [], library: []}
    for _ in range(repeats):
        for preloaded in times:
            times[preloaded].append(run_job(calls, ranks, preloaded))
    without, with_recorder = times.values()
    processes = "1 process" if ranks == 1 else f"{ranks} processes"
    print(f"all_reduce of one float, Gloo, {processes}, {calls} calls, median of {repeats} jobs' best {BLOCK}")
    for i, kind in enumerate(("wall", "CPU")):
        a = statistics.median(t[i] for t in without) * 1e6
        b = statistics.median(t[i] for t in with_recorder) * 1e6
        print(f"  {kind:4}  without {a:7.2f} us, with the recorder {b:7.2f} us: {b / a:.2f} times, {b - a:+.2f} us")


main()
