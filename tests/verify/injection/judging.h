// Helpers of the property tests: what varies by chance, and how a report is judged and shown.
#pragma once

#include <functional>
#include <sstream>
#include <string>

#include "tests/verify/injection/executor.h"
#include "tests/verify/injection/faults.h"
#include "tests/verify/injection/files.h"
#include "verify/verify.h"

namespace lockstep::verify::injection {

Recording any_recording(Random& random);
Behaviour any_behaviour(Random& random);

// How a report compares with what can be expected of it. What is not judged is right.
struct Judgement {
  bool found = false;  // something of weight was said
  bool open = false;   // nothing was, for the data cannot show it either way
  bool vague = false;  // only the effect was named, where the data show no more
  bool rule = false;   // the leading finding's
  bool culprit = false;
  bool location = false;  // group, number and step
  std::string complaint;  // the first thing that is wrong; empty: nothing
};
Judgement judge(const Report& report, const Expectation& expected);

std::string text_of(const std::vector<int>& ranks);
// Each with a blank after it; none is "- ".
template <class Values>
std::string joined(const Values& values) {
  std::ostringstream out;
  for (const auto& v : values) out << v << ' ';
  return values.empty() ? "- " : out.str();
}
std::string text_of(const Report& report);
// The program and how it was run and recorded.
std::string describe(const Job& job, const Recording& recording, const Behaviour& behaviour);

// Writes the files to the folder that INJECTION_DUMP names, if it does.
void keep(const Files& files);

// Calls `judge` with the seeds 0 … count-1, or only with the one that INJECTION_SEED names.
void for_each_seed(int count, const std::function<void(std::uint32_t)>& judge);

}  // namespace lockstep::verify::injection
