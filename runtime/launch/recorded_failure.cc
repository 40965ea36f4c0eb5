#include "runtime/launch/recorded_failure.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/files/write_file.h"
#include "base/quantities.h"
#include "base/result.h"
#include "base/tables.h"
#include "base/terminal.h"
#include "base/text.h"
#include "runtime/job/scenario.h"
#include "runtime/replay/replay_scenario.h"
#include "runtime/replay/tensors.h"
#include "trace/formats/text/text_trace.h"
#include "verify/verify.h"

namespace lockstep::runtime {

namespace {

namespace fs = std::filesystem;

// The part of the verdict that a replay must reproduce.
Scenario::Expect expectation(const verify::Report& report) {
  Scenario::Expect out;
  out.verdict = verify::to_string(report.verdict);
  if (report.findings.empty() || report.verdict == verify::Verdict::clean) return out;
  const verify::Finding& leading = report.findings.front();
  out.rules = {std::string(verify::rule(leading.rule).name)};
  out.culprits.emplace();
  for (const trace::Rank rank : leading.culprits) out.culprits->push_back(rank.value);
  out.step = leading.step;
  return out;
}

std::string in_words(const Scenario::Expect& expect) {
  if (expect.rules.empty()) return expect.verdict;
  const std::vector<int>& culprits = *expect.culprits;
  return expect.rules.front() +
         (culprits.empty() ? std::string()
                           : fmt::format(" of {}{}", culprits.size() == 1 ? "rank " : "ranks ",
                                         ranges({culprits.begin(), culprits.end()})));
}

// Why the run cannot be replayed, as far as the report alone shows it.
std::optional<Error> find_obstacle(const verify::Report& report, const std::string& path) {
  if (report.verdict == verify::Verdict::inconclusive) {
    return Error{
        "the traces do not show whether anything is wrong, so a replay has nothing to reproduce",
        {path},
        "`lockstep verify` says what is missing"};
  }
  if (report.verdict == verify::Verdict::clean) return std::nullopt;
  const verify::Rule& leading = verify::rule(report.findings.front().rule);
  if (leading.family == "numbers" || leading.family == "data" || leading.family == "input") {
    return Error{fmt::format("the verdict is {}, but a replay only makes calls: {}", leading.name,
                             leading.family == "input" ? "it has no damaged files"
                                                       : "it computes nothing and reads no data"),
                 {path},
                 leading.family == "input"
                     ? "bring whole traces of all ranks"
                     : "`lockstep verify --fail-on error` is a test of it in CI"};
  }
  return std::nullopt;
}

// The reduced program must give the verdict of the run. Otherwise something that was left out
// matters.
std::optional<Error> find_difference(const Scenario::Expect& found, const Scenario::Expect& shown,
                                     const RecordedFailure& failure) {
  if (found.verdict == shown.verdict && found.culprits == shown.culprits) return std::nullopt;
  const bool cut = failure.program.last > 0;
  return Error{fmt::format("the traces show {}, and their calls alone would show {}",
                           in_words(found), in_words(shown)),
               {failure.paths.front()},
               cut ? "keep more of the calls: a larger --last, or none"
                   : "`lockstep verify` judges the traces themselves"};
}

// What a replay of `program` must show. Errors: not the verdict of the run.
Result<Scenario::Expect> expectation_of_replay(const verify::Report& report,
                                               const trace::Run& program,
                                               const RecordedFailure& failure) {
  Scenario::Expect out = expectation(report);
  const Scenario::Expect shown = expectation(verify::verify(program));
  if (const auto error = find_difference(out, shown, failure)) return *error;
  // A replay records more than many sources do, so it may find a more specific rule. Accept either.
  for (const std::string& name : shown.rules) {
    if (std::find(out.rules.begin(), out.rules.end(), name) == out.rules.end())
      out.rules.push_back(name);
  }
  out.step = shown.step;
  return out;
}

Status write_calls(const trace::Run& program, const fs::path& folder) {
  if (const Status made = make_folder(folder.string()); !made) return made;
  for (const trace::RankTrace& trace : program.ranks) {
    std::ostringstream text;
    trace::write_text_trace(text, trace, program.tables);
    const std::string name = fmt::format("rank_{}.trace.jsonl", trace.rank.value);
    if (const Status written = write_file((folder / name).string(), std::move(text).str());
        !written) {
      return written;
    }
  }
  return Status::ok();
}

constexpr const char* kCallsSuffix = ".calls";

fs::path calls_folder(const fs::path& scenario) {
  return fs::path(scenario).replace_extension(kCallsSuffix);
}

// Checks the names of the files to write. Called before the traces are read, which may take long.
Status check_names(const RecordedFailure& failure) {
  const fs::path file = failure.output;
  const fs::path folder = calls_folder(file);
  std::error_code unknown;
  if (!file.has_filename() || fs::is_directory(file, unknown))
    return Error{"this is a folder", {file.string()}, "name a file: hang.yaml"};
  if (file.extension() == kCallsSuffix)
    return Error{"the calls go into a folder of this name", {file.string()}, "name it hang.yaml"};
  const std::string name = folder.filename().string();
  if (printable(name) != name)
    return Error{"a scenario cannot contain the name of its folder of calls",
                 {file.string()},
                 "name the file in UTF-8, without control characters"};
  const fs::path whole = fs::weakly_canonical(folder, unknown);
  for (const std::string& path : failure.paths) {
    const fs::path given = fs::weakly_canonical(path, unknown);
    const bool inside =
        std::mismatch(whole.begin(), whole.end(), given.begin(), given.end()).first == whole.end();
    if (inside && !whole.empty())
      return Error{"the calls would replace the traces that they are made of",
                   {folder.string()},
                   "name another file"};
  }
  return Status::ok();
}

// Refuses to overwrite. With --force, removes what an earlier call of this command wrote.
Status clear(const fs::path& scenario, const fs::path& folder, bool force) {
  std::error_code unknown;
  for (const fs::path& path : {scenario, folder}) {
    if (fs::exists(path, unknown) && !force) {
      return Error{"exists already", {path.string()}, "name another file, or give --force"};
    }
  }
  for (fs::directory_iterator it(folder, unknown), end; !unknown && it != end;
       it.increment(unknown)) {
    const std::string name = it->path().filename().string();
    std::error_code failed;
    if (name.starts_with("rank_") && name.ends_with(".trace.jsonl")) fs::remove(it->path(), failed);
  }
  return Status::ok();
}

// "job-4711" for both "runs/job-4711/" and "runs/job-4711".
std::string last_name(const fs::path& path) {
  const fs::path whole = fs::absolute(path).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

std::string calls_in_words(const trace::Run& program) {
  std::size_t most = 0, all = 0;
  for (const trace::RankTrace& trace : program.ranks) {
    most = std::max(most, trace.calls.size());
    all += trace.calls.size();
  }
  return fmt::format("{}, {}{}, at most {} of one rank", plural(program.ranks.size(), "rank"),
                     grouped(all), all == 1 ? " call" : " calls", grouped(most));
}

}  // namespace

reports::ExitStatus recorded_failure_to_scenario(const RecordedFailure& failure,
                                                 std::ostream& stream) {
  if (const Status ok = check_names(failure); !ok) return reports::fail(ok.error());
  const ProgressLine progress("reading traces");
  Result<trace::Run> run = trace::load_run(failure.paths, failure.load);
  if (!run) return reports::fail(run.error());
  const std::string& path = failure.paths.front();
  // What the traces show must be something that calls alone can show again.
  const verify::Report report = verify::verify(*run);
  if (const auto error = find_obstacle(report, path)) {
    return reports::fail(*error, report.verdict == verify::Verdict::inconclusive
                                     ? reports::ExitStatus::inconclusive
                                     : reports::ExitStatus::bad_usage);
  }
  ProgramOptions options = failure.program;
  options.ends_well = report.verdict == verify::Verdict::clean;
  const Result<trace::Run> program = replay_program(std::move(*run), options);
  if (!program) return reports::fail(program.error());
  if (const Status fits = check_tensors(*program); !fits) return reports::fail(fits.error());
  // The calls are judged before anything is written: they must lead to the same verdict.
  const Result<Scenario::Expect> expect = expectation_of_replay(report, *program, failure);
  if (!expect) return reports::fail(expect.error());

  const fs::path file = failure.output;
  const fs::path folder = calls_folder(file);
  if (const Status free = clear(file, folder, failure.force); !free)
    return reports::fail(free.error());
  ReplayScenario scenario;
  scenario.expect = *expect;
  scenario.name = fmt::format("replay of {}", last_name(path));
  if (!report.findings.empty()) scenario.description = report.findings.front().message;
  scenario.ranks = program->world_size;
  scenario.trace = folder.filename().string();
  Status written = write_calls(*program, folder);
  if (written) written = write_file(file.string(), replay_scenario_text(scenario));
  if (!written) return reports::fail(written.error(), reports::ExitStatus::own_failure);
  stream << "wrote " << printable(file.string()) << " and " << printable(folder.string())
         << "/\n      " << calls_in_words(*program) << "\nit expects: " << in_words(scenario.expect)
         << "\n";
  return reports::ExitStatus::clean;
}

}  // namespace lockstep::runtime
