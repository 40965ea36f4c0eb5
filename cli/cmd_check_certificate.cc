// lockstep check-certificate FILE PATH…: runs the independent checker, check_certificate.py, which
// is part of this program. It reads text traces; those of other forms are converted for it.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/files/read_file.h"
#include "base/files/write_file.h"
#include "cli/child_process.h"
#include "cli/commands.h"
#include "reports/exit_status.h"
#include "trace/derivation.h"
#include "trace/formats/text/text_trace.h"
#include "trace/load.h"
#include "verify/certificates/certificate.h"
#include "verify/certificates/run_certificate.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

struct CheckCommand {
  std::string certificate;
  std::vector<std::string> paths;
  trace::LoadOptions load;
};

constexpr const char* kCheckCertificateFooter = R"(Examples:
  Write a certificate for a derived program, and check it:
    lockstep verify derived/ --certificate safe.txt
    lockstep check-certificate safe.txt derived/
  The same for a recorded run:
    lockstep verify traces/ --certificate run.txt
    lockstep check-certificate run.txt traces/
  In CI: is the program still the one that was proven safe?
    lockstep check-certificate safe.txt derived-today/

Exit status: 0 accepted, 1 refused (the reason is printed), 2 a file cannot be
read, 4 python3 is missing. The checker is a short program in Python, which also
runs alone: share/lockstep/check_certificate.py. docs/certificates.md says what
it checks.)";

// What the checker is called with.
struct Arguments {
  std::vector<std::string> paths;
  std::vector<std::string> assume;  // what the traces' format never records
};

bool all_text(const trace::Run& run) {
  for (const trace::RankTrace& trace : run.ranks) {
    if (!trace.source.ends_with(".trace.jsonl") && !trace.source.ends_with(".trace.jsonl.gz"))
      return false;
  }
  return true;
}

Status write_as_text(const trace::Run& run, const std::string& folder) {
  if (const Status made = make_folder(folder); !made) return made;
  for (const trace::RankTrace& trace : run.ranks) {
    std::ostringstream text;
    trace::write_text_trace(text, trace, run.tables);
    const std::string name = fmt::format("rank_{}.trace.jsonl", trace.rank.value);
    if (const Status ok = write_file((fs::path(folder) / name).string(), text.str()); !ok)
      return ok;
  }
  return Status::ok();
}

Result<Arguments> of_program(const std::string& folder, const std::string& work) {
  const Result<trace::Derivation> derivation = trace::load_derivation(folder);
  if (!derivation) return derivation.error();
  Arguments out{{folder}, {}};
  bool text = true;
  for (const trace::Run& run : derivation->runs) {
    text = text && all_text(run);
    for (const std::string& unknown : run.unknown) {
      if (std::find(out.assume.begin(), out.assume.end(), unknown) == out.assume.end())
        out.assume.push_back(unknown);
    }
  }
  // The checker reads text traces alone, so that it stays short enough to be read; others are
  // converted for it.
  if (text) return out;
  constexpr std::size_t kLargestProduct = std::size_t{16} << 20U;
  const Result<std::string> product =
      read_file((fs::path(folder) / "product.json").string(), kLargestProduct);
  if (!product) return product.error();
  const fs::path copy = fs::path(work) / "program";
  for (std::size_t h = 0; h < derivation->runs.size(); ++h) {
    const fs::path history = copy / derivation->spec.histories[h].folder;
    if (const Status ok = write_as_text(derivation->runs[h], history.string()); !ok)
      return ok.error();
  }
  if (const Status ok = write_file((copy / "product.json").string(), *product); !ok)
    return ok.error();
  out.paths = {copy.string()};
  return out;
}

Result<Arguments> of_run(const CheckCommand& command, const std::string& work) {
  const Result<trace::Run> run = trace::load_run(command.paths, command.load);
  if (!run) return run.error();
  Arguments out{{}, run->unknown};
  // Text traces say themselves that they lost nothing. What is made of others says it always.
  if (all_text(*run) && run->unreadable.empty() && run->header_conflicts.empty()) {
    for (const trace::RankTrace& trace : run->ranks) out.paths.push_back(trace.source);
    return out;
  }
  if (std::optional<Error> error = verify::incomplete(*run)) return *std::move(error);
  const std::string folder = (fs::path(work) / "run").string();
  if (const Status ok = write_as_text(*run, folder); !ok) return ok.error();
  out.paths = {folder};
  return out;
}

// The checker's exit status; nothing where it could not run.
std::optional<int> run_checker(const std::string& script, const std::string& certificate,
                               const Arguments& arguments) {
  // -I: neither PYTHONPATH nor the current folder decide which modules check the proof.
  std::vector<std::string> command = {"python3", "-I", script};
  for (const std::string& text : arguments.assume)
    command.push_back(fmt::format("--assume={}", text));
  // A file may be called "-x".
  command.insert(command.end(), {"--", certificate});
  command.insert(command.end(), arguments.paths.begin(), arguments.paths.end());
  const Result<pid_t> checker = spawn(command);
  if (!checker) return std::nullopt;
  const std::optional<int> status = wait_for(*checker);
  // The checker answers 0, 1 or 2; anything else is Python's own failure.
  return status && *status <= 2 ? status : std::nullopt;
}

reports::ExitStatus run_check(const CheckCommand& command) {
  std::error_code unknown;
  if (!fs::is_regular_file(command.certificate, unknown)) {
    return reports::fail(
        {"there is no such certificate", {command.certificate}, "give what --certificate wrote"});
  }
  const WorkFolder work("", "lockstep-check-");
  const std::string script = (fs::path(work.path()) / "check_certificate.py").string();
  if (const Status written = write_file(script, verify::certificate_checker()); !written)
    return reports::fail(written.error(), reports::ExitStatus::own_failure);
  const bool program = command.paths.size() == 1 &&
                       fs::exists(fs::path(command.paths.front()) / "product.json", unknown);
  const Result<Arguments> arguments =
      program ? of_program(command.paths.front(), work.path()) : of_run(command, work.path());
  if (!arguments) return reports::fail(arguments.error());
  const std::optional<int> status = run_checker(script, command.certificate, *arguments);
  if (!status) {
    return reports::fail({"the checker, a program in Python, did not run", {}, "install python3"},
                         reports::ExitStatus::own_failure);
  }
  return *status == 0   ? reports::ExitStatus::clean
         : *status == 1 ? reports::ExitStatus::findings
                        : reports::ExitStatus::bad_usage;
}

}  // namespace

void add_check_certificate(CLI::App& app, reports::ExitStatus& status) {
  CLI::App* command =
      app.add_subcommand("check-certificate", "Check the proof that a program or a run is safe");
  const auto options = std::make_shared<CheckCommand>();
  command->add_option("FILE", options->certificate, "The certificate")->type_name("")->required();
  command
      ->add_option("PATH", options->paths,
                   "What it certifies: the folder of the derivation, or\n"
                   "the traces of the run")
      ->type_name("")
      ->required();
  command
      ->add_option("--format", options->load.format,
                   "For a run: read the files as this format;\ndefault: by content")
      ->type_name("NAME");
  command
      ->add_option("--rank-pattern", options->load.rank_pattern,
                   "For a run: regular expression whose first\n"
                   "group is the rank in a file's name")
      ->type_name("REGEX");
  command->footer(kCheckCertificateFooter);
  command->callback([options, &status] { status = run_check(*options); });
}

}  // namespace lockstep::cli
