// lockstep convert IN… OUT_DIR: any readable form of a trace to the text form.
#include <filesystem>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/files/gzip.h"
#include "base/files/write_file.h"
#include "base/tables.h"
#include "base/terminal.h"
#include "base/text.h"
#include "cli/commands.h"
#include "reports/exit_status.h"
#include "trace/formats/text/text_trace.h"
#include "trace/load.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

struct ConvertCommand {
  std::vector<std::string> paths;  // the last one is the folder to write to
  bool gzip = false;
  bool force = false;
};

constexpr const char* kConvertFooter = R"(Examples:
  Read a killed job's ring files with your own eyes:
    lockstep convert /tmp/job-4711/ /tmp/job-4711-text
  Small enough to attach to a bug report:
    lockstep convert rank_0.ring rank_3.ring report/ --gzip

Writes rank_<r>.trace.jsonl for every rank that could be read.)";

// Where every rank's file goes. Errors: one of them is there already and may not be replaced.
Result<std::vector<std::string>> targets(const trace::Run& run, const fs::path& folder,
                                         const ConvertCommand& command) {
  std::vector<std::string> out;
  for (const trace::RankTrace& trace : run.ranks) {
    const fs::path path = folder / ("rank_" + std::to_string(trace.rank.value) + ".trace.jsonl" +
                                    (command.gzip ? ".gz" : ""));
    std::error_code ignored;
    if (!command.force && fs::exists(path, ignored))
      return Error{"file exists already",
                   {.file = path.string()},
                   "write to another folder, or give --force to replace it"};
    out.push_back(path.string());
  }
  return out;
}

reports::ExitStatus run_convert(const ConvertCommand& command) {
  const std::vector<std::string> inputs(command.paths.begin(), command.paths.end() - 1);
  const fs::path folder = command.paths.back();
  const Patience patience("converting");
  const Result<trace::Run> run = trace::load_run(inputs);
  if (!run) return reports::fail(run.error());
  const Result<std::vector<std::string>> files = targets(*run, folder, command);
  if (!files) return reports::fail(files.error());
  if (const Status made = make_folder(folder.string()); !made) return reports::fail(made.error());
  for (std::size_t i = 0; i < run->ranks.size(); ++i) {
    std::ostringstream text;
    trace::write_text_trace(text, run->ranks[i], run->tables);
    const Status written =
        write_file((*files)[i], command.gzip ? gzip(text.str()) : std::move(text).str());
    if (!written) return reports::fail(written.error(), reports::ExitStatus::own_failure);
  }
  for (const trace::Run::Unreadable& file : run->unreadable) {
    std::cerr << "lockstep: " << file.error.str() << "\n";
  }
  std::cout << "wrote " << plural(run->ranks.size(), "rank") << ", " << grouped(run->event_count())
            << " events to " << printable(folder.string()) << "\n";
  return run->unreadable.empty() ? reports::ExitStatus::clean : reports::ExitStatus::inconclusive;
}

}  // namespace

void add_convert(CLI::App& app, reports::ExitStatus& status) {
  CLI::App* command = app.add_subcommand("convert", "Write traces of any readable form as text");
  const auto options = std::make_shared<ConvertCommand>();
  command
      ->add_option("IN... OUT_DIR", options->paths,
                   "Trace files or folders; the last is written to")
      ->type_name("")
      ->required()
      ->expected(2, CLI::detail::expected_max_vector_size);
  command->add_flag("--gzip", options->gzip, "Compress the files");
  command->add_flag("--force", options->force, "Replace files that are there already");
  command->footer(kConvertFooter);
  command->callback([options, &status] { status = run_convert(*options); });
}

}  // namespace lockstep::cli
