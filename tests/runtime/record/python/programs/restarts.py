"""A launcher that starts its ranks again after one of them failed, as torchrun --max-restarts does.

usage: restarts.py [VARIANT]     starts two ranks, twice
       restarts.py VARIANT 0|1   a rank. In the first attempt rank 1 raises, and its threads take their
                                 time. In the second one, before they make a group: early: rank 1
                                 raises; both: both do; killed: rank 1 is killed
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time

RANKS = 2


def launch(variant):
    for attempt in range(2):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        ranks = [subprocess.Popen([sys.executable, "-B", __file__, variant, str(attempt)], env={
            **os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
            "TORCHELASTIC_RESTART_COUNT": str(attempt)}) for rank in range(RANKS)]
        failed = ranks[1].wait() != 0
        if failed and (variant, attempt) != ("both", 1):
            ranks[0].kill()
        failed |= ranks[0].wait() != 0
    return failed


def train(variant, attempt):
    import torch
    import torch.distributed as dist
    rank = os.environ["RANK"]
    if attempt == 1 and (variant == "both" or (variant == "early" and rank == "1")):
        raise FileNotFoundError("no checkpoint")
    if attempt == 1 and variant == "killed" and rank == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    dist.init_process_group("gloo")
    for step in range(3):
        if attempt == 0 and step == 1 and dist.get_rank() == 1:
            threading.Thread(target=time.sleep, args=(6,)).start()
            raise ValueError("no such file")
        dist.all_reduce(torch.ones(4))
    dist.destroy_process_group()
    subprocess.run([sys.executable, "-c", "raise ValueError('of a helper')"])


if len(sys.argv) > 2:
    train(sys.argv[1], int(sys.argv[2]))
else:
    sys.exit(launch(sys.argv[1] if len(sys.argv) > 1 else "late"))
