// Reports that the tests of the report forms share.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "reports/filter/filter.h"
#include "tests/reports/inline_run.h"

namespace lockstep::reports {

// A finding with everything that one can have.
inline verify::Finding full_finding() {
  verify::Finding out;
  out.rule = verify::RuleId::missing_collective;
  out.certainty = verify::Certainty::proven;
  out.group = "world";
  out.seq = 7;
  out.step = 3;
  out.culprits = ranks_of({2});
  out.ranks = ranks_of({0, 1, 2});
  out.what = {"image.proj.weight", "image.proj.bias"};
  out.message = "rank 2 never issued all_reduce";
  out.why = "ranks 0 and 1 wait in it";
  out.fix = "issue it on every rank";
  out.evidence = {{trace::Rank(0), 16, "src/trainer.cc:120", "all_reduce(image.proj.weight)"},
                  {trace::Rank(0), 17, "src/trainer.cc:121", "waits"},
                  {trace::Rank(1), 16, "", "all_reduce(image.proj.weight)"},
                  {trace::Rank(2), 16, "src/skip.cc:57:9", "barrier()"}};
  out.fingerprint = "00c0ffee00c0ffee";
  return out;
}

// A finding whose every text tries to get out of the form that it is written in.
inline verify::Finding hostile_finding() {
  const std::string hostile =
      "<script>&\"']]>\n::error::x%0A\r| `a` **b** [l](http://e.com) {0} @me #1\x1b[31m\xff\xef\xbf"
      "\xbe\x01\xc2\x9b";
  verify::Finding out = full_finding();
  out.rule = verify::RuleId::size_mismatch;
  out.severity = verify::Severity::warning;
  out.group = hostile;
  out.what = {hostile};
  out.message = hostile;
  out.why = hostile;
  out.fix = hostile;
  for (verify::Evidence& evidence : out.evidence) {
    evidence.at = hostile + ":12";
    evidence.text = hostile;
  }
  out.consequences = {full_finding()};
  out.consequences[0].message = hostile;
  return out;
}

inline verify::Finding finding_of(verify::RuleId id, verify::Severity severity,
                                  const std::string& message = "it happened") {
  verify::Finding out;
  out.rule = id;
  out.severity = severity;
  out.message = message;
  out.fingerprint = "f0f0";
  return out;
}

inline FilteredReport report_of(std::vector<verify::Finding> findings) {
  FilteredReport out;
  out.report.verdict = findings.empty() ? verify::Verdict::clean : verify::Verdict::findings;
  out.report.ranks_expected = 3;
  out.report.ranks_read = ranks_of({0, 1, 2});
  out.report.events = 1234;
  out.report.findings = std::move(findings);
  return out;
}

// Everything at once: findings, hostile text, what was set aside, notes.
inline FilteredReport crowded_report() {
  FilteredReport out =
      report_of({full_finding(), hostile_finding(), hostile_finding(),
                 finding_of(verify::RuleId::damaged_trace, verify::Severity::note)});
  out.report.unknown = {"reduce op: not recorded", "<b>\x02"};
  out.set_aside = {{hostile_finding(), SetAside::Why::suppressed, "TICKET-1 <i>", "2026-12-31"},
                   {full_finding(), SetAside::Why::known, "", ""}};
  out.compared = true;
  out.notes = {"an entry matches nothing"};
  return out;
}

inline FilteredReport inconclusive_report() {
  FilteredReport out = report_of({});
  out.report.verdict = verify::Verdict::inconclusive;
  out.report.ranks_missing = ranks_of({1});
  return out;
}

}  // namespace lockstep::reports
