#include "runtime/record/nccl/device_calls.h"

#include <deque>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/record/nccl/recorded_rank.h"

struct lockstep::runtime::cuda::CUevent_st {
  lockstep::runtime::cuda::Stream stream = nullptr;
  int group_rank = 0;  // in its stream
};

namespace lockstep::runtime {
namespace {

using testing::ElementsAre;

// A device whose streams go as far as a test lets them.
struct Device {
  std::map<cuda::Stream, int> put, reached;
  std::deque<cuda::CUevent_st> events;
  bool captures = false, fails = false;
  int contexts = 0;  // that are pushed at this moment
};
Device* device = nullptr;

std::optional<cuda::Driver> find_fake() {
  cuda::Driver out{};
  out.context_of = [](cuda::Stream, cuda::Context*) { return cuda::kSuccess; };
  out.push = [](cuda::Context) {
    ++device->contexts;
    return cuda::kSuccess;
  };
  out.pop = [](cuda::Context*) {
    --device->contexts;
    return cuda::kSuccess;
  };
  out.is_capturing = [](cuda::Stream, int* capturing) {
    *capturing = device->captures ? 1 : 0;
    return cuda::kSuccess;
  };
  out.exchange_capture_mode = [](int*) { return cuda::kSuccess; };
  out.make_event = [](cuda::Event* event, unsigned) {
    *event = &device->events.emplace_back();
    return cuda::kSuccess;
  };
  out.record = [](cuda::Event event, cuda::Stream stream) {
    *event = {stream, ++device->put[stream]};
    return cuda::kSuccess;
  };
  out.query = [](cuda::Event event) {
    constexpr cuda::Code kLaunchFailed = 719;
    if (device->fails) return kLaunchFailed;
    return event->group_rank <= device->reached[event->stream] ? cuda::kSuccess : cuda::kNotReady;
  };
  return out;
}

class DeviceCallsTest : public RecordedRankTest {
 protected:
  DeviceCallsTest() { device = &device_; }
  ~DeviceCallsTest() override {
    EXPECT_EQ(device_.contexts, 0) << "the program's context is current again";
    device = nullptr;
  }

  DeviceCalls::Call issue(cuda::Stream stream) {
    const DeviceCalls::Call out{&rank_, RecordedRankTest::issue(), stream};
    DeviceCalls::enter(out);
    return out;
  }
  void run(cuda::Stream stream) {
    const DeviceCalls::Call call = issue(stream);
    calls_.follow({&call, 1});
  }
  // Whether each call is recorded as complete.
  std::vector<bool> completed() {
    std::vector<bool> out;
    for (const trace::Call& call : recorded()) out.push_back(call.has(trace::kCompleted));
    return out;
  }
  static cuda::Stream stream(std::uintptr_t number) {
    return reinterpret_cast<cuda::Stream>(number);  // NOLINT(performance-no-int-to-ptr): opaque
  }

  Device device_;
  DeviceCalls calls_{find_fake};
};

TEST_F(DeviceCallsTest, AreCompleteAsFarAsTheirStreamHasCome) {
  run(stream(1));
  run(stream(1));
  run(stream(2));
  calls_.look();
  EXPECT_EQ(rank_.on_device, 3);
  device_.reached[stream(1)] = 1;
  device_.reached[stream(2)] = 1;
  calls_.look();
  EXPECT_THAT(completed(), ElementsAre(true, false, true));
  EXPECT_EQ(rank_.on_device, 1);
  device_.reached[stream(1)] = 2;
  calls_.look();
  EXPECT_THAT(completed(), ElementsAre(true, true, true));
  EXPECT_EQ(rank_.on_device, 0);
}

TEST_F(DeviceCallsTest, UseTheirEventsAgain) {
  for (int i = 1; i <= 100; ++i) {
    run(stream(1));
    device_.reached[stream(1)] = i;
    calls_.look();
  }
  EXPECT_EQ(device_.events.size(), 1U);
  EXPECT_THAT(completed(), testing::Each(true));
}

TEST_F(DeviceCallsTest, OfAGroupShareAnEventInEachStream) {
  const std::vector<DeviceCalls::Call> group = {issue(stream(1)), issue(stream(1)),
                                                issue(stream(2))};
  calls_.follow(group);
  EXPECT_EQ(device_.events.size(), 2U);
  device_.reached[stream(1)] = 1;
  calls_.look();
  EXPECT_THAT(completed(), ElementsAre(true, true, false));
}

TEST_F(DeviceCallsTest, ThatAreCapturedAreNotFollowed) {
  device_.captures = true;
  run(stream(1));
  EXPECT_TRUE(device_.put.empty()) << "an event would be a part of the graph";
  EXPECT_EQ(rank_.on_device, 0);
  EXPECT_THAT(completed(), ElementsAre(false));
}

TEST_F(DeviceCallsTest, OfAFailedDeviceStayOpenAndAreNotPolledAgain) {
  run(stream(1));
  device_.fails = true;
  calls_.look();
  device_.fails = false;
  device_.reached[stream(1)] = 1;
  calls_.look();
  EXPECT_EQ(rank_.on_device, 0);
  EXPECT_THAT(completed(), ElementsAre(false));
}

TEST_F(DeviceCallsTest, ArePolledOnceMoreAtTheEnd) {
  run(stream(1));
  run(stream(1));
  device_.reached[stream(1)] = 1;
  calls_.stop();
  device_.reached[stream(1)] = 2;
  calls_.look();
  run(stream(1));
  EXPECT_THAT(completed(), ElementsAre(true, false, false));
}

TEST_F(DeviceCallsTest, WithoutADriverAreNotFollowed) {
  DeviceCalls without([]() -> std::optional<cuda::Driver> { return std::nullopt; });
  const DeviceCalls::Call call = issue(stream(1));
  EXPECT_EQ(rank_.on_device, 1) << "while NCCL has it";
  without.follow({&call, 1});
  EXPECT_EQ(rank_.on_device, 0);
}

}  // namespace
}  // namespace lockstep::runtime
