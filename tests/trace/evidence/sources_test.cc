// Any source of a job that was recorded in several ways may be missing. The answer may then get
// weaker (inconclusive, or nobody is named). It never becomes another one: nobody else is accused,
// no other kind of fault is claimed, and a job that hangs is never called clean.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/temp_dir.h"
#include "tests/support/trace_lines.h"
#include "trace/load.h"
#include "verify/rules/rules.h"
#include "verify/verify.h"

namespace lockstep::trace {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kWorld = 4;

// One all-reduce of a rank, and how far its device got with it.
struct Reduce {
  enum class Reached { issued, started, completed } reached = Reached::completed;
  int elements = 8;
};

// What one rank did, and what is left of it besides its calls.
struct RankStory {
  std::vector<Reduce> calls;
  std::string end;    // of its trace; "cut": without an end mark
  std::string log;    // its standard error
  std::string frame;  // where its main thread was: "fetch (data.py:7)"
};

struct Story {
  std::string name;
  std::vector<RankStory> ranks;
  std::string kernel_log;
  std::set<std::string> rules;  // that errors and warnings may have
  std::set<int> culprits;       // whom they may name
  bool healthy = false;
};

enum class Source { trace, dump, log, stack, ras, kernel_log };
constexpr Source kSources[] = {Source::trace, Source::dump, Source::log,
                               Source::stack, Source::ras,  Source::kernel_log};
constexpr int kNoRank = -1;

struct SourceFile {
  Source source{};
  int rank = kNoRank;  // kNoRank: of the whole job
  std::string name, content;
};

int pid_of(int rank) { return 100 + rank; }

std::string trace_of(const RankStory& story, int rank) {
  std::string out = header_line(rank, kWorld, {{"backend", "nccl"}, {"pid", pid_of(rank)}});
  int t = 0;
  int id = 0;
  for (const Reduce& call : story.calls) {
    out += issue_line(id, "world", "all_reduce",
                      {{"in", {{call.elements}}}, {"t", t++}, {"async", true}, {"step", id}});
    if (call.reached != Reduce::Reached::issued) out += event_line("start", id, {{"t", t++}});
    if (call.reached == Reduce::Reached::completed) {
      out += event_line("complete", id, {{"t", t++}});
    }
    ++id;
  }
  if (story.end != "cut") out += end_line(story.end);
  return out;
}

std::string dump_of(const RankStory& story) {
  static constexpr const char* kStates[] = {"scheduled", "started", "completed"};
  Json entries = Json::array();
  std::size_t completed = 0;
  for (std::size_t c = 0; c < story.calls.size(); ++c) {
    const Reduce& call = story.calls[c];
    const bool over = call.reached == Reduce::Reached::completed;
    const bool begun = call.reached != Reduce::Reached::issued;
    if (over) completed = c + 1;
    const Json time = 1000 * (c + 1);
    const Json sizes = Json::array({Json::array({call.elements})});
    entries.push_back({{"collective_seq_id", c + 1},
                       {"input_dtypes", {"Float"}},
                       {"input_sizes", sizes},
                       {"is_p2p", false},
                       {"output_dtypes", {"Float"}},
                       {"output_sizes", sizes},
                       {"p2p_seq_id", 0},
                       {"pg_id", 0},
                       {"process_group", {"0", "default_pg"}},
                       {"profiling_name", "nccl:all_reduce"},
                       {"record_id", c},
                       {"retired", over},
                       {"state", kStates[static_cast<int>(call.reached)]},
                       {"time_created_ns", time},
                       {"time_discovered_started_ns", begun ? time : Json()},
                       {"time_discovered_completed_ns", over ? time : Json()}});
  }
  const Json group = {{"name", "0"}, {"desc", "default_pg"}, {"ranks", "[0, 1, 2, 3]"}};
  const Json status = {{"last_completed_collective", completed},
                       {"last_enqueued_collective", story.calls.size()}};
  return Json{{"entries", entries},
              {"pg_config", {{"0", group}}},
              {"pg_status", {{"0", status}}},
              {"version", "2.10"}}
      .dump();
}

std::string ras_of(const Story& story) {
  Json ranks = Json::array();
  for (int r = 0; r < kWorld; ++r) {
    const std::size_t calls = story.ranks[static_cast<std::size_t>(r)].calls.size();
    ranks.push_back({{"rank", r},
                     {"host", "10.0.0.1"},
                     {"pid", pid_of(r)},
                     {"cuda_dev", r},
                     {"nvml_dev", r},
                     {"status",
                      {{"init_state", 0},
                       {"async_error", 0},
                       {"finalize_called", false},
                       {"destroy_flag", false},
                       {"abort_flag", false}}},
                     {"collective_counts", {{"AllReduce", calls}}}});
  }
  const Json communicator = {{"hash", "0x78db"},
                             {"secondary_hash", "0x1:0x2"},
                             {"size", 4},
                             {"ranks_count", 4},
                             {"missing_ranks_count", 0},
                             {"ranks", ranks},
                             {"missing_ranks", Json::array()}};
  return Json{{"nccl_version", "2.28.3"},
              {"cuda_runtime_version", 12080},
              {"cuda_driver_version", 12080},
              {"timestamp", "2026-01-01 00:00:00"},
              {"communicators_count", 1},
              {"communicators", Json::array({communicator})},
              {"ras", {{"collection_time_sec", 0.001}, {"timeouts_count", 0}}}}
      .dump();
}

std::string stack_of(const RankStory& story, int rank) {
  return fmt::format(
      "Process {0}: python train.py\nPython v3.10.12 (/usr/bin/python3.10)\n\n"
      "Thread {0} (idle): \"MainThread\"\n    {1}\n    <module> (train.py:120)\n",
      pid_of(rank), story.frame);
}

std::vector<SourceFile> files_of(const Story& story) {
  std::vector<SourceFile> out;
  for (int r = 0; r < kWorld; ++r) {
    const RankStory& of = story.ranks[static_cast<std::size_t>(r)];
    out.push_back({Source::trace, r, fmt::format("rank_{}.trace.jsonl", r), trace_of(of, r)});
    out.push_back({Source::dump, r, fmt::format("nccl_trace_rank_{}.json", r), dump_of(of)});
    out.push_back({Source::log, r, fmt::format("rank_{}.log", r), of.log});
    out.push_back({Source::stack, r, fmt::format("stack_rank_{}.txt", r), stack_of(of, r)});
  }
  out.push_back({Source::ras, kNoRank, "ras.json", ras_of(story)});
  if (!story.kernel_log.empty())
    out.push_back({Source::kernel_log, kNoRank, "dmesg.txt", story.kernel_log});
  return out;
}

// What PyTorch's watchdog writes when the call after `completed` of `enqueued` does not complete.
std::string watchdog_of(int rank, int completed, int enqueued, int elements) {
  const std::string prefix = fmt::format("[rank{}]:[E709 ProcessGroupNCCL.cpp:632] ", rank);
  return fmt::format(
             "{}[Rank {}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={}, "
             "OpType=ALLREDUCE, NumelIn={}, NumelOut={}, Timeout(ms)=600000) ran for 600001 "
             "milliseconds before timing out.\n",
             prefix, rank, completed + 1, elements, elements) +
         fmt::format(
             "{}[PG ID 0 PG GUID 0(default_pg) Rank {}] failure detected by watchdog at work "
             "sequence id: {} PG status: last enqueued work: {}, last completed work: {}\n",
             prefix, rank, completed + 1, enqueued, completed);
}

const std::string kSourceTraceback =
    "Traceback (most recent call last):\n  File \"train.py\", line 12, in <module>\n";
const std::string kAborted =
    kSourceTraceback +
    "torch.distributed.DistBackendError: NCCL communicator was aborted on rank 0.\n";

// A rank that completed `completed` calls and waits in the next one until the watchdog ends it.
RankStory waits_in(int rank, int completed, int elements = 8) {
  RankStory out;
  out.calls.resize(static_cast<std::size_t>(completed));
  out.calls.push_back({Reduce::Reached::started, elements});
  out.end = "hung";
  out.log = watchdog_of(rank, completed, completed + 1, elements) + kAborted;
  out.frame = "all_reduce (torch/distributed/distributed_c10d.py:2501)";
  return out;
}

std::vector<RankStory> all_wait() {
  std::vector<RankStory> out;
  out.reserve(kWorld);
  for (int r = 0; r < kWorld; ++r) out.push_back(waits_in(r, 2));
  return out;
}

Story raised() {
  Story story{
      "raised", all_wait(), "", {"rank-exception", "host-stall", "missing-collective"}, {2}};
  story.kernel_log = "[1.0] Out of memory: Killed process 102 (python) total-vm:1kB\n";
  story.ranks[2] = {{{}, {}},
                    "cut",
                    kSourceTraceback + "torch.OutOfMemoryError: CUDA out of memory. Tried 2 GiB\n",
                    "forward (model.py:40)"};
  return story;
}

Story hangs_on_the_host() {
  Story story{"host stall", all_wait(), "", {"host-stall", "missing-collective"}, {2}};
  story.ranks[2] = {{{}, {}}, "hung", kAborted, "fetch (data.py:7)"};
  return story;
}

Story killed_from_outside() {
  Story story{"killed", all_wait(), "", {"host-stall", "rank-killed", "rank-exception"}, {2}};
  story.ranks[2] = {{{}, {}}, "killed", "step 1\n", "fetch (data.py:7)"};
  story.kernel_log = "[1.0] Out of memory: Killed process 102 (python) total-vm:1kB\n";
  return story;
}

Story another_size() {
  Story story{"another size", all_wait(), "", {"size-mismatch"}, {2}};
  story.ranks[2] = waits_in(2, 2, 16);
  return story;
}

// Calls of 8 and 4 elements in turn; rank 2 leaves out the second one of 4.
Story left_out() {
  Story story{"left out", {}, "", {"missing-collective", "size-mismatch", "host-stall"}, {2}};
  for (int r = 0; r < kWorld; ++r) {
    RankStory rank = waits_in(r, 3, r == 2 ? 8 : 4);
    rank.calls[1].elements = 4;
    story.ranks.push_back(std::move(rank));
  }
  return story;
}

// The others completed the third call and wait in the fourth; the device of rank 2 is in the third.
Story stalls_on_the_device() {
  Story story{"device stall", {}, "", {"device-stall", "host-stall", "missing-collective"}, {2}};
  for (int r = 0; r < kWorld; ++r) story.ranks.push_back(waits_in(r, 3));
  story.ranks[2].calls[2].reached = Reduce::Reached::started;
  story.ranks[2].calls[3].reached = Reduce::Reached::issued;
  story.ranks[2].log = watchdog_of(2, 2, 4, 8) + kAborted;
  return story;
}

Story finishes() {
  Story story{"healthy", {}, "", {}, {}, true};
  for (int r = 0; r < kWorld; ++r) {
    story.ranks.push_back({{{}, {}, {}},
                           "clean",
                           "step 1\nstep 2\ndone\n",
                           "all_reduce (torch/distributed/distributed_c10d.py:2501)"});
  }
  return story;
}

class SourcesTest : public testing::TestWithParam<std::function<Story()>> {
 protected:
  // Judges the folder with the files for which `stays` holds, and checks the answer.
  void check(const Story& story, const std::vector<SourceFile>& files,
             const std::function<bool(const SourceFile&)>& stays) {
    std::string names;
    std::size_t kept = 0;
    for (const SourceFile& file : files) {
      std::filesystem::remove(dir_.file(file.name));
      if (!stays(file)) continue;
      dir_.write(file.name, file.content);
      names += " " + file.name;
      ++kept;
    }
    if (kept == 0 || !seen_.insert(names).second) return;
    LoadOptions options;
    options.evidence = true;
    options.expect_ranks = kWorld;
    const Result<trace::Run> run = load_run({dir_.path()}, options);
    // What no reader takes is reported as such.
    if (!run) return;
    const verify::Report report = verify::verify(*run);
    std::string got = story.name + ", from" + names + ":";
    for (const verify::Finding& f : report.findings)
      got += "\n  " + std::string(verify::rule(f.rule).name) + ": " + f.message;
    if (story.healthy) {
      EXPECT_NE(report.verdict, verify::Verdict::findings) << got;
      return;
    }
    EXPECT_NE(report.verdict, verify::Verdict::clean) << got;
    for (const verify::Finding& f : report.findings) {
      if (f.severity == verify::Severity::note) continue;
      EXPECT_TRUE(story.rules.contains(std::string(verify::rule(f.rule).name))) << got;
      for (const Rank rank : f.culprits)
        EXPECT_TRUE(story.culprits.contains(rank.value)) << "rank " << rank.value << "; " << got;
    }
    findings_ += report.verdict == verify::Verdict::findings ? 1U : 0U;
  }

  TempDir dir_;
  std::set<std::string> seen_;  // combinations that were judged
  std::size_t findings_ = 0;
};

TEST_P(SourcesTest, TakingSomeAwayNeverMakesTheAnswerWrong) {
  const Story story = GetParam()();
  const std::vector<SourceFile> files = files_of(story);
  check(story, files, [](const SourceFile&) { return true; });
  EXPECT_TRUE(story.healthy || findings_ == 1) << "with everything there, the fault is found";
  // Any one file or two, and any one or two alone.
  for (const SourceFile& a : files) {
    for (const SourceFile& b : files) {
      const auto chosen = [&](const SourceFile& f) { return f.name == a.name || f.name == b.name; };
      check(story, files, [&](const SourceFile& f) { return !chosen(f); });
      check(story, files, chosen);
    }
  }
  // Any kinds of sources, of all ranks, of all but one, and of one alone.
  for (unsigned kinds = 1; kinds < 1U << std::size(kSources); ++kinds) {
    const auto of_kinds = [&](const SourceFile& f) {
      return (kinds >> static_cast<unsigned>(f.source) & 1U) != 0;
    };
    check(story, files, of_kinds);
    for (int r = 0; r < kWorld; ++r) {
      check(story, files, [&](const SourceFile& f) { return of_kinds(f) && f.rank != r; });
      check(story, files,
            [&](const SourceFile& f) { return of_kinds(f) && (f.rank == r || f.rank == kNoRank); });
    }
  }
  // Each rank by its own kinds: traces of some, dumps of others.
  for (unsigned of_trace = 0; of_trace < 1U << unsigned{kWorld}; ++of_trace) {
    for (unsigned of_dump = 0; of_dump < 1U << unsigned{kWorld}; ++of_dump) {
      check(story, files, [&](const SourceFile& f) {
        if (f.source == Source::trace) return (of_trace >> static_cast<unsigned>(f.rank) & 1U) != 0;
        if (f.source == Source::dump) return (of_dump >> static_cast<unsigned>(f.rank) & 1U) != 0;
        return true;
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Stories, SourcesTest,
                         testing::Values(raised, hangs_on_the_host, killed_from_outside,
                                         another_size, left_out, stalls_on_the_device, finishes),
                         [](const auto& story) {
                           std::string name = story.param().name;
                           std::replace(name.begin(), name.end(), ' ', '_');
                           return name;
                         });

}  // namespace
}  // namespace lockstep::trace
