// `lockstep-worker model`: the contents of a model or a weights file, and one training step of a
// model.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace lockstep::runtime {

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
