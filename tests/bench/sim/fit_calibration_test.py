#!/usr/bin/env python3
"""Fits find what the rows were made with. usage: fit_calibration_test.py LOCKSTEP"""
import json
import pathlib
import sys
import tempfile
import unittest

from fit_calibration import ROOT, MachineFile, Table, fit, spread_of
from validation.calculators import Lockstep

PROGRAM = sys.argv.pop(1)
DATASHEET = MachineFile((ROOT / "sim/machines/a100-datasheet.yaml").read_text())
SHAPES = [(hidden, batch) for hidden in (1024, 2048, 3072, 4096, 6144) for batch in (1, 2)]


class Fitting(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name) / "table.json"

    def rows_of(self, machine, slowed=None):
        """A table, as vTrain's, of what `machine` predicts; row `slowed` takes twice as long."""
        def write(times):
            rows = [[8, 16, batch, hidden, 16, 12, 1024, 1, 8, 1, 1000 * time]
                    for (hidden, batch), time in zip(SHAPES, times)]
            columns = ["# GPUs", "global batch", "micro batch", "hidden size", "attention heads",
                       "# layers", "sequence length", "tensor parallelism", "data parallelism",
                       "pipeline parallelism", "iteration time (ms)"]
            self.file.write_text(json.dumps({"columns": columns, "rows": rows}))
        write([1] * len(SHAPES))
        table = Table(Lockstep(PROGRAM), self.file)
        times = [figure["predicted"] for figure in table.figures(machine)]
        write([2 * time if i + 1 == slowed else time for i, time in enumerate(times)])
        return table

    def test_finds_the_parameters_that_made_the_rows(self):
        truth = {"gemm_efficiency": 0.65, "launch_forward": 2e-3}
        table = self.rows_of(DATASHEET.changed(truth))
        fitted, before, after = fit(table, DATASHEET, range(1, 11), list(truth), stiffness=1e-4)
        self.assertGreater(before, 0.05)
        self.assertLess(after, 1e-4)
        for name, value in DATASHEET.values().items():
            self.assertAlmostEqual(fitted.values()[name] / truth.get(name, value), 1, 2, name)

    def test_one_slow_row_does_not_pull_the_rest_along(self):
        table = self.rows_of(DATASHEET, slowed=6)
        fitted, *_ = fit(table, DATASHEET, range(1, 11), ["gemm_efficiency"])
        share = fitted.values()["gemm_efficiency"] / DATASHEET.values()["gemm_efficiency"]
        self.assertAlmostEqual(share, 1, delta=0.03)

    def test_the_result_is_a_machine_that_knows_its_rows(self):
        table = self.rows_of(DATASHEET)
        labels = [figure["label"] for figure in table.figures(DATASHEET)]
        again = DATASHEET.changed({"spread": 0.2}, "mine: \"a\"", labels[:2])
        fitted = [figure["fitted"] for figure in table.figures(again)]
        self.assertEqual(fitted, [True, True] + [False] * (len(labels) - 2))
        self.assertEqual(again.changed({}, None, labels[:1]).text.count("fitted_to:\n"), 1)

    def test_starts_from_a_machine_that_was_fitted_itself(self):
        for file in sorted((ROOT / "sim/machines").glob("*.yaml")):
            if "\ntransformer:" in file.read_text():
                self.assertEqual(MachineFile(file.read_text()).values().keys(),
                                 DATASHEET.values().keys(), file)

    def test_refuses_what_cannot_be_fitted(self):
        table = self.rows_of(DATASHEET)
        for rows, parameters, why in ([1, 99], ["gemm_efficiency"], "no row 99"), \
                ([1], ["gemm_eficiency"], "no parameter"):
            with self.assertRaises(SystemExit) as refused:
                fit(table, DATASHEET, rows, parameters)
            self.assertIn(why, str(refused.exception))

    def test_spread_is_the_smallest_that_four_of_five_do_not_exceed(self):
        figures = [{"kind": "time", "measured": 1, "predicted": p} for p in (1.1, 1, 1 / 1.2, 1, 2)]
        self.assertAlmostEqual(spread_of(figures), 0.2)
        self.assertIsNone(spread_of(figures[:4]))


if __name__ == "__main__":
    unittest.main()
