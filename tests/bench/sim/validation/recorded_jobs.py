"""Public profiles of torch.profiler, replayed with their own calls, against what they recorded.

The folder holds checkouts of the repositories that publish them, by the repository's name.
"""

# What it is, files in the folder (one per rank), which ranks of how many.
JOBS = [
    ("DLRM, 1 step", "param/et_replay/tests/inputs/dlrm_kineto.tar.gz", "8 of 8"),
    ("nccl_parser_config, 3 steps",
     "HolisticTraceAnalysis/tests/data/nccl_parser_config/nccl_data.json.gz", "1 of 2"),
    ("df_index_resolver, 5 steps",
     "HolisticTraceAnalysis/tests/data/df_index_resolver/df_index_resolver.json.gz", "1 of 2"),
    ("negative_queue_length, 5 steps",
     "HolisticTraceAnalysis/tests/data/negative_queue_length_values_check/rank0.json.gz",
     "1 of 16"),
    ("trace_diff control, 6 steps", "HolisticTraceAnalysis/tests/data/trace_diff/control/control.json.gz",
     "1 of 8"),
    ("trace_diff test, 6 steps", "HolisticTraceAnalysis/tests/data/trace_diff/test/test.json.gz",
     "1 of 2"),
    ("ns_resolution, 5 steps",
     "HolisticTraceAnalysis/tests/data/ns_resolution_trace/"
     "rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz", "1 of 1"),
    ("AlexNet",
     "HolisticTraceAnalysis/tests/data/critical_path/alexnet/"
     "benchmark_result_2869224_1695835535_trace.json.gz", "1 of 1"),
    ("mi250_minitoy (ROCm), 3 steps",
     "HolisticTraceAnalysis/tests/data/amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz",
     "1 of 1"),
    ("ResNet", "param/et_replay/tests/inputs/resnet_kineto.json.gz", "1 of 1"),
    ("linear layers", "param/et_replay/tests/inputs/linear_kineto.json.gz", "1 of 1"),
]

GOAL = 3.3  # percent: the mean error that Lumos reports for replays of its own traces


def milliseconds(picos):
    return f"{picos / 1e9:.1f}"


def share_of(errors):
    """Their mean, in percent."""
    return 100 * sum(errors) / len(errors) if errors else 0


def section(lockstep, folder):
    """(Markdown, what is missed)."""
    rows, missed, errors, waiting = [], [], [], []
    for name, file, ranks in JOBS:
        path = folder / file
        if not path.is_file():
            missed.append(f"{path} is not there")
            continue
        _, answer = lockstep.ask("simulate", "trace", path, "--recorded-calls")
        _, free = lockstep.ask("simulate", "trace", path, "--recorded-calls", "--scale-calls", 0)
        _, fast = lockstep.ask("simulate", "trace", path, "--recorded-calls", "--slow",
                               "0-1023=0.5")
        per_rank = [abs(r["time_ps"] / r["recorded_ps"] - 1) for r in answer["ranks"]]
        errors += per_rank
        measured, predicted = answer["recorded_ps"], answer["time_ps"]
        waits = max(r["waiting_ps"] for r in answer["ranks"])
        waiting += [e for e, r in zip(per_rank, answer["ranks"])
                    if r["waiting_ps"] > r["recorded_ps"] / 100]
        rows.append(f"| {name} | {ranks} | {milliseconds(waits)} | {milliseconds(measured)} | "
                    f"{milliseconds(predicted)} | "
                    f"{100 * (predicted / measured - 1):+.1f} % | {100 * max(per_rank):.1f} % | "
                    f"{milliseconds(free['time_ps'])} | {milliseconds(fast['time_ps'])} |")
    mean = share_of(errors)
    text = ["How well does the program that is made of a profile (who waits for whom) hold? Public profiles of",
            "torch.profiler (of facebookresearch's param and HolisticTraceAnalysis; the files are named in",
            "`tests/bench/sim/validation/recorded_jobs.py`) were simulated by `lockstep simulate trace FILE",
            "--recorded-calls`. How long the kernels, the calls and the host between them took is recorded; when",
            "each begins is simulated. Nothing is fitted. Recorded times make up most of the result, so the error",
            "says little about predictions for another machine.",
            "",
            "Times are milliseconds of the profiled steps, or of the whole file if it has none. `waits` is how long",
            "the host is blocked in the simulation: a row in which it never is says little. `largest` is the largest",
            "error of a single rank. `no calls` and `fast` answer what-ifs that nobody measured: calls that take no",
            "time (`--scale-calls 0`), and a device that works twice as fast (`--slow`).",
            "",
            "| job | ranks | waits | measured | simulated | error | largest | no calls | fast |",
            "|---|---|--:|--:|--:|--:|--:|--:|--:|", *rows, "",
            f"Mean error over {len(errors)} ranks: {mean:.1f} %, largest {100 * max(errors, default=0):.1f} %; "
            f"over the {len(waiting)} whose",
            f"hosts wait for more than a hundredth of the time: {share_of(waiting):.1f} %. {GOAL} % is what "
            "Lumos reports for",
            "replays of its own traces ([arXiv 2504.09307](https://arxiv.org/abs/2504.09307)), which are other",
            "ones.", "",
            "In negative_queue_length the device is idle for long although work is queued: what it waits for",
            "is not in the profile, in which 872 of 7,747 kernels lack their launch, too."]
    if mean > GOAL:
        missed.append(f"recorded jobs: {mean:.1f} %, and {GOAL} % is the goal")
    return "\n".join(text) + "\n", missed
