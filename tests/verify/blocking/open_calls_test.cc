// Dumps of active calls alone beside whole ones: what they leave out is not what a rank left out.
#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "tests/support/trace_lines.h"
#include "tests/verify/program.h"
#include "trace/load.h"
#include "verify/verify.h"

namespace lockstep::verify {
namespace {

using testing::HasSubstr;
using testing::Not;

// A call of a dump. In a batch, here of one message, a message's own entry never tells that it
// completed; the entry that closes the batch does.
struct DumpedCall {
  std::string name;  // all_reduce, "send 0->1"
  std::string group = "0";
  int elements = 1;
  bool open = false;
  bool in_batch = false;

  bool is_message() const { return name.find(' ') != std::string::npos; }
};
using DumpedCalls = std::vector<DumpedCall>;

class DumpText {
 public:
  DumpText(int ranks, bool active_alone) : active_alone_(active_alone) {
    std::string members = "0";
    for (int r = 1; r < ranks; ++r) members += fmt::format(", {}", r);
    for (const std::string name : {"0", "1"})
      groups_[name] = {{"name", name}, {"desc", ""}, {"ranks", "[" + members + "]"}};
  }

  std::string of(const DumpedCalls& calls) {
    for (const DumpedCall& call : calls) {
      ++(call.is_message() ? messages_ : collectives_[call.group == "1" ? 1 : 0]);
      if (call.in_batch) {
        add(call, call.name, "scheduled");
        add(call, "coalesced", call.open ? "scheduled" : "completed");
      } else {
        add(call, call.name, call.open ? "scheduled" : "completed");
      }
    }
    return json_line({{"version", "2.10"},
                      {"pg_config", groups_},
                      {"pg_status", LineKeys::object()},
                      {"entries", entries_}});
  }

 private:
  void add(const DumpedCall& call, const std::string& name, const std::string& state) {
    const int number = record_++;
    if (active_alone_ && state == "completed") return;
    const LineKeys sizes = name == "coalesced" ? LineKeys::array() : LineKeys{{call.elements}};
    const LineKeys types = name == "coalesced" ? LineKeys::array() : LineKeys{"Float"};
    entries_.push_back(
        {{"record_id", number},
         {"pg_id", call.group == "1" ? 1 : 0},
         {"process_group", {call.group, ""}},
         {"collective_seq_id", collectives_[call.group == "1" ? 1 : 0]},
         {"p2p_seq_id", call.is_message() ? messages_ : 0},
         {"op_id", number + 1},
         {"profiling_name", "nccl:" + name},
         {"time_created_ns", 1'000'000'000 + number},
         {"input_sizes", sizes},
         {"input_dtypes", types},
         {"output_sizes", sizes},
         {"output_dtypes", types},
         {"state", state},
         {"time_discovered_started_ns", 0},
         {"time_discovered_completed_ns", state == "completed" ? 2'000'000'000 + number : 0},
         {"retired", state == "completed"},
         {"timeout_ms", 600000},
         {"is_p2p", call.is_message()}});
  }

  bool active_alone_;
  LineKeys groups_, entries_ = LineKeys::array();
  int record_ = 0, messages_ = 0;
  int collectives_[2] = {0, 0};
};

// The dumps of the ranks in `active_alone` hold active calls alone.
std::string said_of(const std::vector<DumpedCalls>& ranks, const std::vector<int>& active_alone) {
  const TempDir folder;
  for (int r = 0; r < std::ssize(ranks); ++r) {
    const bool alone = std::count(active_alone.begin(), active_alone.end(), r) > 0;
    DumpText dump(static_cast<int>(ranks.size()), alone);
    folder.write(fmt::format("trace_rank_{}", r), dump.of(ranks[static_cast<std::size_t>(r)]));
  }
  const auto run = trace::load_run({folder.path()});
  EXPECT_TRUE(run) << (run ? "" : run.error().str());
  return run ? summary(verify(*run)) : "";
}

void append(DumpedCalls& calls, const DumpedCalls& more, bool open = false) {
  for (DumpedCall call : more) {
    call.open = open;
    calls.push_back(call);
  }
}

// Steps of three micro-batches, of which rank 2 leaves one out at the end. The open calls of the
// others end as its step does: with a whole micro-batch and the reduction.
TEST(OpenCalls, ShowNotHowManyRoundsARankMadeBefore) {
  DumpedCalls microbatch;
  for (int n = 1; n <= 9; ++n) microbatch.push_back({"all_reduce", "1", n});
  const DumpedCall reduce = {"all_reduce"};
  DumpedCalls before;
  for (int step = 0; step < 3; ++step) {
    for (int n = 0; n < 3; ++n) append(before, microbatch);
    before.push_back(reduce);
  }
  append(before, microbatch);
  append(before, microbatch);
  DumpedCalls usual = before, short_of_one = before;
  append(usual, microbatch, /*open=*/true);
  append(usual, {reduce}, /*open=*/true);
  append(short_of_one, {reduce}, /*open=*/true);
  const std::vector<DumpedCalls> ranks = {usual, usual, short_of_one, usual};
  EXPECT_THAT(said_of(ranks, {}), HasSubstr("culprits=2"));
  EXPECT_THAT(said_of(ranks, {1, 3}), HasSubstr("culprits=2"));
}

// Rank 0 calls the second barrier too many. Its dump lacks the first one, and so the rounds before,
// to which the later ones would have to be compared.
TEST(OpenCalls, ShowNoRoundsOfMessages) {
  const DumpedCall barrier = {"all_reduce_barrier"};
  const auto messages = [](int rank) {
    DumpedCalls out;
    const std::string sent = rank == 0 ? "send 0->1" : "send 1->0";
    const std::string received = rank == 0 ? "recv 0<-1" : "recv 1<-0";
    for (const std::string& name : {rank == 0 ? sent : received, rank == 0 ? received : sent})
      for (int n = 0; n < 3; ++n) out.push_back({name, "0", 8, false, /*in_batch=*/true});
    return out;
  };
  std::vector<DumpedCalls> ranks(2);
  for (int r = 0; r < 2; ++r) {
    DumpedCalls& calls = ranks[static_cast<std::size_t>(r)];
    append(calls, messages(r));
    append(calls, {barrier});
    if (r == 0) append(calls, {barrier}, /*open=*/true);
    append(calls, messages(r), /*open=*/true);
    append(calls, {barrier, barrier}, /*open=*/true);
    append(calls, messages(r), /*open=*/true);
    append(calls, {barrier}, /*open=*/true);
  }
  EXPECT_THAT(said_of(ranks, {0}), Not(HasSubstr("culprits=1")));
}

}  // namespace
}  // namespace lockstep::verify
