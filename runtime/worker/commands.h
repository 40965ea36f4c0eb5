// The commands of lockstep-worker that train no rank.
#pragma once

#include <memory>
#include <string>

namespace CLI {
class App;
}

namespace lockstep::runtime {

// `lockstep-worker batch-size`: the largest batch of a scenario that fits into memory.
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

// `lockstep-worker data …`: inspects data sets, and the preprocessing of a file.
//
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

// `lockstep-worker model`: the contents of a model or a weights file, and one training step of a
// model.
class ModelCommands {
 public:
  // Adds the subcommand to `app`, which must outlive this object; parsing fills this object.
  explicit ModelCommands(CLI::App& app);
  ModelCommands(const ModelCommands&) = delete;
  ModelCommands& operator=(const ModelCommands&) = delete;

  bool chosen() const;  // valid after `app` has parsed the command line
  // Prints to stdout, errors to stderr. Returns the exit status: 0; 1 if Torch raised an exception;
  // 2 for an unknown name or file.
  int run() const;

 private:
  int describe() const;
  int step() const;

  CLI::App* model_;
  CLI::App* describe_;
  CLI::App* step_;
  std::string described_;
  std::string name_;
  std::string weights_;
  int batch_ = 2;
};

}  // namespace lockstep::runtime
