#include <gtest/gtest.h>

#include "runtime/launch/this_machine.h"
#include "tests/support/temp_dir.h"

namespace lockstep::runtime {
namespace {

class Gpus : public ::testing::Test {
 protected:
  std::optional<int> count(std::optional<std::string> visible = {}) const {
    return count_gpus({folder_.path(), std::move(visible)});
  }
  TempDir folder_;
};

TEST_F(Gpus, are_the_devices_with_a_number) {
  EXPECT_EQ(count(), 0);
  for (const char* name : {"nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "null"})
    folder_.write(name, "");
  EXPECT_EQ(count(), 3);
}

TEST_F(Gpus, that_are_hidden_do_not_count) {
  for (const char* name : {"nvidia0", "nvidia1"}) folder_.write(name, "");
  EXPECT_EQ(count("0,1"), 2);
  EXPECT_EQ(count("1"), 1);
  EXPECT_EQ(count("GPU-8f3a,GPU-11d0,GPU-3c"), 2);
  EXPECT_EQ(count(""), 0);
  EXPECT_EQ(count("-1"), 0);
  EXPECT_EQ(count("0,-1,1"), 1);
}

TEST_F(Gpus, of_other_kinds_of_machines_are_not_known) {
  folder_.write("nvhost-gpu", "");
  EXPECT_EQ(count(), std::nullopt);
}

}  // namespace
}  // namespace lockstep::runtime
