"""Measures a real training step on a GPU: what Lockstep takes for it, and Python's torch for the same.

usage: against_pytorch.py --build DIR --output DIR [--steps N] [--batch N] [--turns N]

ResNet-50 (224 px) and BERT-base (64 tokens), contrastive, 256 wide, bfloat16, AdamW, DDP over NCCL with
one rank. By turns: Lockstep's worker; the same with fingerprints of all gradients and parameters after
each step; pytorch_step.py. Medians over the steps after the first third, then over the turns.

DIR gets rows.tsv (tests/gpu/checks.py), measured.json and the logs. A row fails where Lockstep's step
takes more than a tenth longer than PyTorch's, or its tensors take a tenth more memory.
"""

import argparse
import json
import math
import os
import shutil
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/gpu"))

from checks import Rows, free_port, last_lines, rank_environment, require, run  # noqa: E402

TOKENS, EMBED = 64, 256
LIMIT_S = 240
MOST_SLOWER = 1.1

SCENARIO = """lockstep: 1
name: a real step
ranks: 1
backend: nccl
model: {{image: resnet-50, text: bert-base, embed_dim: {embed}}}
data: {{items: 1024, held_out: 32, max_length: {tokens}, loader: {{workers: {workers}, prefetch: 8}}, modality: [{{has: [image, text]}}]}}
strategy: ddp
train: {{steps: {steps}, batch_size: {batch}, precision: bfloat16, lr: 0.0001}}
watch: {{every: {every}}}
limits: {{hang_after_s: 120, total_s: {limit}}}
"""


def after_first_third(values: "list[float]") -> "list[float]":
    return values[len(values) // 3:]


class Measurement:
    def __init__(self, options: argparse.Namespace):
        self.options = options
        self.output = options.output.resolve()
        self.rows = Rows(self.output / "rows.tsv")

    def lockstep(self, turn: int, every: int) -> "dict[str, float]":
        folder = self.output / f"lockstep-every{every}-{turn}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        scenario = folder / "job.yaml"
        scenario.write_text(SCENARIO.format(
            embed=EMBED, tokens=TOKENS, steps=self.options.steps, batch=self.options.batch, every=every,
            workers=max(2, (os.cpu_count() or 2) // 2), limit=LIMIT_S))
        log = folder / "worker.log"
        status = run([str(self.options.build.resolve() / "lockstep-worker"), "train", str(scenario), "--rank", "0",
                      "--world-size", "1", "--store", str(folder / "store"), "--trace", str(folder), "--device", "cuda"],
                     LIMIT_S, log)
        require(status == 0, f"the worker ended with {status}: {last_lines(log)}")
        result = json.loads((folder / "rank_0.result.json").read_text())
        steps = [json.loads(line) for line in (folder / "rank_0.metrics.jsonl").read_text().splitlines()]
        require(all(map(math.isfinite, result["losses"])), "the loss is not finite")
        steps = after_first_third(steps)
        return {"step_ms": statistics.median(step["ms"] for step in steps),
                "data_ms": statistics.median(step["data_ms"] for step in steps),
                "recording_us": result["recording_ns"] / 1e3 / result["steps"],
                "recording_share": result["recording_share"], "watch_share": result["watch_share"],
                "peak_bytes": result["device_memory"]["peak_bytes"]}

    def pytorch(self, turn: int) -> "dict[str, float]":
        out, log = (self.output / f"pytorch-{turn}{ending}" for ending in (".json", ".log"))
        status = run([sys.executable, "-B", str(Path(__file__).with_name("pytorch_step.py")), str(out),
                      *map(str, (self.options.steps, self.options.batch, TOKENS, EMBED))],
                     LIMIT_S, log, {**rank_environment(0, 1, free_port(), 1), "OMP_NUM_THREADS": str(os.cpu_count())})
        require(status == 0, f"Python's torch ended with {status}: {last_lines(log)}")
        result = json.loads(out.read_text())
        require(all(map(math.isfinite, result["losses"])), "its loss is not finite")
        return {"step_ms": statistics.median(after_first_third(result["step_ms"])), "peak_bytes": result["peak_bytes"]}

    def measure(self) -> None:
        ours, watched, theirs = [], [], []
        with self.rows.check("a real step") as found:
            for turn in range(self.options.turns):
                ours.append(self.lockstep(turn, every=0))
                theirs.append(self.pytorch(turn))
                watched.append(self.lockstep(turn, every=1))
            (self.output / "measured.json").write_text(
                json.dumps({"lockstep": ours, "watched": watched, "pytorch": theirs}, indent=1) + "\n")
            found.append(f"{self.options.turns} turns of {self.options.steps} steps, batches of {self.options.batch}")
        if len(watched) < self.options.turns:
            return  # said in the row

        def median(turns: "list[dict[str, float]]", key: str) -> float:
            return statistics.median(turn[key] for turn in turns)

        with self.rows.check("step time") as found:
            step, data, other = median(ours, "step_ms"), median(ours, "data_ms"), median(theirs, "step_ms")
            words = f"{step:.1f} ms ({data:.1f} of it waiting for data), PyTorch {other:.1f} ms: ratio {step / other:.3f}"
            require(step <= MOST_SLOWER * other, words)
            found.append(words)
        with self.rows.check("peak memory") as found:
            peak, other = median(ours, "peak_bytes"), median(theirs, "peak_bytes")
            words = f"{peak / 2**20:.0f} MiB, PyTorch {other / 2**20:.0f} MiB: ratio {peak / other:.3f}"
            require(peak <= MOST_SLOWER * other, words)
            found.append(words)
        with self.rows.check("recording") as found:
            found.append(f"{median(ours, 'recording_us'):.0f} us of a step, {100 * median(ours, 'recording_share'):.3f} %")
        with self.rows.check("fingerprints of every step") as found:
            share, step, plain = (median(turns, key) for turns, key in
                                  ((watched, "watch_share"), (watched, "step_ms"), (ours, "step_ms")))
            found.append(f"{100 * share:.1f} % of the steps; {step:.1f} ms with, {plain:.1f} ms without")


def main() -> int:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--turns", type=int, default=2)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    measurement = Measurement(options)
    measurement.measure()
    return 1 if measurement.rows.failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
