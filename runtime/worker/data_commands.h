// `lockstep-worker data …`: inspects data sets, and the preprocessing of a file.
#pragma once

#include <memory>

namespace CLI {
class App;
}

namespace lockstep::runtime {

// Adds the command to `app`; after parsing, run() does what was chosen.
class DataCommands {
 public:
  explicit DataCommands(CLI::App& app);
  ~DataCommands();
  DataCommands(const DataCommands&) = delete;
  DataCommands& operator=(const DataCommands&) = delete;

  bool chosen() const;
  // Exit status: 0 fine; 1 `data check` found something; 2 a file or an option is bad.
  int run() const;

 private:
  struct Options;
  CLI::App* command_ = nullptr;
  std::unique_ptr<Options> options_;
};

}  // namespace lockstep::runtime
