"""Published measurements against `lockstep calibrate check`."""
import json
import re

# By a part of the file's name: the most that the mean error of a figure may be, in percent.
GOALS = {
    "nccl": {"time": 5},
    "vtrain_measured_multi": {"time": 10},
    "vtrain_measured_single": {"time": 8},
    "megatron": {"time": 7},
    "torchtitan": {"tokens/s": 10, "memory": 10},
    "nemo_h100": {"time": 5},
    "mlperf_training_5.1_b200": {"time": 8},
    # The recipe and the software of two of its three rows are a year newer than what the machine's
    # shares are from.
    "mlperf_training_5.1_h200": {"time": 12},
    "mlperf_training_5.1_flux1_b200": {"time": 8},
    # One of four steps is of 1,152 GPUs with eight images each, in which little is computed.
    "mlperf_training_5.1_flux1_gb200": {"time": 12},
}
MOST_CALIBRATED = 10  # percent of the rows of all tables of a kind together

# By table: rows that contradict the table's others, by their labels, and how. `rest`: the mean error
# of the unseen rows without them.
UNEXPLAINED = {
    "nccl_allreduce_h100_a100": (
        r"h100_32_ib, 32 GPUs, 8 B$",
        "the first call of its run: it took 83 us, and in place 35. Without it {rest}."),
    "vtrain_measured_multi": (
        r"64 GPUs, .*b 64,|h 8192, .*t 2 |b 4, h 8192, .*t 4 d 16 |b 12, h 8192, .*t 4 d 8 ",
        "they take 1.2 to 1.8 times as long as predicted. Row 18 takes longer than row 24, which has the "
        "same layout and a larger bubble; row 30 longer than row 31, with as many micro-batches and "
        "stages, as much work a GPU and more tensor-parallel calls; row 5 almost twice as long as row 6. "
        "Rows 14, 16 and 17 (39.1 billion parameters, tensor 2) are slower by the same factor, 1.6 to "
        "1.7, whatever their stages, replicas and micro-batch; row 32, 175 billion with tensor 2, is "
        "not. Neither messages that are sent whole, nor gradients through one network card, nor a "
        "softmax that is not fused, nor full memory fits these rows and the others; a slow GPU would. "
        "Without them {rest}."),
    "vtrain_measured_single": (
        r"b 4, h 1024, .*t 2 |b 2, h 2048, .*t 4 ",
        "micro-batches that take less time than half as large ones of the same model and layout "
        "(4 sequences of width 1,024 with tensor 2; 2 of width 2,048 with tensor 4). Rows of equal "
        "width, tensor degree and micro-batch are off alike. Without them {rest}."),
}


def goals_of(file):
    """Of a table, by its file's name; None: it is none of those that are known."""
    return next((goals for part, goals in GOALS.items() if part in file.stem), None)


def ranges(numbers):
    """[1, 2, 3, 7] as "1-3, 7"."""
    out = []
    for n in numbers:
        if out and out[-1][1] == n - 1:
            out[-1][1] = n
        else:
            out.append([n, n])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in out)


def predicted(lockstep, folders):
    """(file, answer, goals) of every table in the folders that has a goal."""
    for file in sorted((file for folder in folders for file in folder.glob("*.json")),
                       key=lambda file: file.name):
        goals = goals_of(file)
        if goals is not None:
            yield file, lockstep.ask("calibrate", "check", file)[1], goals


class ByModel:
    """Of MLPerf's tables: the mean error of each model's unseen rows, and how far off it is by how much
    the steps of a system change with its size: of each organisation's rows with one layout, against
    the smallest."""
    GOAL = 8  # percent
    SCALING_GOAL = 5
    LAYOUT = ("model", "tp", "pp", "cp", "vp", "mbs", "dtype")

    def __init__(self):
        self.errors = {}
        self.scaling = []

    def add(self, name, answer, table):
        if not name.startswith("mlperf"):
            return
        smallest = {}
        for row, given in zip(answer["rows"], table["rows"], strict=True):
            ratio = row["predicted"] / row["measured"]
            if not row["fitted"]:
                self.errors.setdefault(given["model"], []).append(abs(ratio - 1))
            series = (given["system"].split("/")[0], *(given.get(key) for key in self.LAYOUT))
            first = smallest.setdefault(series, (given["gpus"], ratio))
            if given["gpus"] > first[0]:
                self.scaling.append(abs(ratio / first[1] - 1))

    def means(self):
        return {model: sum(errors) / len(errors) for model, errors in self.errors.items()}

    def text(self):
        rows = [f"{model} {percent(mean)} ({len(self.errors[model])} rows)"
                for model, mean in sorted(self.means().items())]
        return (f"MLPerf's unseen rows by model ({self.GOAL} % is the goal): {', '.join(rows)}. How much "
                "longer or shorter a step is than that of the organisation's smallest system with the "
                f"same layout: {percent(self.mean_scaling())} off, at most {percent(max(self.scaling))} "
                f"({len(self.scaling)} pairs; {self.SCALING_GOAL} % is the goal).")

    def mean_scaling(self):
        return sum(self.scaling) / len(self.scaling)

    def missed(self):
        out = [f"{model} of MLPerf: {percent(mean)}, and {self.GOAL} % is the goal"
               for model, mean in self.means().items() if 100 * mean > self.GOAL]
        if 100 * self.mean_scaling() > self.SCALING_GOAL:
            out.append(f"scaling of MLPerf: {percent(self.mean_scaling())}, and {self.SCALING_GOAL} % "
                       "is the goal")
        return out


def percent(share):
    return f"{100 * share:.1f} %"


def unexplained(name, answer):
    """A sentence or more of Markdown; None: nothing is known of this table."""
    if name not in UNEXPLAINED:
        return None
    label, how = UNEXPLAINED[name]
    rows = [row for row in answer["rows"] if not row["fitted"]]
    odd = [row for row in rows if re.search(label, row["label"])]
    errors = [abs(row["predicted"] / row["measured"] - 1) for row in rows if row not in odd]
    numbers = sorted({row["row"] for row in odd})
    return (f"- {name}, row{'s' if len(numbers) > 1 else ''} {ranges(numbers)}: "
            + how.format(rest=percent(sum(errors) / len(errors))))


def section(lockstep, folders):
    """(Markdown, what is missed)."""
    figures, calibrated, above, missed, kinds, odd = [], [], [], [], {}, []
    by_model = ByModel()
    for file, answer, goals in predicted(lockstep, folders):
        name = file.stem
        rows = {row["row"] for row in answer["rows"]}
        fitted = sorted({row["row"] for row in answer["rows"] if row["fitted"]})
        for kind, error in answer["summary"].items():
            goal = goals[kind]
            unseen = answer["held_out"][kind]
            met = 100 * error["mape"] <= goal
            if 100 * unseen["mape"] > goal:
                above.append(f"{name} ({kind} {percent(unseen['mape'])})")
            figures.append(f"| {name} | {kind} | {error['count']} | {percent(error['mape'])} | "
                           f"{percent(unseen['mape'])} | {percent(error['median'])} | "
                           f"{percent(error['max'])} | {goal} % | {'yes' if met else 'no'} |")
            if not met:
                missed.append(f"{name}: {kind} {percent(error['mape'])}, and {goal} % is the goal")
        odd += filter(None, [unexplained(name, answer)])
        by_model.add(name, answer, json.loads(file.read_text()))
        kind = name.split("_")[0] if name.startswith("mlperf") else next(
            part for part in GOALS if part in name)
        seen = kinds.setdefault(kind, [0, 0])
        seen[0] += len(fitted)
        seen[1] += len(rows)
        calibrated.append(f"| {name} | {answer['calibration'].split(' (')[0]} | {len(rows)} | "
                          f"{len(fitted)} | {ranges(fitted) or 'none'} |")
    shares = [f"{kind}: {a} of {b} ({percent(a / b)})" for kind, (a, b) in kinds.items()]
    over = [kind for kind, (a, b) in kinds.items() if 100 * a > MOST_CALIBRATED * b]
    text = ["| table | figure | figures | mean error | of unseen rows | median | largest | goal | "
            "met |", "|---|---|--:|--:|--:|--:|--:|--:|---|", *figures, "",
            "The goal is for the mean over all rows. "
            + (f"Over unseen rows alone, these are above it: {', '.join(above)}. " if above else "")
            + "Unseen rows are those that no calibration was fitted to. Fitted to were:", "",
            "| table | calibration | rows | fitted to | which |", "|---|---|--:|--:|---|",
            *calibrated, "", "Together, " + "; ".join(shares) + ".", "", by_model.text()]
    missed += by_model.missed()
    if odd:
        text += ["", "Unseen rows that their own tables contradict:", "", *odd]
    if over:
        text.append(f"More than {MOST_CALIBRATED} % of the rows of " + " and ".join(over)
                    + " were fitted to.")
    return "\n".join(text) + "\n", missed
