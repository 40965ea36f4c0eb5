// A report in its forms for people and programs; those of CI services are in reports/ci. forms.h
// chooses among them by name.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "reports/filter/filter.h"
#include "trace/run.h"
#include "verify/replay/semantics.h"
#include "verify/report.h"

namespace lockstep::reports {

// Findings as comma-separated values (RFC 4180), for spreadsheets and data frames: a header, then
// one row per finding, the worst first.
//
//   severity      error, warning or note
//   rule          the rule's id
//   certainty     proven, observed or possible
//   status        open (it counts), suppressed, or known (in the baseline)
//   group         process group; empty: none
//   seq           index in the group's sequence, from 0; empty: not known
//   step          training step; empty: not known
//   culprits      ranks, "0-3,7"; empty: none can be singled out
//   ranks         all concerned ranks
//   what          parameters, separated by blanks
//   at            source location, the culprit's if it has one
//   message       what happened
//   fix           what to do
//   consequences  how many findings follow from this one
//   fingerprint   equal for the same defect in different runs
//   group_label   the group as people call it
//   number        of the call as the source counts it: PyTorch's SeqNum
//   headline      who stopped, where, how long ago and who waits; empty for other findings
//   next          the command to run next
//
// Rows end in CR LF, as the RFC requires.
std::string csv_report(const FilteredReport& filtered);

// The wait-for graph of a run in Graphviz's language, with the findings:
//
//   lockstep verify traces/ --output dot=- | dot -Tsvg > waits.svg
//
// https://graphviz.org/doc/info/lang.html
//
// A digraph: a box for each set of ranks that wait, or are waited for, in the same calls (culprits
// with a thick red frame), an arrow to the ranks that they wait for, and for each error or warning
// a note that points to its culprits. If nobody waits, only the notes. `semantics`: as given to
// verify().
std::string dot_report(const FilteredReport& filtered, const trace::Run& run,
                       std::optional<verify::CallSemantics> semantics = std::nullopt);

// `lines` as one quoted string with centred lines; nothing in it is interpreted.
std::string dot_string(std::string_view lines);

// A report as one self-contained HTML page, which loads nothing. First the verdict and its cause.
// Then each finding with a picture of the calls around it, who waits for whom, what the batches
// contained, the recorded numbers, and what is not known.
//
// It is readable on a phone, in print, in light and dark mode, with a keyboard and with a screen
// reader. The page's policy allows only its own style sheet and script (reports/html/page.h), and
// all text from traces is escaped (reports/html/markup.h).
//
// `run` is what the report judges; `semantics` as given to verify(). Its size depends on
// the number of findings and of *different* ranks. O(events) and a replay.
std::string html_report(const FilteredReport& filtered, const trace::Run& run,
                        std::optional<verify::CallSemantics> semantics = std::nullopt);

// A Report as JSON, for other programs: the report contract, version 1 (docs/verify.md).
//
// Returns one object and a line break; keys are in the order of the contract. Keys whose values are
// not known (group, seq, step, an evidence's id and location) are absent. `consequences`, if there
// are any, holds findings of the same form. Never fails: bytes that are not UTF-8 become U+FFFD.
std::string json_report(const verify::Report& report);

// The same, with what the filter did, in keys that are absent if empty: `suppressed` (findings that
// do not count, each with `status` "suppressed" or "known" and, if given, `reason` and `expires`)
// and `notes`.
//
// With `run`, the run that the report judges, evidence describes its call: `group`, the group's own
// name; `in` and `out`, the tensors' shapes; `stack`, all frames, innermost first. Each only if it
// was recorded.
std::string json_report(const FilteredReport& filtered, const trace::Run* run = nullptr);

// A report as GitHub-flavoured Markdown, for job summaries ($GITHUB_STEP_SUMMARY) and comments: the
// headline and the verdict, a table of the findings, the first finding in full with its picture,
// its evidence in a collapsed section, what was set aside, and what is not known.
//
// `run` is what the report judges; the picture is drawn from it. Text from traces stays text: names
// in them cannot become markup, HTML, links or mentions.
std::string markdown_report(const FilteredReport& filtered, const trace::Run& run);

// `text` for inline Markdown, including table cells: a character that has a meaning there, in
// Markdown or HTML, becomes a character reference. One line; safe to print.
std::string markdown_text(std::string_view text);

// The same in a fixed-width font.
std::string markdown_code(std::string_view text);

// A Report as text for a terminal: the verdict in the first line, then every finding with who,
// what, where, why and what to do, and a picture of the calls around the difference.

struct TextOptions {
  std::size_t width = 80;         // columns; only a single word may be wider
  bool color = false;             // the caller knows whether this goes to a terminal
  std::size_t max_findings = 10;  // errors and warnings in full; the JSON report has all
  bool stacks = false;  // groups, shapes and all frames of the calls in the evidence, none left out
};

// `run` is what the report judges; the pictures are drawn from it. Text from files is made safe to
// print.
std::string text_report(const verify::Report& report, const trace::Run& run,
                        const TextOptions& options = {});

// The same, followed by what the filter set aside and its notes.
std::string text_report(const FilteredReport& filtered, const trace::Run& run,
                        const TextOptions& options = {});

}  // namespace lockstep::reports
