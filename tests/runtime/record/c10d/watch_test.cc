// Fingerprints of tensors, and what a step's watch leaves in the trace.
#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/api/include/torch/optim.h>

#include "runtime/record/c10d/value_watch.h"
#include "tests/support/temp_dir.h"
#include "trace/formats/ring/reader.h"

namespace lockstep::runtime {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using Kind = trace::StateMark::Kind;
using When = trace::StateMark::When;

// The fingerprint of `tensor` as T, element by element in the order of its indices.
template <class T>
trace::Fingerprint one_by_one(const at::Tensor& tensor, std::uint64_t first = 0) {
  const at::Tensor flat = tensor.reshape({-1}).to(c10::CppTypeToScalarType<T>::value);
  std::vector<T> values;
  for (std::int64_t i = 0; i < flat.numel(); ++i) values.push_back(flat[i].item<T>());
  trace::Fingerprinter f(trace::kSketchValues, trace::fingerprint_methods().front());
  f.add(values, first);
  return f.finish();
}

at::Tensor some_values(at::IntArrayRef shape) {
  at::manual_seed(3);
  return at::randn(shape);
}

TEST(TensorFingerprint, OfFloatsIsThatOfTheirBits) {
  const at::Tensor values = some_values({7, 11});
  EXPECT_EQ(fingerprint_of(values, trace::kSketchValues), one_by_one<float>(values));
  EXPECT_EQ(fingerprint_of(values, trace::kSketchValues, 5), one_by_one<float>(values, 5));
}

TEST(TensorFingerprint, OfHalfPrecisionIsThatOfTheFloatsThatTheyAre) {
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    const at::Tensor values = some_values({700}).to(type);
    EXPECT_EQ(fingerprint_of(values, trace::kSketchValues),
              one_by_one<float>(values.to(at::kFloat)));
  }
}

TEST(TensorFingerprint, OfOtherTypesIsThatOfDoubles) {
  const at::Tensor values = some_values({300}) * 1000;
  for (const at::ScalarType type :
       {at::kDouble, at::kLong, at::kInt, at::kShort, at::kChar, at::kByte, at::kBool}) {
    const at::Tensor typed = values.abs().clamp_max(100).to(type);
    EXPECT_EQ(fingerprint_of(typed, trace::kSketchValues), one_by_one<double>(typed)) << type;
  }
}

TEST(TensorFingerprint, SeesElementsInTheOrderOfTheirIndices) {
  const at::Tensor values = some_values({12, 20});
  for (const at::Tensor& view : {values.t(), values.slice(1, 0, 20, 3), values.flip({0}),
                                 values[0][0].expand({4, 4}), values.narrow(0, 3, 2)}) {
    EXPECT_EQ(fingerprint_of(view, trace::kSketchValues), one_by_one<float>(view));
  }
  EXPECT_NE(fingerprint_of(values.t(), 0).hash, fingerprint_of(values, 0).hash);
}

TEST(TensorFingerprint, OfNothingAndOfOneNumber) {
  EXPECT_EQ(fingerprint_of(at::empty({0, 3}), trace::kSketchValues),
            trace::Fingerprinter().finish());
  const trace::Fingerprint one =
      fingerprint_of(at::scalar_tensor(-2.5, at::kFloat), trace::kSketchValues);
  EXPECT_EQ(one.norm, 2.5);
  EXPECT_EQ(one.min, -2.5);
  EXPECT_EQ(one, one_by_one<float>(at::full({1}, -2.5)));
}

TEST(TensorFingerprint, HasTheSameBitsWithAnyNumberOfThreads) {
  const at::Tensor values = some_values({300'000});
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const trace::Fingerprint alone = fingerprint_of(values, trace::kSketchValues);
  at::set_num_threads(4);
  const trace::Fingerprint together = fingerprint_of(values, trace::kSketchValues);
  at::set_num_threads(before);
  EXPECT_EQ(together, alone);
  EXPECT_EQ(alone.hash, one_by_one<float>(values).hash);
}

// What a device does, on the host: takes when asked, and gives at the end.
class LateFingerprints : public DeviceFingerprints {
 public:
  explicit LateFingerprints(int& collections) : collections_(collections) {}
  void take(const at::Tensor& tensor, std::uint64_t first) override {
    // Ones, as many as the tensor has elements.
    taken_.push_back(fingerprint_of(at::ones_like(tensor, at::kCPU), trace::kSketchValues, first));
  }
  std::vector<trace::Fingerprint> collect() override {
    ++collections_;
    return std::exchange(taken_, {});
  }

 private:
  int& collections_;
  std::vector<trace::Fingerprint> taken_;
};

// A watch, and the states that it has left.
class ValueWatchTest : public testing::Test {
 protected:
  ValueWatchTest() {
    trace::RingWriter::Options options;
    options.path = folder_.file("rank_0.ring");
    options.rank = trace::Rank(0);
    options.world_size = 1;
    options.capacity = 1 << 10;
    ring_ = std::move(*trace::RingWriter::create(options));
    recorder_.emplace(*ring_);
    options_.every = 2;
    options_.buffers = options_.optimizer = true;
  }

  ValueWatch watch(std::unique_ptr<DeviceFingerprints> device = nullptr) {
    return ValueWatch(options_, *recorder_, std::move(device));
  }

  const std::vector<trace::StateMark>& states() {
    tables_ = {};
    auto read = trace::read_ring_file(folder_.file("rank_0.ring"), tables_);
    EXPECT_TRUE(read) << read.error().str();
    EXPECT_EQ(read->damaged_count, 0U);
    trace_ = std::move(*read);
    return trace_.states;
  }
  std::vector<std::string> names() {
    std::vector<std::string> out;
    for (const trace::StateMark& state : states()) out.emplace_back(tables_.str(state.name));
    return out;
  }

  TempDir folder_;
  Scenario::Watch options_;
  std::unique_ptr<trace::RingWriter> ring_;
  std::optional<Recorder> recorder_;
  trace::Tables tables_;
  trace::RankTrace trace_;
};

TEST_F(ValueWatchTest, AStepLeavesItsValuesInOrder) {
  ValueWatch watch = this->watch();
  at::Tensor weight = some_values({2, 3}).set_requires_grad(true);
  const NamedTensors parameters = {{"weight", weight}};
  torch::optim::AdamW optimizer({weight}, torch::optim::AdamWOptions(0.1));

  watch.begin_step(4, 1);
  EXPECT_TRUE(watch.on());
  weight.sum().backward();
  watch.local_gradient("weight", weight.grad());
  watch.synced_gradient("weight", weight.grad() * 2);
  optimizer.step();
  watch.scalar("lr", 0.25);
  watch.parameter("weight", weight, {true, 6});
  watch.optimizer(optimizer, parameters, false);
  watch.buffers({{"norm.num_batches_tracked", at::full({}, 5, at::kLong)}});
  watch.end_step();

  const std::vector<trace::StateMark>& s = states();
  ASSERT_THAT(names(), ElementsAre("weight", "weight", "lr", "weight", "exp_avg/weight",
                                   "exp_avg_sq/weight", "norm.num_batches_tracked"));
  const auto expect = [&](std::size_t i, Kind kind, When when, const std::string& dtype) {
    EXPECT_EQ(s[i].n, 4);
    EXPECT_EQ(s[i].kind, kind);
    EXPECT_EQ(s[i].when, when);
    EXPECT_EQ(tables_.str(s[i].dtype), dtype);
    EXPECT_THAT(s[i].sketch, SizeIs(trace::kSketchValues));
  };
  expect(0, Kind::grad, When::local, "float32");
  expect(1, Kind::grad, When::synced, "float32");
  expect(2, Kind::optim, When::unspecified, "float64");
  expect(3, Kind::param, When::unspecified, "float32");
  expect(4, Kind::optim, When::unspecified, "float32");
  expect(5, Kind::optim, When::unspecified, "float32");
  expect(6, Kind::buffer, When::unspecified, "int64");

  EXPECT_THAT(tables_.int_lists[s[0].shape], ElementsAre(2, 3));
  EXPECT_DOUBLE_EQ(*s[0].norm, std::sqrt(6));
  EXPECT_DOUBLE_EQ(*s[1].norm, 2 * std::sqrt(6));
  EXPECT_EQ(*s[2].norm, 0.25);
  EXPECT_TRUE(s[3].sharded);
  EXPECT_FALSE(s[4].sharded);
  EXPECT_EQ(*s[6].norm, 5);
  // A shard's fingerprint is that of its places in the whole.
  const trace::Fingerprint shard = fingerprint_of(weight, trace::kSketchValues, 6);
  EXPECT_EQ(s[3].hash, shard.hash);
  EXPECT_EQ(s[3].sketch, shard.sketch);
  EXPECT_GT(watch.nanos(), 0);
}

TEST_F(ValueWatchTest, OtherStepsAndOtherValuesLeaveNothing) {
  options_.parameters = false;
  ValueWatch watch = this->watch();
  watch.begin_step(3, 1);
  EXPECT_FALSE(watch.on());
  watch.local_gradient("weight", at::ones({2}));
  watch.scalar("lr", 1);
  watch.begin_step(4, 1);
  watch.parameter("weight", at::ones({2}));
  watch.end_step();
  EXPECT_THAT(names(), IsEmpty());
  EXPECT_EQ(watch.nanos(), 0);
}

TEST_F(ValueWatchTest, WhatIsNotFiniteHasAHashAlone) {
  ValueWatch watch = this->watch();
  watch.begin_step(0, 1);
  watch.local_gradient("a", at::full({3}, std::numeric_limits<double>::infinity()));
  watch.local_gradient("b", at::full({3}, std::nan("")));
  const std::vector<trace::StateMark>& s = states();
  ASSERT_THAT(s, SizeIs(2));
  for (const trace::StateMark& state : s) {
    EXPECT_TRUE(state.hash);
    EXPECT_FALSE(state.norm);
    EXPECT_THAT(state.sketch, IsEmpty());
  }
  EXPECT_NE(s[0].hash, s[1].hash);
}

TEST_F(ValueWatchTest, WithoutASketchThereIsNone) {
  options_.sketch = 0;
  ValueWatch watch = this->watch();
  watch.begin_step(0, 1);
  watch.parameter("a", at::ones({3}));
  const std::vector<trace::StateMark>& s = states();
  ASSERT_THAT(s, SizeIs(1));
  EXPECT_THAT(s[0].sketch, IsEmpty());
  EXPECT_DOUBLE_EQ(*s[0].norm, std::sqrt(3));
}

TEST_F(ValueWatchTest, OnlyGradientsThatAreLeftOverAndNotZeroAreRecorded) {
  ValueWatch watch = this->watch();
  NamedTensors parameters;
  for (const char* name : {"none", "zero", "left", "nan"}) {
    parameters.emplace_back(name, at::ones({2}).set_requires_grad(true));
  }
  parameters[1].second.mutable_grad() = at::zeros({2});
  parameters[2].second.mutable_grad() = at::ones({2});
  parameters[3].second.mutable_grad() = at::full({2}, std::nan(""));
  watch.begin_step(0, 1);
  watch.leftovers(parameters);
  EXPECT_THAT(names(), ElementsAre("left", "nan"));
}

TEST_F(ValueWatchTest, ADeviceIsAskedForAllOfAStepAtItsEnd) {
  int collections = 0;
  ValueWatch watch = this->watch(std::make_unique<LateFingerprints>(collections));
  watch.begin_step(0, 1);
  // On the meta device: of a place that is not the host.
  watch.local_gradient("a", at::empty({4}, at::kMeta));
  watch.parameter("b", at::empty({9}, at::kMeta), {true, 8});
  watch.scalar("lr", 0.5);  // on the host: at once
  EXPECT_THAT(names(), ElementsAre("lr"));
  EXPECT_EQ(collections, 0);
  watch.end_step();
  EXPECT_EQ(collections, 1);
  ASSERT_THAT(names(), ElementsAre("lr", "a", "b"));
  const std::vector<trace::StateMark>& s = states();
  EXPECT_EQ(s[1].kind, Kind::grad);
  EXPECT_EQ(*s[1].norm, 2);
  EXPECT_EQ(*s[2].norm, 3);
  EXPECT_TRUE(s[2].sharded);
  EXPECT_EQ(s[2].hash, fingerprint_of(at::ones({9}), 0, 8).hash);
  watch.end_step();  // nothing is left to ask for
  EXPECT_EQ(collections, 1);
}

}  // namespace
}  // namespace lockstep::runtime
