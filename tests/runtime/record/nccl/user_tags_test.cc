// What a program says of its calls by NCCL's user tags, from its file to the verdict.
#include <dlfcn.h>
#include <stdlib.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/record/nccl/profiler_interface.h"
#include "tests/runtime/record/nccl/ranks.h"
#include "tests/support/temp_dir.h"
#include "trace/load.h"

namespace lockstep::runtime {
namespace {

using nccl_profiler::Event7;
using nccl_profiler::Plugin7;
using testing::ElementsAre;

constexpr std::uint64_t kTaggedWorld = 0xb0;

// Plays NCCL 2.31: a communicator of `ranks`, and an all-reduce for each tag; of two ranks a
// message.
int call_with_tags(int rank, int ranks, const std::vector<std::uint64_t>& tags) {
  void* const library =
      ::dlopen(LOCKSTEP_BINARY_DIR "/liblockstep_nccl_profiler.so", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return 3;
  const auto* const plugin = static_cast<const Plugin7*>(::dlsym(library, "ncclProfiler_v7"));
  if (plugin == nullptr) return 4;
  void* context = nullptr;
  int mask = 0;
  plugin->init(&context, kTaggedWorld, &mask, nullptr, 1, ranks, rank, nullptr);
  for (const std::uint64_t tag : tags) {
    nccl_profiler::Event7 call{nccl_profiler::kCollApi, nullptr, rank, {}};
    call.coll_api = {{"AllReduce", 8, "ncclFloat32", 0, nullptr, false}, tag};
    void* handle = nullptr;
    plugin->start_event(context, &handle, &call);
    plugin->stop_event(handle);
    nccl_profiler::Event7 task{nccl_profiler::kColl, handle, rank, {}};
    task.coll = {{0, "AllReduce", nullptr, nullptr, 8, 0, "ncclFloat32", 1, 4, "RING", "SIMPLE"},
                 nullptr,
                 nullptr,
                 false,
                 tag};
    void* launched = nullptr;
    plugin->start_event(context, &launched, &task);
    nccl_profiler::Event7 kernel{nccl_profiler::kKernelCh, launched, rank, {}};
    kernel.kernel = {0, 1};
    void* channel = nullptr;
    plugin->start_event(context, &channel, &kernel);
    plugin->stop_event(channel);
  }
  if (ranks != 2) return plugin->finalize(context);
  nccl_profiler::Event7 message{nccl_profiler::kP2p, nullptr, rank, {}};
  message.p2p = {{rank == 0 ? "Send" : "Recv", nullptr, "ncclFloat32", 4, 1 - rank, 1}, nullptr, 5};
  void* handle = nullptr;
  plugin->start_event(context, &handle, &message);
  return plugin->finalize(context);
}

class UserTagsTest : public testing::Test {
 protected:
  void job(const std::vector<std::vector<std::uint64_t>>& ranks, const std::string& file) {
    run_ranks(static_cast<int>(ranks.size()), folder_.file("traces"), [&](int rank) {
      ::setenv("LOCKSTEP_RECORD_TAGS", file.c_str(), 1);
      return call_with_tags(rank, static_cast<int>(ranks.size()),
                            ranks[static_cast<std::size_t>(rank)]);
    });
  }
  // What a rank's calls carry: the names, or the tag.
  std::vector<std::string> labels(int rank) {
    const trace::Run run = std::move(trace::load_run({folder_.file("traces")}).value());
    std::vector<std::string> out;
    for (const trace::Call& call : run.find(trace::Rank(rank))->calls) {
      std::string label = run.tables.str(call.tag);
      for (const std::string& name : run.tables.names(call.what)) label += "<" + name + ">";
      out.push_back(label + (call.has(trace::kCompleted) ? " done" : ""));
    }
    return out;
  }
  TempDir folder_;
};

TEST_F(UserTagsTest, AreTheNamesThatTheProgramsFileGivesThem) {
  const std::string file =
      folder_.write("tags", "7 image.weight image.bias\n\nnonsense\n0x8 text.weight\n 9\n8x no\n");
  job({{7, 8, 9, 0, 0xffffffffffffffff}, {7, 8, 9, 0, 0xffffffffffffffff}}, file);
  EXPECT_THAT(labels(1), ElementsAre("<image.weight><image.bias> done", "<text.weight> done",
                                     " done", " done", "18446744073709551615 done", "5"));
  EXPECT_THAT(findings(folder_.file("traces")), testing::IsEmpty());
}

// Calls of one size, which pair although they carry other tensors: only the names show it.
TEST_F(UserTagsTest, ShowWhatEqualSizesHide) {
  const std::string file = folder_.write("tags", "7 image.weight\n8 text.weight\n");
  job({{7, 8}, {8, 7}, {7, 8}}, file);
  EXPECT_THAT(findings(folder_.file("traces")), ElementsAre("order-swap: 1"));
}

TEST_F(UserTagsTest, GoWithoutNamesWhereTheFileCannotBeRead) {
  job({{7}, {7}}, folder_.file("none"));
  EXPECT_THAT(labels(0), ElementsAre("7 done", "5"));
}

}  // namespace
}  // namespace lockstep::runtime
