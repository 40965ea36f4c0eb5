// Writes the lines of one rank's trace, as the contract of the text form has them.
#pragma once

#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "tests/verify/injection/job.h"

namespace lockstep::verify::injection {

class TraceLines {
 public:
  TraceLines(const Job& job, int rank, const Recording& recording, Random& random);

  // From now on lines carry this time; before the first call, times are made up.
  void move_clock(long long nanoseconds) { clock_ = nanoseconds; }
  void issue(int id, const CallSpec& call);
  // "start", "complete", "wait", "waited"
  void call_event(const char* kind, int id);
  void modality(const Action& action);
  void step(int n);
  void exception(const std::string& text, int id);  // id kUnset: not known
  void end(const char* how);

  const std::string& text() const { return text_; }

 private:
  using Line = nlohmann::ordered_json;

  void append(const Line& line);
  void add_event(Line line);  // with the time, where times are recorded

  const Recording& recording_;
  Random& random_;
  const bool mpi_;
  std::string text_;
  long long time_ = 1000;
  std::optional<long long> clock_;
};

}  // namespace lockstep::verify::injection
