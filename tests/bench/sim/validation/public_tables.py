"""Published measurements against `lockstep calibrate check`."""
import json

# By a part of the file's name: the most that the mean error of a figure may be, in percent.
GOALS = {
    "nccl": {"time": 5},
    "vtrain_measured_multi": {"time": 10},
    "vtrain_measured_single": {"time": 8},
    "megatron": {"time": 7},
    "torchtitan": {"tokens/s": 10, "memory": 10},
    "nemo_h100": {"time": 5},
    "mlperf_training_5.1_b200": {"time": 8},
    # Of two of its three rows the recipe and the software are a year newer than what the machine's
    # shares are from.
    "mlperf_training_5.1_h200": {"time": 12},
}
MOST_CALIBRATED = 10  # percent of the rows of all tables of a kind together


def goals_of(name):
    return next((goals for part, goals in GOALS.items() if part in name), None)


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
    """(name, answer, goals) of every table in the folders that has a goal."""
    for file in sorted((file for folder in folders for file in folder.glob("*.json")),
                       key=lambda file: file.name):
        goals = goals_of(file.stem)
        if goals is not None:
            yield file.stem, lockstep.ask("calibrate", "check", file)[1], goals


def percent(share):
    return f"{100 * share:.1f} %"


def section(lockstep, folders):
    """(Markdown, what is missed)."""
    figures, calibrated, above, missed, kinds = [], [], [], [], {}
    for name, answer, goals in predicted(lockstep, folders):
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
        kind = next(part for part in GOALS if part in name)
        seen = kinds.setdefault(kind, [0, 0])
        seen[0] += len(fitted)
        seen[1] += len(rows)
        calibrated.append(f"| {name} | {answer['calibration'].split(' (')[0]} | {len(rows)} | "
                          f"{len(fitted)} | {ranges(fitted) or 'none'} |")
    shares = [f"{kind}: {a} of {b} ({percent(a / b)})" for kind, (a, b) in kinds.items()]
    over = [kind for kind, (a, b) in kinds.items() if 100 * a > MOST_CALIBRATED * b]
    text = ["| table | figure | figures | mean error | of unseen rows | median | largest | goal | "
            "met |", "|---|---|--:|--:|--:|--:|--:|--:|---|", *figures, "",
            "The goal is the mean's, over all rows. "
            + (f"Over unseen rows alone these are above it: {', '.join(above)}. " if above else "")
            + "Rows that calibrations were fitted to:", "",
            "| table | calibration | rows | fitted to | which |", "|---|---|--:|--:|---|",
            *calibrated, "", "Together, " + "; ".join(shares) + "."]
    if over:
        text.append(f"More than {MOST_CALIBRATED} % of the rows of " + " and ".join(over)
                    + " were fitted to.")
    return "\n".join(text) + "\n", missed
