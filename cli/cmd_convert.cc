// lockstep convert PATH… -o OUT: traces of any readable form as text, as a digest, as a scenario,
// or as Chakra's execution traces.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/files/gzip.h"
#include "base/files/write_file.h"
#include "base/quantities.h"
#include "base/tables.h"
#include "base/terminal.h"
#include "base/text.h"
#include "cli/commands.h"
#include "reports/exit_status.h"
#include "runtime/launch/recorded_failure.h"
#include "runtime/replay/program.h"
#include "trace/formats/chakra/writer.h"
#include "trace/formats/digest/digest.h"
#include "trace/formats/format.h"
#include "trace/formats/text/text_trace.h"
#include "trace/load.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

struct ConvertCommand {
  std::vector<std::string> paths;
  std::string output;
  std::string to = "text";
  trace::LoadOptions load;
  runtime::ProgramOptions program;  // of a scenario
  bool gzip = false;
  bool force = false;
  bool quiet = false;
};

constexpr const char* kConvertFooter = R"(Examples:
  Read a killed job's ring files as text, one file per rank:
    lockstep convert /tmp/job-4711/ -o /tmp/job-4711-text
  Small enough to attach to a bug report:
    lockstep convert rank_0.ring rank_3.ring -o report/ --gzip
  The traces of many ranks in one small file. On each machine of a job:
    srun --ntasks-per-node=1 sh -c \
      'lockstep convert --to digest /tmp/job-4711 -o /shared/$(hostname).digest'
  Then, once, anywhere:
    lockstep verify /shared/*.digest
  Turn a hang into a test for CI:
    lockstep convert --to scenario /tmp/job-4711/ -o hang.yaml
    lockstep run --check hang.yaml
  What a profiled job did, for ASTRA-sim and Chakra's tools:
    lockstep convert --to chakra /shared/profiles/ -o job.et/
  Only the last calls, with tensors that fit into this machine's memory:
    lockstep convert --to scenario dumps/ -o hang.yaml --last 20 \
      --max-elements 4096

PATH is anything that `lockstep verify` reads. --to decides what OUT is:
  text      a folder with a rank_<r>.trace.jsonl for each rank
  digest    one file; digests can be merged in any order. It leaves out what no
            verdict needs, such as durations (docs/digest.md)
  scenario  the scenario's file, and next to it a folder of traces with calls:
            job.yaml and job.calls/. It expects the verdict of the traces. What
            a replay cannot show is refused: wrong numbers, missing ranks, MPI
            programs (docs/replay.md)
  chakra    a folder with an execution trace job.<r>.et for each rank: calls,
            work where it was recorded, and what waits for what
            (docs/formats.md)

Exit status: 0 written, 2 bad usage or input, 3 written without the files that
could not be read, 4 the tool failed.)";

// Files that could not be read do not stop the others: the status says that some are missing.
void warn_of(const std::vector<trace::Run::Unreadable>& files) {
  for (const trace::Run::Unreadable& file : files)
    std::cerr << "lockstep: " << file.error.str() << "\n";
}

reports::ExitStatus status_for(const std::vector<trace::Run::Unreadable>& unreadable) {
  // What was written is right, but incomplete.
  return unreadable.empty() ? reports::ExitStatus::clean : reports::ExitStatus::inconclusive;
}

// The file of each rank: `before`, its number, `after`. Errors: one of them exists already and may
// not be replaced.
Result<std::vector<std::string>> rank_files(const trace::Run& run, const ConvertCommand& command,
                                            const std::string& before, const std::string& after) {
  std::vector<std::string> out;
  for (const trace::RankTrace& trace : run.ranks) {
    const fs::path path =
        fs::path(command.output) / fmt::format("{}{}{}", before, trace.rank.value, after);
    std::error_code ignored;
    // All are checked before the first is written: a refusal leaves nothing half done.
    if (!command.force && fs::exists(path, ignored))
      return Error{"file exists already",
                   {.file = path.string()},
                   "write to another folder, or give --force to replace it"};
    out.push_back(path.string());
  }
  return out;
}

// Verifying a copy must not say more than the original allows: it keeps what its format alone
// tells, and that files are missing.
void mark_converted(trace::Run& run, const std::string& format) {
  for (trace::RankTrace& trace : run.ranks)
    if (trace.converted_from.empty()) trace.converted_from = format;
  if (run.ranks.empty()) return;
  run.ranks.front().conflicts = run.header_conflicts;
  if (run.unreadable.empty()) return;
  std::string& reason = run.ranks.front().inconclusive;
  if (reason.empty())
    reason = fmt::format("a file could not be read when these were converted: {}",
                         run.unreadable.front().error.summary());
}

reports::ExitStatus convert_to_text(const ConvertCommand& command) {
  const ProgressLine progress("converting");
  Result<trace::LoadedTraces> loaded = trace::load_traces(command.paths, command.load);
  if (!loaded) return reports::fail(loaded.error());
  const std::string format(loaded->format->name);
  trace::Run run = trace::complete_run(std::move(*loaded));
  mark_converted(run, format);
  const Result<std::vector<std::string>> files =
      rank_files(run, command, "rank_", command.gzip ? ".trace.jsonl.gz" : ".trace.jsonl");
  if (!files) return reports::fail(files.error());
  if (const Status made = make_folder(command.output); !made) return reports::fail(made.error());
  for (std::size_t i = 0; i < run.ranks.size(); ++i) {
    std::ostringstream text;
    trace::write_text_trace(text, run.ranks[i], run.tables);
    const Status written =
        write_file((*files)[i], command.gzip ? gzip(text.str()) : std::move(text).str());
    if (!written) return reports::fail(written.error(), reports::ExitStatus::own_failure);
  }
  warn_of(run.unreadable);
  if (!command.quiet)
    std::cout << "wrote " << plural(run.ranks.size(), "rank") << ", "
              << plural(run.event_count(), "event") << " to " << printable(command.output) << "\n";
  return status_for(run.unreadable);
}

reports::ExitStatus convert_to_chakra(const ConvertCommand& command) {
  const ProgressLine progress("converting");
  trace::LoadOptions load = command.load;
  load.work = true;
  const Result<trace::Run> run = trace::load_run(command.paths, load);
  if (!run) return reports::fail(run.error());
  const Result<std::vector<std::string>> files = rank_files(*run, command, "job.", ".et");
  if (!files) return reports::fail(files.error());
  // All are made before the first is written: a refusal leaves nothing half done.
  std::vector<std::string> contents;
  for (const trace::RankTrace& rank : run->ranks) {
    Result<std::string> content = trace::chakra_trace(rank, run->tables);
    if (!content) return reports::fail(content.error());
    contents.push_back(std::move(*content));
  }
  if (const Status made = make_folder(command.output); !made) return reports::fail(made.error());
  for (std::size_t i = 0; i < contents.size(); ++i)
    if (const Status written = write_file((*files)[i], contents[i]); !written)
      return reports::fail(written.error(), reports::ExitStatus::own_failure);
  warn_of(run->unreadable);
  if (!command.quiet)
    std::cout << "wrote " << plural(contents.size(), "rank") << " to " << printable(command.output)
              << "\n";
  return status_for(run->unreadable);
}

reports::ExitStatus convert_to_digest(const ConvertCommand& command) {
  // Not load_run(): a digest keeps traces as they were read, and links them where it is read, with
  // those of the other digests.
  Result<trace::LoadedTraces> loaded = [&] {
    const ProgressLine progress("reading traces");
    return trace::load_traces(command.paths, command.load);
  }();
  if (!loaded) return reports::fail(loaded.error());
  const trace::Digest digest = trace::write_digest(
      loaded->traces, loaded->tables, {std::string(loaded->format->name), loaded->unreadable});
  const std::string packed = gzip(digest.bytes);
  if (const Status written = write_file(command.output, packed); !written)
    return reports::fail(written.error(), reports::ExitStatus::own_failure);
  warn_of(loaded->unreadable);
  if (!command.quiet)
    std::cout << "wrote " << plural(loaded->traces.size(), "rank") << " in "
              << plural(digest.forms, "class", "classes") << ", " << bytes_text(packed.size())
              << ", to " << printable(command.output) << "\n";
  return status_for(loaded->unreadable);
}

reports::ExitStatus convert_to_scenario(const ConvertCommand& command) {
  return runtime::recorded_failure_to_scenario(
      {command.paths, command.load, command.output, command.program, command.force}, std::cout);
}

// The form that the name of the output implies: -o job.yaml, -o run.digest, -o job.et.
std::string form_by_ending(const std::string& output) {
  const std::string ending = fs::path(output).extension().string();
  if (ending == ".yaml" || ending == ".yml") return "scenario";
  if (ending == ".et") return "chakra";
  return ending == ".digest" ? "digest" : "text";
}

reports::ExitStatus run_convert(const ConvertCommand& command) {
  if (command.to == "digest") return convert_to_digest(command);
  if (command.to == "scenario") return convert_to_scenario(command);
  if (command.to == "chakra") return convert_to_chakra(command);
  return convert_to_text(command);
}

// The error for an option that was given and has no effect on the form `to`.
Status belongs_to(const CLI::Option& option, const std::string& to,
                  const std::vector<std::string>& forms) {
  if (option.count() == 0 || std::find(forms.begin(), forms.end(), to) != forms.end())
    return Status::ok();
  return Error{fmt::format("{} has no effect with --to {}", option.get_name(), to),
               {},
               fmt::format("leave it out, or write --to {}", forms.front())};
}

}  // namespace

void add_convert(CLI::App& app, reports::ExitStatus& status) {
  CLI::App* command =
      app.add_subcommand("convert", "Write traces as text, digest, scenario, or for Chakra");
  const auto options = std::make_shared<ConvertCommand>();
  command->add_option("PATH", options->paths, "Trace files, or folders that hold them")
      ->type_name("")
      ->required();
  command->add_option("-o,--output", options->output, "The folder or file to write")
      ->type_name("OUT")
      ->required();
  const CLI::Option* to =
      command
          ->add_option("--to", options->to,
                       "What to write, as below; default: by OUT's ending,\n.digest, .yaml or .et; "
                       "else text")
          ->type_name("text|digest|scenario|chakra")
          ->check(CLI::IsMember({"text", "digest", "scenario", "chakra"}).description(""));
  const CLI::Option* gzip = command->add_flag("--gzip", options->gzip, "Compress text files");
  const CLI::Option* force = command->add_flag("--force", options->force, "Replace existing files");
  const CLI::Option* last =
      command
          ->add_option("--last", options->program.last,
                       "For scenario: only the last N calls of each rank, or\n"
                       "more if these do not match each other")
          ->type_name("N")
          ->check(CLI::Range(std::size_t{1}, runtime::kMaxReplayCalls));
  const CLI::Option* elements =
      command
          ->add_option("--max-elements", options->program.max_elements,
                       "For scenario: shrink larger tensors; equal sizes stay\n"
                       "equal, different sizes stay different")
          ->type_name("N")
          ->check(CLI::Range(std::int64_t{2}, std::int64_t{1} << 30U));
  command->add_option("--format", options->load.format, "Read as this format; default: by content")
      ->type_name("NAME");
  command
      ->add_option("--rank-pattern", options->load.rank_pattern,
                   "Regular expression whose first group is the rank in a\nfile's name")
      ->type_name("REGEX");
  command->add_flag("-q,--quiet", options->quiet, "Print nothing but errors");
  command->footer(kConvertFooter);
  command->callback([=, &status] {
    if (to->count() == 0) options->to = form_by_ending(options->output);
    for (const Status& fits : {belongs_to(*gzip, options->to, {"text"}),
                               belongs_to(*force, options->to, {"text", "scenario", "chakra"}),
                               belongs_to(*last, options->to, {"scenario"}),
                               belongs_to(*elements, options->to, {"scenario"})})
      if (!fits) {
        status = reports::fail(fits.error());
        return;
      }
    status = run_convert(*options);
  });
}

}  // namespace lockstep::cli
