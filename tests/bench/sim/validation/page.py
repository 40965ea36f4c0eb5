"""docs/simulate-validation.md: its head, and its sections between marks.

A section is what stands between `<!-- name: begin -->` and `<!-- name: end -->`. What was not made
again stays as it was.
"""
import re

HEAD = """# How far the simulator can be trusted

Each section compares predictions with something that is known independently: exact answers, runs on this
machine, published measurements, recorded jobs. What the simulator computes, and what it leaves out:
[collectives and traces](simulate.md), [step times of scenarios](simulate-scenarios.md), [pipelines and
transformers](simulate-workloads.md).

Made by `scripts/validate-simulator`; do not edit. To make it again:

    scripts/validate-simulator                 # minutes; what needs nothing else
    scripts/validate-simulator --runs          # these too: a quiet machine, and half an hour
    scripts/validate-simulator --profiles DIR  # recorded jobs: DIR/param, DIR/HolisticTraceAnalysis
    scripts/validate-simulator --tables DIR    # published measurements, beside those of sim/tables

The script fails if an exact answer is missed, if a mean error is above its goal, or if a verdict or a sequence of
calls differs from the real job's. It reads tables of published measurements from `sim/tables`, and from the folder
`--tables` those that may not be copied into this repository.
"""
SECTIONS = {
    "known-answers": "Known answers",
    "runs": "Step times, against real runs",
    "tables": "Published measurements",
    "peers": "What other predictors report",
    "recorded": "Recorded jobs, replayed",
    "verdicts": "Does it hang? Against real runs",
    "sequences": "What is called, event for event",
}
# What a section found, for the summary: the matches' groups, one after the other.
FINDINGS = {
    "known-answers": (r"^(\d+ of \d+ as expected)\.$", "; "),
    "runs": (r"^- (work \w+: median error .*)$", "; "),
    "tables": (r"^\| ([\w.]+ \| [\w/]+) \| \d+ \| ([\d.]+ %) \|", None),
    "recorded": (r"^(Mean error over \d+ ranks: .*?);", "; "),
    "verdicts": (r"^(\d+ scenarios: .*)\.$", "; "),
    "sequences": (r"^(\d+ of \d+ scenarios, .*)\.$", "; "),
}
NOT_YET = "Not measured yet: `scripts/validate-simulator{option}` does it.\n"
OPTIONS = {"runs": " --runs", "tables": " --tables FOLDER",
           "peers": " --tables FOLDER", "recorded": " --profiles FOLDER"}


def sections(text):
    """The generated parts of a page, by name."""
    parts = re.findall(r"<!-- ([a-z-]+): begin -->\n(.*?)<!-- \1: end -->", text, re.S)
    return dict(parts)


def found(name, text):
    """What the section `name` found, in a line; empty if it says nothing that can be summed up."""
    if name not in FINDINGS:
        return ""
    pattern, between = FINDINGS[name]
    matches = re.findall(pattern, text, re.M)
    if between:
        return between.join(match[:1].lower() + match[1:] for match in matches)
    errors = sorted(float(error.split()[0]) for _, error in matches)
    return f"mean error, by table: {errors[0]} to {errors[-1]} %" if errors else ""


def page(made, earlier):
    """`made` and, of what is not in it, `earlier`: Markdown by name."""
    texts = {name: made.get(name) or earlier.get(name) or
             NOT_YET.format(option=OPTIONS.get(name, "")) for name in SECTIONS}
    parts = [HEAD, "\n| section | found |\n|---|---|\n"]
    for name, title in SECTIONS.items():
        summary = found(name, texts[name])
        anchor = re.sub(r"[^a-z -]", "", title.lower()).replace(" ", "-")
        if summary:
            parts.append(f"| [{title}](#{anchor}) | {summary} |\n")
    for name, title in SECTIONS.items():
        text = texts[name]
        parts.append(f"\n## {title}\n\n<!-- {name}: begin -->\n{text}<!-- {name}: end -->\n")
    return "".join(parts)
