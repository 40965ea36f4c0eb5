// Writes the programs of healthy jobs, call by call.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tests/verify/injection/job.h"

namespace lockstep::verify::injection {

// Writes one rank's program.
class Writer {
 public:
  explicit Writer(Actions& out) : out_(out) {}

  int issue(CallSpec call) {
    call.step = step;
    Action a;
    a.call = std::move(call);
    a.handle = next_handle_++;
    if (!a.call.async && a.call.at.empty()) a.call.at = "train.py:" + std::to_string(100 + line_++);
    out_.push_back(std::move(a));
    return next_handle_ - 1;
  }
  void wait(int handle) {
    Action a;
    a.kind = Action::Kind::wait;
    a.handle = handle;
    out_.push_back(std::move(a));
  }
  void begin_step(int n, const std::vector<std::string>& modalities) {
    step = n;
    line_ = 0;
    Action a;
    a.kind = Action::Kind::modality;
    a.n = n;
    a.names = modalities;
    out_.push_back(std::move(a));
  }
  void end_step() {
    Action a;
    a.kind = Action::Kind::step;
    a.n = step;
    out_.push_back(std::move(a));
  }

  int step = kUnset;

 private:
  Actions& out_;
  int next_handle_ = 0;
  int line_ = 0;
};

CallSpec all_reduce(const std::string& group, std::int64_t size, std::vector<std::string> what);
// A size of 0: no tensor.
CallSpec collective(const std::string& op, const std::string& group, std::int64_t in,
                    std::int64_t out);
CallSpec transfer(const std::string& op, const std::string& group, int peer, int tag,
                  std::int64_t size);

}  // namespace lockstep::verify::injection
