// NVRTC compiles the kernel for fingerprints: wherever its library is, GPU or not.

#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/device/fingerprint_kernel.h"

namespace lockstep::runtime {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr const char* kKernels[] = {
    "fingerprint_join",     "fingerprint_float32", "fingerprint_float64", "fingerprint_float16",
    "fingerprint_bfloat16", "fingerprint_int64",   "fingerprint_int32",   "fingerprint_int16",
    "fingerprint_int8",     "fingerprint_uint8"};

class NvrtcTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::vector<std::string> folders = {LOCKSTEP_NVRTC_FOLDER};
    auto opened = Nvrtc::open(folders);
    if (!opened) GTEST_SKIP() << opened.error().str();
    nvrtc_.emplace(std::move(*opened));
  }
  std::optional<Nvrtc> nvrtc_;
};

TEST_F(NvrtcTest, MakesPtxOfTheKernel) {
  for (const char* architecture : {"compute_80", "compute_90"}) {
    const auto ptx = nvrtc_->compile(fingerprint_kernel(), architecture);
    ASSERT_TRUE(ptx) << ptx.error().str();
    for (const char* kernel : kKernels) {
      EXPECT_THAT(*ptx, HasSubstr(std::string(".visible .entry ") + kernel + "("));
    }
  }
}

TEST_F(NvrtcTest, MakesMachineCodeOfTheKernel) {
  for (const char* architecture : {"sm_80", "sm_90"}) {
    const auto code = nvrtc_->compile(fingerprint_kernel(), architecture);
    ASSERT_TRUE(code) << code.error().str();
    EXPECT_THAT(*code, StartsWith("\x7F"
                                  "ELF"));
    for (const char* kernel : kKernels) EXPECT_THAT(*code, HasSubstr(kernel));
  }
}

TEST_F(NvrtcTest, SaysWhatIsWrongWithAText) {
  const auto bad = nvrtc_->compile({"bad.cu", "__global__ void k() { nonsense(); }", {}}, "sm_80");
  ASSERT_FALSE(bad);
  EXPECT_THAT(bad.error().str(), HasSubstr("bad.cu does not compile for sm_80"));
  EXPECT_THAT(bad.error().str(), HasSubstr("\"nonsense\" is undefined"));
}

TEST_F(NvrtcTest, SaysSoWhereItDoesNotKnowTheArchitecture) {
  const auto bad = nvrtc_->compile(fingerprint_kernel(), "sm_1");
  ASSERT_FALSE(bad);
  EXPECT_THAT(bad.error().str(), HasSubstr("does not compile for sm_1"));
}

}  // namespace
}  // namespace lockstep::runtime
