// lockstep digest PATH… -o FILE: the traces of many ranks in one small file.
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/files/gzip.h"
#include "base/files/write_file.h"
#include "base/tables.h"
#include "base/terminal.h"
#include "base/text.h"
#include "cli/commands.h"
#include "reports/exit_status.h"
#include "trace/formats/digest/digest.h"
#include "trace/formats/format.h"
#include "trace/load.h"

namespace lockstep::cli {
namespace {

struct DigestCommand {
  std::vector<std::string> paths;
  std::string output;
  trace::LoadOptions load;
  bool quiet = false;
};

constexpr const char* kDigestFooter = R"(Examples:
  On each machine of a job, of the ranks that recorded there:
    srun --ntasks-per-node=1 sh -c \
      'lockstep digest /tmp/job-4711 -o /shared/job-4711/$(hostname).digest'
  Then, once, anywhere: the verdict on all of them
    lockstep verify /shared/job-4711/*.digest
  Where there are thousands, a rack at a time, in any order:
    lockstep digest rack7/*.digest -o rack7.digest

PATH is whatever `lockstep verify` reads, digests too. What a digest leaves out
(times of day, durations) decides no verdict; docs/digest.md has the list.)";

reports::ExitStatus run_digest(const DigestCommand& command) {
  Result<trace::LoadedTraces> loaded = [&] {
    const Patience patience("reading traces");
    return trace::load_traces(command.paths, command.load);
  }();
  if (!loaded) return reports::fail(loaded.error());
  const trace::Digest digest = trace::write_digest(
      loaded->traces, loaded->tables, {std::string(loaded->format->name), loaded->unreadable});
  const std::string packed = gzip(digest.bytes);
  if (const Status written = write_file(command.output, packed); !written)
    return reports::fail(written.error(), reports::ExitStatus::own_failure);
  for (const trace::Run::Unreadable& file : loaded->unreadable) {
    std::cerr << "lockstep: " << file.error.str() << "\n";
  }
  if (!command.quiet) {
    std::cout << "wrote " << plural(loaded->traces.size(), "rank") << " in "
              << plural(digest.forms, "class", "classes") << ", " << bytes_in_words(packed.size())
              << ", to " << printable(command.output) << "\n";
  }
  return loaded->unreadable.empty() ? reports::ExitStatus::clean
                                    : reports::ExitStatus::inconclusive;
}

}  // namespace

void add_digest(CLI::App& app, reports::ExitStatus& status) {
  CLI::App* command =
      app.add_subcommand("digest", "Put the traces of many ranks into one small file");
  const auto options = std::make_shared<DigestCommand>();
  command->add_option("PATH", options->paths, "Trace files, digests, or folders that hold them")
      ->type_name("")
      ->required();
  command->add_option("-o,--output", options->output, "Where to write it; replaced if it is there")
      ->type_name("FILE")
      ->required();
  command->add_option("--format", options->load.format,
                      "Read the files as this format; default: by\ncontent");
  command->add_option("--rank-pattern", options->load.rank_pattern,
                      "Regular expression whose first group is\n"
                      "the rank in a file's name");
  command->add_flag("-q,--quiet", options->quiet, "Say nothing where all is well");
  command->footer(kDigestFooter);
  command->callback([options, &status] { status = run_digest(*options); });
}

}  // namespace lockstep::cli
