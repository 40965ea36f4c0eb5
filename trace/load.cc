#include "trace/load.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"
#include "trace/choose_pieces.h"
#include "trace/evidence/launched_calls.h"
#include "trace/formats/format.h"
#include "trace/gpus.h"
#include "trace/other_attempts.h"
#include "trace/other_jobs.h"
#include "trace/pieces.h"
#include "trace/trace_files.h"

namespace lockstep::trace {

namespace fs = std::filesystem;

namespace {

// The error for a folder or archive without traces.
Error no_traces(const std::string& path, const std::vector<FoundFile>& looked_at,
                const std::string& format) {
  std::error_code unknown;
  if (!fs::is_directory(path, unknown))
    return {"no traces in this archive", {path}, "`lockstep verify --help` lists what can be read"};
  if (looked_at.empty())
    return {"no traces in this folder: it holds no files",
            {path},
            "folders in it are searched two levels deep"};
  const bool all_empty = std::all_of(looked_at.begin(), looked_at.end(), [](const FoundFile& file) {
    std::error_code failed;
    return fs::file_size(file.path, failed) == 0 && !failed;
  });
  if (all_empty)
    return {fmt::format("no traces in this folder: {} in it, {} empty",
                        plural(looked_at.size(), "file"), looked_at.size() == 1 ? "and" : "all"),
            {path},
            "did the program that writes them run?"};
  if (!format.empty())
    return {fmt::format("no traces in this folder: {} in it, none in the format {}",
                        plural(looked_at.size(), "file"), format),
            {path},
            "without --format, each file is recognised by its content"};
  // Somebody who has just read of scenarios names their folder.
  const bool scenarios = std::any_of(looked_at.begin(), looked_at.end(), [](const FoundFile& file) {
    return fs::path(file.path).extension() == ".yaml";
  });
  return {fmt::format("no traces in this folder: {} in it, none in a known format",
                      plural(looked_at.size(), "file")),
          {path},
          scenarios ? "if these are scenarios: lockstep run, or lockstep verify with one of them"
                    : "`lockstep verify --help` lists what can be read"};
}

// The error if there is nothing to judge: the first file's, because it explains more than "no
// traces".
Error nothing_to_judge(const LoadedTraces& loaded, const std::string& path) {
  if (loaded.unreadable.empty())
    return {"no traces here, and nothing in the output tells how a rank ended or where it waits",
            {path},
            "of a job that hangs, add stacks (py-spy dump --pid PID, of each rank) or Flight "
            "Recorder's dumps (TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1); "
            "`lockstep verify --help` lists what can be read"};
  Error error = loaded.unreadable.front().error;
  if (loaded.unreadable.size() > 1)
    error.message +=
        fmt::format(" (nor can {} be read)", plural(loaded.unreadable.size() - 1, "other file"));
  return error;
}

}  // namespace

Result<LoadedTraces> load_traces(const std::vector<std::string>& paths,
                                 const LoadOptions& options) {
  if (paths.empty())
    return Error{"no traces were named", {}, "name files, or folders that hold them"};
  const Result<ReadingPlan> plan = make_reading_plan(options);
  if (!plan) return plan.error();
  LoadedTraces out;
  std::vector<Piece> pieces;
  std::vector<FoundFile> looked_at;
  // Subfolders are searched only if there is no trace outside of them, because they may be
  // anything: earlier runs, checkpoints.
  for (const int levels : {0, 2}) {
    Result<std::vector<FoundFile>> files =
        find_files(paths, {.with_logs = options.evidence, .levels = levels});
    if (!files) return files.error();
    out.tables = Tables();
    pieces = read_pieces(*files, *plan, options.threads, out.tables);
    // Drop duplicates first: the text form next to a ring file must be gone before earlier runs are
    // recognised, which counts traces.
    drop_text_copies(pieces, options.evidence);
    out.earlier_runs = drop_earlier_runs(pieces);
    drop_digests_of_others(pieces);
    drop_unrelated_files(pieces);
    out.other_jobs = leave_out_other_jobs(pieces);
    if (levels > 0) {
      if (const std::optional<Error> several = several_runs(pieces, paths)) return *several;
    }
    const bool found = std::any_of(pieces.begin(), pieces.end(), [](const Piece& piece) {
      return !piece.traces.empty() || piece.named;
    });
    looked_at = std::move(*files);
    if (found) break;
  }
  if (pieces.empty()) return no_traces(paths.front(), looked_at, options.format);
  out.expect_ranks = options.expect_ranks;
  if (options.evidence) {
    out.evidence = gather_evidence(pieces, out.tables);
  } else if (auto mixed = mixed_formats(pieces)) {
    return *mixed;
  }

  for (Piece& piece : pieces) {
    if (piece.error) out.unreadable.push_back({std::move(*piece.error), piece.rank});
    std::move(piece.unreadable.begin(), piece.unreadable.end(), std::back_inserter(out.unreadable));
    if (!piece.traces.empty()) out.format = piece.kind();
    std::move(piece.traces.begin(), piece.traces.end(), std::back_inserter(out.traces));
  }
  if (out.traces.empty() && out.evidence.notes.empty()) return nothing_to_judge(out, paths.front());
  return out;
}

namespace {

// Declares the group of all ranks in traces that do not know the size of the job. Without that, its
// members stay unknown.
void declare_world(Run& run, std::int32_t world_size) {
  const GroupId world = run.tables.groups.intern("world");
  std::vector<Rank> members;
  members.reserve(static_cast<std::size_t>(world_size));
  for (std::int32_t r = 0; r < world_size; ++r) members.emplace_back(r);
  const RankList ranks = run.tables.rank_lists.intern(members);
  for (RankTrace& trace : run.ranks) {
    if (trace.world_size != kNone) continue;
    std::erase_if(trace.groups, [&](const auto& own) { return own.group == world; });
    trace.groups.push_back({world, ranks, StringId{}});
  }
}

// Leaves out the dumps of another attempt: what they show is not part of this hang.
void leave_out_other_attempt(Run& run) {
  const std::optional<OtherAttempt> other = find_other_attempt(run);
  if (!other) return;
  std::erase_if(run.ranks, [&](const RankTrace& trace) {
    if (!std::binary_search(other->ranks.begin(), other->ranks.end(), trace.rank)) return false;
    run.unreadable.push_back(
        {Error{fmt::format("left out: {}, so that it is of another attempt of the job, or a clock "
                           "is wrong",
                           other->why),
               {trace.source},
               "give the files of one attempt"},
         trace.rank});
    return true;
  });
}

// What the formats do not record: of a copy, that of the files from which it was made.
std::vector<std::string> unknown_of(const Run& run, const Format* format) {
  std::set<const Format*> formats = {format};
  for (const RankTrace& trace : run.ranks)
    if (!trace.converted_from.empty()) formats.insert(format_named(trace.converted_from));
  std::vector<std::string> out;
  for (const Format& known : all_formats())
    if (formats.contains(&known)) out.insert(out.end(), known.unknown.begin(), known.unknown.end());
  return out;
}

// Whether the end marks in the traces are those of the job.
bool writes_ends(const Run& run, const Format* format) {
  return format != nullptr && is_own(*format) &&
         std::all_of(run.ranks.begin(), run.ranks.end(), [](const RankTrace& trace) {
           return trace.converted_from.empty() || trace.converted_from == "text";
         });
}

}  // namespace

Run complete_run(LoadedTraces loaded) {
  const Format* format = loaded.format;
  if (format != nullptr && format->name == watchdog_log_format().name)
    add_ranks_behind(loaded.traces, loaded.evidence.launched, loaded.tables);
  // Before linking, which takes the largest size for all.
  std::vector<std::string> of_other_size = leave_out_other_sizes(loaded.traces, loaded.tables);
  std::move(of_other_size.begin(), of_other_size.end(), std::back_inserter(loaded.other_jobs));
  // Linking comes first: it fills in groups and world sizes, which the run is assembled from.
  if (format != nullptr && format->link != nullptr) format->link(loaded.traces, loaded.tables);
  Run run = assemble_run(std::move(loaded.tables), std::move(loaded.traces));
  run.unreadable = std::move(loaded.unreadable);
  run.header_conflicts.insert(run.header_conflicts.begin(), loaded.other_jobs.begin(),
                              loaded.other_jobs.end());
  leave_out_other_attempt(run);
  run.unknown = unknown_of(run, format);
  if (!loaded.earlier_runs.empty()) {
    run.unknown.push_back(
        fmt::format("earlier runs of the job, in the same folder: {} not read; "
                    "name one's files alone to judge it",
                    join_and(loaded.earlier_runs, 4)));
  }
  const std::int32_t told = std::max(loaded.expect_ranks, loaded.evidence.world_size);
  join_evidence(run, std::move(loaded.evidence), writes_ends(run, format));
  keep_plausible_gpus(run);
  run.world_size = std::max(run.world_size, loaded.expect_ranks);
  if (told > 0) declare_world(run, run.world_size);
  return run;
}

Result<Run> load_run(const std::vector<std::string>& paths, const LoadOptions& options) {
  Result<LoadedTraces> loaded = load_traces(paths, options);
  if (!loaded) return loaded.error();
  return complete_run(std::move(*loaded));
}

}  // namespace lockstep::trace
