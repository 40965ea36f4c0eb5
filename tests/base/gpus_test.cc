#include "base/gpus.h"

#include <map>
#include <string>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using Variables = std::map<std::string, std::string>;

Environment environment(Variables variables) {
  return [variables = std::move(variables)](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

std::optional<int> gpu(int device, const char* visible) {
  return gpu_of_device(device, environment({{"CUDA_VISIBLE_DEVICES", visible}}));
}

TEST(GpuOfDevice, IsCudasIndexWhereAllAreVisible) {
  EXPECT_EQ(gpu_of_device(5, environment({})), 5);
}

TEST(GpuOfDevice, IsTheEntryOfTheVisibleOnes) {
  EXPECT_EQ(gpu(0, "4,5"), 4);
  EXPECT_EQ(gpu(1, "4,5"), 5);
  EXPECT_EQ(gpu(2, "4,5"), std::nullopt);
}

TEST(GpuOfDevice, IsUnknownWhereTheListSaysNoIndex) {
  EXPECT_EQ(gpu(0, "GPU-8932f937"), std::nullopt);
  EXPECT_EQ(gpu(0, ""), std::nullopt);
  EXPECT_EQ(gpu(0, "-1"), std::nullopt);
  EXPECT_EQ(gpu(-1, "4,5"), std::nullopt);
}

TEST(GpuOfDevice, IsUnknownWhereRocmChoosesTheDevices) {
  EXPECT_EQ(gpu_of_device(0, environment({{"HIP_VISIBLE_DEVICES", "3"}})), std::nullopt);
  EXPECT_EQ(gpu_of_device(0, environment({{"ROCR_VISIBLE_DEVICES", "3"}})), std::nullopt);
}

TEST(LocalRank, IsTheLaunchers) {
  EXPECT_EQ(launched_local_rank(environment({})), std::nullopt);
  EXPECT_EQ(launched_local_rank(environment({{"LOCAL_RANK", "3"}})), std::nullopt)
      << "without RANK and WORLD_SIZE it may be anybody's";
  EXPECT_EQ(
      launched_local_rank(environment({{"RANK", "11"}, {"WORLD_SIZE", "16"}, {"LOCAL_RANK", "3"}})),
      3);
  EXPECT_EQ(launched_local_rank(environment(
                {{"SLURM_PROCID", "11"}, {"SLURM_NTASKS", "16"}, {"SLURM_LOCALID", "-3"}})),
            std::nullopt);
}

}  // namespace
}  // namespace lockstep
