#include "runtime/launch/this_machine.h"
#include "tests/runtime/launch/launch_testing.h"

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

TEST(WorkerProgram, the_named_one_then_the_one_beside_then_path) {
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

TEST(WorkerProgram, its_absence_says_what_to_do) {
  const Result<std::string> none = find_worker({"", "/nowhere/lockstep", "/nowhere"});
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().fix.find("LOCKSTEP_WORKER"), std::string::npos);
}

TEST(WorkerProgram, a_named_one_that_is_no_program_is_an_error) {
  const TempDir folder;
  const std::string beside = make_worker(folder, "beside");
  EXPECT_FALSE(find_worker({folder.path(), folder.file("beside") + "/lockstep", ""}));
}

}  // namespace
}  // namespace lockstep::runtime
