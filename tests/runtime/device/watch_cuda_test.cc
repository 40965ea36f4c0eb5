// The kernel for fingerprints on a GPU, against the host: hash, range and counts to the bit, sums
// as close as doubles in another order are.
#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/device/device.h"
#include "runtime/device/tensor_fingerprint.h"

namespace lockstep::runtime {
namespace {

class CudaFingerprintsTest : public testing::Test {
 protected:
  void SetUp() override {
    auto device = open_device({.kind = DeviceKind::cuda});
    if (!device) GTEST_SKIP() << device.error().str();
    device_ = std::move(*device);
    prints_ = device_->make_fingerprints(trace::kSketchValues);
    ASSERT_NE(prints_, nullptr) << "the kernel was not compiled: see the warning";
  }

  at::Tensor there(const at::Tensor& tensor) const { return device_->bring(tensor); }

  std::unique_ptr<Device> device_;
  std::unique_ptr<DeviceFingerprints> prints_;
};

void expect_same(const trace::Fingerprint& device, const trace::Fingerprint& host) {
  EXPECT_EQ(device.hash, host.hash);
  EXPECT_EQ(device.non_finite, host.non_finite);
  EXPECT_EQ(device.min, host.min);
  EXPECT_EQ(device.max, host.max);
  EXPECT_NEAR(device.norm, host.norm, 1e-12 * host.norm);
  for (std::size_t j = 0; j < host.sketch.size(); ++j) {
    EXPECT_NEAR(device.sketch[j], host.sketch[j], 1e-10 * host.norm);
  }
}

TEST_F(CudaFingerprintsTest, OfABatchAreTheHosts) {
  at::manual_seed(1);
  std::vector<at::Tensor> tensors;
  for (const std::int64_t n : {0, 1, 7, 8, 9, 1000, 8193, 1'000'003, 5'000'000}) {
    tensors.push_back(at::randn({n}));
  }
  for (const at::ScalarType type : {at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kInt,
                                    at::kShort, at::kChar, at::kByte, at::kBool}) {
    tensors.push_back((at::randn({30'001}) * 50).abs().to(type));
  }
  const at::Tensor square = at::randn({70, 90});
  tensors.push_back(square.t());
  tensors.push_back(square.slice(1, 0, 90, 7));
  tensors.push_back(at::scalar_tensor(-3.5, at::kFloat));
  at::Tensor odd = at::randn({2000});
  odd[3] = std::numeric_limits<float>::infinity();
  odd[4] = -std::numeric_limits<float>::infinity();
  odd[5] = std::nanf("");
  odd[6] = -0.0F;
  odd[7] = std::numeric_limits<float>::denorm_min();
  tensors.push_back(odd);
  std::uint64_t first = 0;
  for (const at::Tensor& tensor : tensors) prints_->take(there(tensor), first++);
  const std::vector<trace::Fingerprint> taken = prints_->collect();
  ASSERT_EQ(taken.size(), tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    SCOPED_TRACE("tensor " + std::to_string(i));
    expect_same(taken[i], fingerprint_of(tensors[i], trace::kSketchValues, i));
  }
}

TEST_F(CudaFingerprintsTest, AreOfTheValuesOfTheMoment) {
  const at::Tensor values = there(at::ones({100'000}));
  prints_->take(values, 0);
  values.mul_(2);
  prints_->take(values, 0);
  const std::vector<trace::Fingerprint> taken = prints_->collect();
  ASSERT_EQ(taken.size(), 2U);
  EXPECT_DOUBLE_EQ(2 * taken[0].norm, taken[1].norm);
}

TEST_F(CudaFingerprintsTest, HaveTheSameBitsEveryTimeAndInEveryBatch) {
  const at::Tensor values = there(at::randn({3'000'000}));
  for (int i = 0; i < 5000; ++i) prints_->take(i % 100 == 0 ? values : values.narrow(0, 0, 9), 0);
  const std::vector<trace::Fingerprint> taken = prints_->collect();
  ASSERT_EQ(taken.size(), 5000U);
  for (std::size_t i = 100; i < taken.size(); i += 100) EXPECT_EQ(taken[i], taken[0]);
  prints_->take(values, 0);
  EXPECT_EQ(prints_->collect().at(0), taken[0]);
  EXPECT_TRUE(prints_->collect().empty());
}

}  // namespace
}  // namespace lockstep::runtime
