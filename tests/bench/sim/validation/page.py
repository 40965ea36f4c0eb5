"""docs/simulate-validation.md: its head, and its sections between marks.

A section is what stands between `<!-- name: begin -->` and `<!-- name: end -->`. What was not made
again stays as it was.
"""
import re

HEAD = """# How far the simulator can be trusted

Made by `scripts/validate-simulator`; do not edit. To make it again:

    scripts/validate-simulator                 # minutes; all but the measured step times
    scripts/validate-simulator --runs          # these too: a quiet machine, and half an hour
    scripts/validate-simulator --profiles DIR  # recorded jobs: DIR/param, DIR/HolisticTraceAnalysis

It fails where an answer is not the expected one, a mean error is above its goal, or a verdict or a
sequence of calls is another than the real job's. Tables of published measurements are read from
`sim/tables`, and from a folder (`--tables`) where they may not be copied into this repository;
`--only tables` makes their section alone. What the simulator computes and what it does not know:
[collectives and traces](simulate.md), [step times of scenarios](simulate-scenarios.md),
[pipelines and workloads](simulate-workloads.md).
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
NOT_YET = "Not measured yet: `scripts/validate-simulator{option}` does it.\n"
OPTIONS = {"runs": " --runs", "tables": " --tables FOLDER",
           "peers": " --tables FOLDER", "recorded": " --profiles FOLDER"}


def sections(text):
    """The generated parts of a page, by name."""
    found = re.findall(r"<!-- ([a-z-]+): begin -->\n(.*?)<!-- \1: end -->", text, re.S)
    return dict(found)


def page(made, earlier):
    """`made` and, of what is not in it, `earlier`: Markdown by name."""
    parts = [HEAD]
    for name, title in SECTIONS.items():
        text = made.get(name) or earlier.get(name) or NOT_YET.format(option=OPTIONS.get(name, ""))
        parts.append(f"\n## {title}\n\n<!-- {name}: begin -->\n{text}<!-- {name}: end -->\n")
    return "".join(parts)
