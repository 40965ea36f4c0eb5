// lockstep completion SHELL: a script that completes the command line.
#include <iostream>
#include <memory>
#include <string>

#include "cli/commands.h"
#include "cli/completion.h"
#include "cli/output.h"

namespace lockstep {
namespace {

constexpr const char* kCompletionFooter = R"(Examples:
  In this shell:
    source <(lockstep completion bash)
  For good:
    lockstep completion bash \
      > ~/.local/share/bash-completion/completions/lockstep
    lockstep completion zsh > "${fpath[1]}/_lockstep"
    lockstep completion fish > ~/.config/fish/completions/lockstep.fish
The Debian package puts them in place.)";

ExitStatus print_script(const CLI::App& app, const std::string& shell) {
  const Shell kind = shell == "bash" ? Shell::bash : shell == "zsh" ? Shell::zsh : Shell::fish;
  std::cout << completion_script(kind, app.get_name(), completed_commands(app)) << std::flush;
  if (std::cout) return ExitStatus::clean;
  return fail({"cannot write to standard output", {}, "check where it is redirected to"},
              ExitStatus::own_failure);
}

}  // namespace

void add_completion(CLI::App& app, ExitStatus& status) {
  CLI::App* command = app.add_subcommand("completion", "Print a script that completes commands");
  const auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "bash, zsh or fish")
      ->type_name("")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}).description(""));
  command->footer(kCompletionFooter);
  command->callback([&app, shell, &status] { status = print_script(app, *shell); });
}

}  // namespace lockstep
