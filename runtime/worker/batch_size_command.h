// `lockstep-worker batch-size`: the largest batch of a scenario that fits into memory.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace lockstep::runtime {

class BatchSizeCommand {
 public:
  // Adds the subcommand to `app`, which must outlive this object; parsing fills this object.
  explicit BatchSizeCommand(CLI::App& app);
  BatchSizeCommand(const BatchSizeCommand&) = delete;
  BatchSizeCommand& operator=(const BatchSizeCommand&) = delete;

  bool chosen() const;  // valid after `app` has parsed the command line
  // Prints each try to stdout, errors to stderr. Returns the exit status: 0 if a size fits, 1 if
  // none does or a try failed for another reason, 2 for a bad scenario.
  int run() const;

 private:
  CLI::App* command_;
  std::string scenario_;
  double limit_mb_ = 0;
  int first_ = 1;
  int most_ = 4096;
  int steps_ = 3;
};

}  // namespace lockstep::runtime
