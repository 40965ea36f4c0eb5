// Counts how reports stand beside what could be expected of them, and writes the counts as tables
// in Markdown.
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "tests/verify/injection/faults.h"
#include "tests/verify/injection/judging.h"
#include "verify/report.h"

namespace lockstep::verify::injection {

// Of the trials of one fault.
struct Score {
  int judged = 0;
  int found = 0;              // something of weight was said
  int open = 0;               // the verdict was "inconclusive"
  int rule = 0;               // … by a rule that the data allow
  int exact = 0;              // … by the fault's own rule
  int culprit = 0;            // … and the right ranks, or nobody where none can be told
  int place = 0;              // … and group, number, step
  int clean = 0;              // nothing to complain about
  int overwritten = 0;        // not judged: the place was not in the ring any more
  int overwritten_found = 0;  // of those, something was said
};

// How often a rule led a report, and how often it was one that the data allow there.
struct Said {
  int times = 0, right = 0;
};

struct Tally {
  std::array<Score, kFaults> scores{};
  std::map<std::string, Said> said;
  int healthy = 0, alarms = 0;

  void add(Fault fault, const Report& report, const Judgement& judgement);
  void add_overwritten(Fault fault, const Report& report);
  void add_healthy(const Report& report);

  Score total() const;
};

// Recall, culprit and place by fault.
std::string table_of_faults(const Tally& tally);
// Precision by rule.
std::string table_of_rules(const Tally& tally);

}  // namespace lockstep::verify::injection
