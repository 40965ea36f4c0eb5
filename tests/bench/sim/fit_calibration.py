#!/usr/bin/env python3
"""Fits numbers of a machine file's section `transformer` to a few measured rows.

The loss has two parts. The first is the logarithmic error of each figure of
the rows, quadratic up to about 5 % and linear beyond, so that a row that
something else slowed down does not pull the others along. The second is how
far each parameter moves from its start, also in logarithms, so that one about
which the rows say nothing stays where it is. Minimised by Levenberg-Marquardt
on the logarithms, with derivatives by finite differences; deterministic.

Predictions are those of `lockstep calibrate check`. The result is the file of
the start with another name and other numbers; `spread` is that of the rows
that were not fitted to. docs/simulate-workloads.md has how the shipped files
were made.
"""
import argparse
import json
import math
import pathlib
import re
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/bench/sim"))

from validation.calculators import Lockstep, Refused  # noqa: E402

SCHEMA = ROOT / "sim/machine/machine.schema.json"


class MachineFile:
    """A machine file with a section `transformer` of one number a line."""

    def __init__(self, text):
        self.text = text

    def section(self):
        found = re.search(r"^transformer:\s*\n((?:[ #].*\n|\n)*)", self.text, re.M)
        if not found:
            sys.exit("the machine to start from has no section \"transformer\"")
        return found

    def values(self):
        lines = re.findall(r"^  (\w+):[ \t]*([-+.\d][-+.\deE]*)", self.section()[1], re.M)
        return {name: float(value) for name, value in lines}

    def changed(self, values, name=None, fitted_to=None):
        section = self.section()
        body = section[1]
        for key, value in values.items():
            body = re.sub(rf"^(  {key}:\s*)[-+.\deE]+", rf"\g<1>{value!r}", body, flags=re.M)
        if fitted_to is not None:
            body = re.sub(r"^  fitted_to:.*\n(?:    .*\n)*", "", body, flags=re.M)
            body += "  fitted_to:\n" + "".join(f"    - {json.dumps(row)}\n" for row in fitted_to)
        text = self.text[:section.start(1)] + body + self.text[section.end(1):]
        if name is not None:
            text = re.sub(r"^name:.*$", lambda _: f"name: {json.dumps(name)}", text, flags=re.M)
        return MachineFile(text)


class Table:
    """The figures of a table as a machine file predicts them."""

    def __init__(self, lockstep, file):
        self.lockstep, self.file = lockstep, file

    def figures(self, machine):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(machine.text)
            file.flush()
            return self.lockstep.ask("calibrate", "check", self.file, "--calibration",
                                     file.name)[1]["rows"]


def tamed(error):
    """The square root of a loss that is linear for large errors (Charbonnier)."""
    knee = 0.05
    scaled = error / knee
    return math.copysign(knee * math.sqrt(2 * (math.sqrt(1 + scaled * scaled) - 1)), error)


def solve(matrix, right):
    """Solves a small symmetric positive system, by elimination with pivots."""
    a = [row + [b] for row, b in zip(matrix, right)]
    n = len(right)
    for k in range(n):
        pivot = max(range(k, n), key=lambda i: abs(a[i][k]))
        a[k], a[pivot] = a[pivot], a[k]
        for i in range(k + 1, n):
            factor = a[i][k] / a[k][k]
            for j in range(k, n + 1):
                a[i][j] -= factor * a[k][j]
    x = [0.0] * n
    for k in reversed(range(n)):
        x[k] = (a[k][n] - sum(a[k][j] * x[j] for j in range(k + 1, n))) / a[k][k]
    return x


def step(x, slopes, residuals, damping):
    normal = [[sum(p * q for p, q in zip(a, b)) for b in slopes] for a in slopes]
    towards = [-sum(p * q for p, q in zip(a, residuals)) for a in slopes]
    for i in range(len(x)):
        # 1e-9 keeps parameters without influence from making the matrix singular.
        normal[i][i] = normal[i][i] * (1 + damping) + 1e-9
    # At most a factor of e^0.5 = 1.65 at once, in case the linear model is far off.
    return [a + min(0.5, max(-0.5, move)) for a, move in zip(x, solve(normal, towards))]


def minimise(residuals_at, x, rounds):
    """Where the sum of squares is least, near x."""
    def squares(values):
        return sum(value * value for value in values)
    here, damping = residuals_at(x), 1e-2
    for _ in range(rounds):
        slopes = []
        for i in range(len(x)):
            # 0.1 % of a parameter: far above rounding, far below the curvature.
            beside = [value + (1e-3 if i == j else 0) for j, value in enumerate(x)]
            slopes.append([(b - a) / 1e-3 for a, b in zip(here, residuals_at(beside))])
        # With more damping until the loss falls; if none of eight helps, this is the minimum.
        for _ in range(8):
            there_x = step(x, slopes, here, damping)
            there = residuals_at(there_x)
            if squares(there) < squares(here) * (1 - 1e-9):  # smaller gains are rounding
                x, here, damping = there_x, there, damping * 0.2
                break
            damping *= 4
        else:
            break
    return x


def mean_error(figures):
    return sum(abs(f["predicted"] / f["measured"] - 1) for f in figures) / len(figures)


def spread_of(figures):
    """The smallest factor, less one, that four of five times do not exceed; of few rows None."""
    factors = sorted(math.exp(abs(math.log(f["predicted"] / f["measured"])))
                     for f in figures if f["kind"] != "memory")
    return factors[(len(factors) * 4 + 4) // 5 - 1] - 1 if len(factors) >= 5 else None


def fit(table, start, rows, parameters, stiffness=0.1, rounds=40):
    """(MachineFile with the fitted numbers, mean error of the rows before, after)."""
    known = start.values()
    for name in parameters:
        if name not in known:
            sys.exit(f"no parameter \"{name}\" in the machine; there are {', '.join(known)}")
    limits = json.loads(SCHEMA.read_text())["properties"]["transformer"]["properties"]
    origin = [math.log(known[name]) for name in parameters]

    def chosen(machine):
        out = [f for f in table.figures(machine) if f["row"] in rows]
        missing = set(rows) - {f["row"] for f in out}
        if missing:
            sys.exit(f"--rows: there is no row {min(missing)}")
        return out

    def values_at(x):
        values = {}
        for name, value in zip(parameters, x):
            low, high = limits[name]["minimum"], limits[name]["maximum"]
            values[name] = min(high, max(low, math.exp(value)))
        return values

    def residuals_at(x):
        figures = chosen(start.changed(values_at(x)))
        return ([tamed(math.log(f["predicted"] / f["measured"])) for f in figures]
                + [stiffness * (a - b) for a, b in zip(x, origin)])

    x = minimise(residuals_at, origin, rounds)
    # Six digits say more than any fit knows.
    rounded = {name: float(f"{value:.6g}") for name, value in values_at(x).items()}
    return (start.changed(rounded), mean_error(chosen(start)),
            mean_error(chosen(start.changed(values_at(x)))))


def numbers(text):
    return [int(part) for part in text.split(",")]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=pathlib.Path, help="a table of training steps, as JSON")
    parser.add_argument("--rows", type=numbers, required=True, help="to fit to, from 1: 8,28,34")
    parser.add_argument("--parameters", type=lambda text: text.split(","), required=True)
    parser.add_argument("--start", required=True, help="a machine file, or a shipped name")
    parser.add_argument("--stiffness", type=float, default=0.1,
                        help="how strongly parameters are held at their start")
    parser.add_argument("--name", required=True, help="of the new machine")
    parser.add_argument("--result", type=pathlib.Path, required=True, help="the file to write")
    parser.add_argument("--lockstep", default=ROOT / "build/core/lockstep")
    options = parser.parse_args()
    shipped = ROOT / f"sim/machines/{options.start}.yaml"
    start = MachineFile((shipped if shipped.exists() else pathlib.Path(options.start)).read_text())
    table = Table(Lockstep(options.lockstep), options.table)
    try:
        fitted, before, after = fit(table, start, options.rows, options.parameters,
                                    options.stiffness)
        figures = table.figures(fitted)
    except Refused as refused:
        sys.exit(str(refused))
    labels = {f["row"]: f["label"] for f in figures}
    spread = spread_of([f for f in figures if f["row"] not in options.rows])
    values = {} if spread is None else {"spread": float(f"{min(1.0, max(0.001, spread)):.6g}")}
    options.result.write_text(
        fitted.changed(values, options.name, [labels[row] for row in options.rows]).text)
    print(f"fitted {', '.join(options.parameters)} to {len(options.rows)} of {len(labels)} rows: "
          f"mean error {100 * before:.1f} % before, {100 * after:.1f} % after\n"
          f"written to {options.result}")


if __name__ == "__main__":
    main()
