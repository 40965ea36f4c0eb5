#include <gtest/gtest.h>

#include "runtime/launch/run_folder.h"
#include "tests/support/temp_dir.h"

namespace lockstep::runtime {
namespace {

std::string location(const std::string& text) {
  const TempDir folder;
  folder.write("rank_0.stack", text);
  return hanging_location(folder.file("rank_0.stack"));
}

TEST(HangingLocation, is_what_waits_and_what_of_the_program_called_it) {
  EXPECT_EQ(location(R"(rank 0 gave up: nothing moved for 20 s

Thread 1 (LWP 7) "lockstep-worker":
#0  poll () from /lib/libc.so.6
#1  ?? () from /lib/libcuda.so.1
#2  at::native::item(at::Tensor const&) from /lib/libtorch_cpu.so
#3  c10d::(anonymous namespace)::look(int (*)(int)) from /lib/libtorch_cpu.so
#4  std::function<void ()>::operator()() const from /lib/libtorch_cpu.so
#5  lockstep::TrainLoop::step(int) from /bin/lockstep-worker
#6  lockstep::(anonymous namespace)::train() from /bin/lockstep-worker
#7  lockstep::run_worker() from /bin/lockstep-worker
#8  main () from /bin/lockstep-worker

Thread 2 (LWP 9) "pt_autograd_0":
#0  other () from /lib/libc.so.6
)"),
            "poll < at::native::item < c10d::(anonymous namespace)::look < "
            "lockstep::TrainLoop::step < lockstep::(anonymous namespace)::train");
}

TEST(HangingLocation, is_what_the_kernel_says_where_the_thread_could_not) {
  EXPECT_EQ(
      location("rank 0 gave up\n\nThread 1 (LWP 7) \"w\":\n(no stack: state D, in nv_wait)\n"),
      "no stack: state D, in nv_wait");
}

TEST(HangingLocation, is_empty_without_a_file_and_of_any_bytes_nothing_worse) {
  EXPECT_EQ(hanging_location("/nowhere/rank_0.stack"), "");
  EXPECT_EQ(location(""), "");
  EXPECT_EQ(location("#\n#0\n#1  \n#2  ??"), "");
  EXPECT_EQ(location("#0  a\x1b[31m (x)\n").find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace lockstep::runtime
