"""What a report is worth, given what was wrong with the job and what its recording can show."""

# For healthy jobs: right, undecided, or one of the first two below. For others: exact (the ranks
# at fault), among (they and others), part (some of them, no others), nobody (an error, no ranks),
# innocents (none of them, or some and others), undecided, hidden (undecided, and the recording
# cannot show it), silent (nothing is said, and nothing happened), missed.
FALSE_ALARM, FALSE_WARNING, INNOCENTS, MISSED = "false alarm", "warning", "innocents", "missed"

ORDER = ["exact", "among", "part", "nobody", INNOCENTS, "undecided", "hidden", "silent", MISSED,
         "right", FALSE_WARNING, FALSE_ALARM]


def judge(case, report):
    errors = [f for f in report["findings"] if f["severity"] == "error"]
    if case.healthy:
        return of_healthy(report, errors)
    if not errors:
        return without_errors(case, report)
    named = {rank for f in errors for rank in f.get("culprits", [])}
    guilty = set(case.fault.ranks)
    if case.fault.kind == "network_stuck":
        blamed = named and any(f["rule"] != "device-stall" for f in errors)
        return INNOCENTS if blamed else "exact"
    if named == guilty:
        return "exact"
    if not named:
        return "nobody"
    if guilty <= named:
        return "among"
    return "part" if named < guilty else INNOCENTS


def of_healthy(report, errors):
    if errors:
        return FALSE_ALARM
    if report["verdict"] == "findings":
        return FALSE_WARNING
    return "undecided" if report["verdict"] == "inconclusive" else "right"


def without_errors(case, report):
    kind = case.fault.kind
    if not case.execution.hung and kind not in ("raised", "killed"):
        return "silent"
    if nothing_open(case):
        return "hidden"
    if report["verdict"] == "inconclusive":
        return "hidden" if cannot_show(case) else "undecided"
    return "undecided" if report["verdict"] == "findings" else MISSED


def nothing_open(case):
    """Whether all calls in the dumps completed: one that waits for its communicator is in none."""
    return case.form.startswith("dump") and all(
        kernel.end is not None for rank, host in enumerate(case.execution.hosts)
        if rank not in case.missing for kernel in host.kernels.values())


def cannot_show(case):
    """Whether the recording lacks what would tell."""
    kind, guilty, missing = case.fault.kind, set(case.fault.ranks), set(case.missing)
    everyone = set(range(case.mesh.world))
    dump = case.form.startswith("dump")
    if guilty & missing or missing >= everyone - guilty:
        return True
    if kind == "device_stuck":  # a call that did not begin looks like one that did
        return case.form == "text_calls" or dump and not case.times
    if kind == "network_stuck":  # nobody is at fault, and the device may be slow
        return True
    return kind == "wrong_splits" and dump  # dumps hold no splits
