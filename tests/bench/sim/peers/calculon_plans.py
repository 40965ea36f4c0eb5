"""Calculon's part of against_peers, which runs this with a Python that Calculon's modules load in.

usage: calculon_plans.py CALCULON GRID

GRID is JSON: the GPUs, the batch, and what is varied. Every combination is built, compiled and run
as Calculon's own search does (calculon/llm/optimal_execution.py), in one process. Prints JSON: how
many plans there were, and the samples per second of those that Calculon finds possible.
"""
import itertools
import json
import logging
import pathlib
import sys

folder = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(folder))
import calculon  # noqa: E402
from calculon.llm import Llm, System  # noqa: E402

RECOMPUTE = {"none": "none", "selective": "attn_only", "full": "full"}


def execution(grid, tensor, stages, micro_batch, zero, recompute):
    data = grid["gpus"] // (tensor * stages)
    return Llm.Execution.from_json({
        "num_procs": grid["gpus"], "batch_size": grid["batch"], "datatype": "float16",
        "tensor_par": tensor, "pipeline_par": stages, "data_par": data,
        "tensor_par_net": 0, "pipeline_par_net": 1, "data_par_net": 1,
        "microbatch_size": micro_batch, "pipeline_interleaving": 1,
        "activation_recompute": RECOMPUTE[recompute], "optimizer_sharding": zero == 1,
        "fused_activation": True, "attention_type": "multihead", "tensor_par_comm_type": "ar",
        "tensor_par_overlap": "none", "seq_par_ag_redo": False, "data_par_overlap": False,
        "weight_offload": False, "activations_offload": False, "optimizer_offload": False,
        "training": True})


def main():
    grid = json.loads(sys.argv[2])
    model = Llm.Application(calculon.io.read_json_file(f"{folder}/models/{grid['model']}"))
    system = System(calculon.io.read_json_file(f"{folder}/systems/a100_80g.json"))
    plans, possible = 0, []
    for values in itertools.product(*grid["axes"].values()):
        plans += 1
        try:
            llm = Llm(model, logging.Logger("quiet"))
            llm.compile(system, execution(grid, *values))
            llm.run(system)
            possible.append([values, llm.get_stats_json(False)["sample_rate"]])
        except (Llm.Error, AssertionError):  # does not divide, does not fit
            pass
    print(json.dumps({"plans": plans, "possible": possible}))


main()
