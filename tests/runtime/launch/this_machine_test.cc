#include "runtime/launch/this_machine.h"

#include <gtest/gtest.h>

#include "tests/runtime/launch/launch_testing.h"
#include "tests/support/temp_dir.h"

namespace lockstep::runtime {
namespace {

// Makes <folder>/<name>/lockstep-worker, a program, and returns its path.
std::string make_worker(const TempDir& folder, const std::string& name) {
  std::filesystem::create_directory(folder.file(name));
  const std::string path = folder.file(name) + "/lockstep-worker";
  std::ofstream(path) << "#!/bin/sh\n";
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

TEST(WorkerProgram, TheNamedOneThenTheOneBesideThenPath) {
  const TempDir folder;
  const std::string named = make_worker(folder, "named");
  const std::string beside = make_worker(folder, "beside");
  const std::string in_path = make_worker(folder, "in_path");
  const std::string program = folder.file("beside") + "/lockstep";
  const std::string path = "/nowhere::" + folder.file("in_path");
  EXPECT_EQ(*find_worker({named, program, path}), named);
  EXPECT_EQ(*find_worker({"", program, path}), beside);
  EXPECT_EQ(*find_worker({"", "/nowhere/lockstep", path}), in_path);
}

TEST(WorkerProgram, ItsAbsenceSaysWhatToDo) {
  const Result<std::string> none = find_worker({"", "/nowhere/lockstep", "/nowhere"});
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().fix.find("LOCKSTEP_WORKER"), std::string::npos);
}

TEST(WorkerProgram, ANamedOneThatIsNoProgramIsAnError) {
  const TempDir folder;
  const std::string beside = make_worker(folder, "beside");
  EXPECT_FALSE(find_worker({folder.path(), folder.file("beside") + "/lockstep", ""}));
}

class Gpus : public ::testing::Test {
 protected:
  std::optional<int> count(std::optional<std::string> visible = {}) const {
    return count_gpus({folder_.path(), std::move(visible)});
  }
  TempDir folder_;
};

TEST_F(Gpus, AreTheDevicesWithANumber) {
  EXPECT_EQ(count(), 0);
  for (const char* name : {"nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "null"})
    folder_.write(name, "");
  EXPECT_EQ(count(), 3);
}

TEST_F(Gpus, ThatAreHiddenDoNotCount) {
  for (const char* name : {"nvidia0", "nvidia1"}) folder_.write(name, "");
  EXPECT_EQ(count("0,1"), 2);
  EXPECT_EQ(count("1"), 1);
  EXPECT_EQ(count("GPU-8f3a,GPU-11d0,GPU-3c"), 2);
  EXPECT_EQ(count(""), 0);
  EXPECT_EQ(count("-1"), 0);
  EXPECT_EQ(count("0,-1,1"), 1);
}

TEST_F(Gpus, OfOtherKindsOfMachinesAreNotKnown) {
  folder_.write("nvhost-gpu", "");
  EXPECT_EQ(count(), std::nullopt);
}

}  // namespace
}  // namespace lockstep::runtime
