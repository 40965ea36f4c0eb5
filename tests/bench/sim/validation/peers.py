"""What other predictors of training time say of their own errors, beside ours.

Only what its authors wrote where anyone can read it, and what their program prints. Ours is computed
again where the rows are the same.
"""

# (name, what it reports, of what, source)
CLAIMS = [
    ("[vTrain](https://arxiv.org/abs/2312.12391)", "mean 8.37 % (one node), 14.73 % (several)",
     "Megatron-DeepSpeed on 8, and on up to 512 A100",
     "MICRO 2024; [its authors' university](https://ee.kaist.ac.kr/en/research-achieve/"
     "ee-professor-minsoo-rhus-research-team-develops-a-simulation-framework-called-vtrain)"),
    ("[Calculon](https://doi.org/10.1145/3581784.3607102)", "mean 3.65 %, largest 8.87 %",
     "eight steps of Megatron-LM on 8 to 512 A100: arXiv 2205.05198, table 5",
     "SC 2023; what `calculon llm-validation` prints (commit caa4b11)"),
    ("[Lumos](https://arxiv.org/abs/2504.09307)", "mean 3.3 %, of replays",
     "GPT-3 variants on up to 512 H100", "MLSys 2025"),
    ("[SimAI](https://www.usenix.org/conference/nsdi25/presentation/wang-xizheng-simai)",
     "mean 1.9 % (\"98.1 % alignment\")", "LLM training, from laboratories to industry", "NSDI 2025"),
    ("[Multiverse](https://www.usenix.org/conference/nsdi25/presentation/gui)", "below 3.0 %",
     "LLM training on clusters of up to 54,000 GPUs", "NSDI 2025"),
    ("[Charon](https://arxiv.org/abs/2605.17164)", "below 5.35 %, of training on many GPUs below 3.74 %",
     "LLM training and inference", "MLSys 2026"),
    ("[Phantora](https://arxiv.org/abs/2505.01616)", "\"comparable to static workload simulation\"",
     "three frameworks for LLM training", "NSDI 2026; its abstract has no figure"),
    ("[Echo](https://arxiv.org/abs/2412.12487)", "mean 8 %", "GPT-175B, Megatron-LM on 96 H800",
     "preprint of 2024"),
    ("[Maya](https://arxiv.org/abs/2503.20191)", "below 5 %", "several models and strategies",
     "EuroSys 2026"),
    ("[ATLAHS](https://arxiv.org/abs/2505.08936)", "below 5 %", "traced AI and HPC applications",
     "SC 2025"),
    ("[Proteus](https://arxiv.org/abs/2306.02267)", "mean 3.0 %",
     "DNN training on three kinds of machines", "IEEE TPDS 2024"),
    ("[DistSim](https://arxiv.org/abs/2306.08423)", "below 4 %",
     "DNN training with hybrid parallelism", "CF 2023"),
]

# By name of a table: how its rows are called, and how many vTrain's repository has (data/).
SAME_ROWS = {"vtrain_measured_single": ("one node", 1440), "vtrain_measured_multi": ("several nodes", 109)}


def section(answers):
    """Markdown. `answers`: of `lockstep calibrate check`, by name of a table; None without the tables
    whose rows are the same."""
    if not SAME_ROWS.keys() <= answers.keys():
        return None
    ours = []
    for name, (words, published) in SAME_ROWS.items():
        unseen = answers[name]["held_out"]["time"]
        ours.append(f"{words} {100 * unseen['mape']:.1f} % ({unseen['count']} rows that no calibration\n"
                    f"  saw, of {published:,} that vTrain published)")
    rows = [f"| {' | '.join(claim)} |" for claim in CLAIMS]
    return ("What the authors of other predictors report of their own. All but the first two were\n"
            "measured on other jobs and machines than those above, few of which are public: **a smaller\n"
            "figure in one row than in another does not say that this predictor is the better one.**\n"
            "vTrain and DistSim profile kernels on GPUs first, Echo traces a device, Lumos and ATLAHS\n"
            "replay traces of the job, and Phantora runs the framework itself on a GPU, as their abstracts\n"
            "say.\n\n"
            "| predictor | error that it reports | of what | where |\n|---|---|---|---|\n"
            + "\n".join(rows) + "\n\nOf two of them the same rows are predicted here:\n\n"
            f"- **vTrain's**, on average: {'; '.join(ours)}.\n"
            "  For vTrain's figures its repository has 1,440 and 108 configurations (`config/validation`).\n"
            "- **Calculon's**: [beside Calculon](simulate-workloads.md#beside-calculon).\n")
