#include "runtime/record/c10d/gpu_of_rank.h"

#include <functional>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "tests/runtime/spawn.h"
#include "tests/support/temp_dir.h"

namespace lockstep::runtime {
namespace {

using Variables = std::map<std::string, std::string>;

// The GPU in the trace of a rank whose recorder sees what `body` does.
std::int32_t recorded_gpu(const Variables& variables,
                          const std::function<void(GpuOfRank& gpu)>& body) {
  const TempDir folder;
  trace::RingWriter::Options options;
  options.path = folder.file("rank_0.ring");
  options.world_size = 1;
  {
    auto ring = trace::RingWriter::create(options);
    EXPECT_TRUE(ring) << ring.error().str();
    GpuOfRank gpu(**ring, [&](const char* name) -> const char* {
      const auto found = variables.find(name);
      return found == variables.end() ? nullptr : found->second.c_str();
    });
    body(gpu);
    (*ring)->finish(trace::End::clean);
  }
  return recorded(folder.path(), 0).trace.gpu;
}

const Variables kLaunched = {{"RANK", "11"}, {"WORLD_SIZE", "16"}, {"LOCAL_RANK", "3"}};

TEST(GpuOfRank, IsTheDeviceOfItsTensors) {
  EXPECT_EQ(recorded_gpu(kLaunched, [](GpuOfRank& gpu) { gpu.uses({at::kCUDA, 5}); }), 5);
  Variables some = kLaunched;
  some["CUDA_VISIBLE_DEVICES"] = "2,6";
  EXPECT_EQ(recorded_gpu(some, [](GpuOfRank& gpu) { gpu.uses({at::kCUDA, 1}); }), 6);
}

TEST(GpuOfRank, IsTheFirstOfSeveralDevices) {
  EXPECT_EQ(recorded_gpu(kLaunched,
                         [](GpuOfRank& gpu) {
                           gpu.uses({at::kCUDA, 5});
                           gpu.uses({at::kCUDA, 6});
                         }),
            5);
}

TEST(GpuOfRank, IsByCustomTheLocalRankUnderNccl) {
  EXPECT_EQ(recorded_gpu(kLaunched, [](GpuOfRank& gpu) { gpu.uses_nccl(); }), 3);
  EXPECT_EQ(recorded_gpu({}, [](GpuOfRank& gpu) { gpu.uses_nccl(); }), trace::kNone);
}

TEST(GpuOfRank, TheDeviceCountsMoreThanTheCustom) {
  EXPECT_EQ(recorded_gpu(kLaunched,
                         [](GpuOfRank& gpu) {
                           gpu.uses_nccl();
                           gpu.uses({at::kCUDA, 5});
                           gpu.uses_nccl();
                         }),
            5);
}

TEST(GpuOfRank, ARankOnTheCpuHasNone) {
  EXPECT_EQ(recorded_gpu(kLaunched, [](GpuOfRank& gpu) { gpu.uses(at::kCPU); }), trace::kNone);
  EXPECT_EQ(recorded_gpu(kLaunched,
                         [](GpuOfRank& gpu) {
                           gpu.uses({at::kMeta, 1});
                         }),
            trace::kNone);
}

}  // namespace
}  // namespace lockstep::runtime
