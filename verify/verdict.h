// What a run's verdict is, and what the data leaves open: each reason why there may be a fault that
// no analysis could see.
#pragma once

#include <string>
#include <vector>

#include "verify/context.h"
#include "verify/report.h"
#include "verify/schedules/search.h"

namespace lockstep::verify {

// What is known about other schedules, and what could not be decided.
struct OpenQuestions {
  ScheduleSearch search;               // over the messages that receives from any source may take
  bool unsearched = false;             // a search reached its limit
  std::vector<std::string> undecided;  // why the data shows neither a fault nor its absence
  std::vector<std::string> unknown;    // numbers and samples that could not be judged
  bool waits_unknown = false;          // no waits were recorded that could order two communicators
  bool all_cut = false;                // no trace has an end mark, and nobody follows the job
};

// Notes what the readers of the traces could not decide. Each reason once: all ranks' traces of one
// job usually say the same.
void note_undecided_traces(const trace::Run& run, OpenQuestions& questions);

// Notes calls that were under way on devices at the end, where nothing else was found: they may
// have been issued a moment before, or hang. Not for Gloo, where hosts block in their calls and the
// replay decides what can complete.
void note_open_calls(const Context& context, OpenQuestions& questions);

// Notes members whose recorded call numbers differ from those of the others although the calls
// agree in their order. Then one recording lacks a call, and later calls may be paired with the
// wrong ones.
void note_divergent_numbers(const Context& context, OpenQuestions& questions);

// Fills Report::unknown: what the data could not show, and why.
void list_unknowns(const Context& context, const OpenQuestions& questions, Report& report);

// Worst first: by severity, certainty, step, sequence number. Findings without a step or number
// come last among equals. Stable, so that the analyses' order decides the rest. A host stall comes
// after a proven cycle: the stalled rank may still continue, the cycle never does.
void sort_findings(std::vector<Finding>& findings);

// Notes that a job which is known to have hung has no finding that explains it, unless all of its
// ranks ended cleanly.
void note_unexplained_hang(const Report& report, const trace::Run& run, OpenQuestions& questions);

// `findings` for an error or a warning. Without any, `clean` needs complete input: a missing rank
// may be the faulty one.
Verdict verdict_of(const Report& report, const trace::Run& run, const OpenQuestions& questions);

}  // namespace lockstep::verify
