// The threads of Flight Recorder dumps: who issued a call, and what that says of a hang.
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "tests/support/trace_lines.h"
#include "trace/load.h"
#include "verify/verify.h"

namespace lockstep::trace {
namespace {

using testing::ElementsAre;

struct ThreadsCall {
  std::string thread;  // "main", "save" or "autograd"; empty: the dump names none
  std::string op;
  bool done = true;
};

// A dump of two groups of all `ranks`: "save" is that of the thread "save", "world" of the others.
std::string threads_dump(const std::vector<ThreadsCall>& calls, int ranks) {
  std::string members = "0";
  for (int r = 1; r < ranks; ++r) members += fmt::format(", {}", r);
  LineKeys entries = LineKeys::array(), groups;
  for (const std::string name : {"0", "1"}) {
    groups[name] = {
        {"name", name}, {"desc", name == "1" ? "save" : "world"}, {"ranks", "[" + members + "]"}};
  }
  int issued[2] = {0, 0};
  for (const ThreadsCall& call : calls) {
    const bool saves = call.op == "all_reduce_barrier";
    const auto id = static_cast<int>(entries.size());
    LineKeys entry = {{"record_id", id},
                      {"pg_id", saves ? 1 : 0},
                      {"process_group", {saves ? "1" : "0", saves ? "save" : "world"}},
                      {"collective_seq_id", ++issued[saves ? 1 : 0]},
                      {"p2p_seq_id", 0},
                      {"profiling_name", "nccl:" + call.op},
                      {"time_created_ns", 1'000'000 + 1000 * id},
                      {"input_sizes", {{8}}},
                      {"input_dtypes", {"Float"}},
                      {"output_sizes", {{8}}},
                      {"output_dtypes", {"Float"}},
                      {"state", call.done ? "completed" : "scheduled"},
                      {"time_discovered_started_ns", 0},
                      {"time_discovered_completed_ns", call.done ? 1'000'500 + 1000 * id : 0},
                      {"retired", call.done},
                      {"timeout_ms", 600000},
                      {"is_p2p", false}};
    if (!call.thread.empty()) {
      // A thread has its creator's name, unless it gives itself one.
      entry["thread_name"] = call.thread == "autograd" ? "pt_autograd_0" : "python3";
      entry["thread_id"] = call.thread == "save" ? "139696896890560" : "139696910912384";
    }
    entries.push_back(entry);
  }
  return json_line({{"version", "2.10"},
                    {"pg_config", groups},
                    {"pg_status", LineKeys::object()},
                    {"entries", entries}});
}

class DumpThreads : public testing::Test {
 protected:
  // The dumps of the first ranks of `world`; 0: of all.
  trace::Run load(const std::vector<std::vector<ThreadsCall>>& ranks, int world = 0) {
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      folder_.write(fmt::format("nccl_trace_rank_{}", r),
                    threads_dump(ranks[r], world > 0 ? world : static_cast<int>(ranks.size())));
    }
    Result<trace::Run> run = load_run({folder_.path()});
    EXPECT_TRUE(run) << (run ? "" : run.error().message);
    return std::move(*run);
  }

  TempDir folder_;
};

std::vector<int> threads_of(const RankTrace& trace) {
  std::vector<int> out;
  for (const Call& call : trace.calls) out.push_back(call.thread);
  return out;
}

// Autograd's thread works for the main one, which issues most calls, whichever was seen first.
TEST_F(DumpThreads, TheMainThreadIsTheOneThatIssuesMostCalls) {
  const trace::Run run = load({{{"save", "all_reduce_barrier"},
                                {"main", "all_reduce"},
                                {"autograd", "all_reduce"},
                                {"main", "all_reduce"}},
                               {{"", "all_reduce_barrier"}, {"", "all_reduce"}}});
  EXPECT_THAT(threads_of(run.ranks[0]), ElementsAre(1, 0, 0, 0));
  EXPECT_TRUE(run.ranks[0].occurs.threads);
  EXPECT_THAT(threads_of(run.ranks[1]), ElementsAre(0, 0));
  EXPECT_FALSE(run.ranks[1].occurs.threads);
}

// Rank 2 left no dump. The thread that saves rank 0's checkpoint has come to its barrier, and rank
// 1's has not: that holds nobody up, where the main threads went on since.
TEST_F(DumpThreads, AThreadThatSavesHoldsUpNoOtherThread) {
  const auto judge = [&](const std::string& saver) {
    const ThreadsCall reduced = {"main", "all_reduce"}, waits = {"main", "all_reduce", false};
    return verify::verify(load({{reduced, {saver, "all_reduce_barrier", false}, reduced, waits},
                                {reduced, reduced, waits}},
                               3));
  };
  EXPECT_EQ(judge("save").verdict, verify::Verdict::inconclusive);
  EXPECT_EQ(judge("main").verdict, verify::Verdict::findings);
}

}  // namespace
}  // namespace lockstep::trace
