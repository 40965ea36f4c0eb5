#include "runtime/record/device_time.h"

#include <gtest/gtest.h>

namespace lockstep::runtime {
namespace {

class MarkAt final : public QueueMark {
 public:
  explicit MarkAt(trace::Nanos when) : when_(when) {}
  bool reached() const override { return true; }
  trace::Nanos since(const QueueMark& earlier) const override {
    return when_ - dynamic_cast<const MarkAt&>(earlier).when_;
  }

 private:
  trace::Nanos when_;
};

// A device whose clock the test sets.
struct Clock {
  trace::Nanos now = 0;
  DeviceTime time{[this] { return std::make_shared<MarkAt>(now); }};
};

TEST(DeviceTime, LeavesOutWhatTheQueueWaitsFor) {
  Clock clock;
  clock.now = 100;
  clock.time.begin();
  clock.now = 130;
  clock.time.leave_out([&] { clock.now = 1130; });
  clock.now = 1180;
  clock.time.end();
  EXPECT_EQ(clock.time.take(), 80);
}

TEST(DeviceTime, CountsBetweenBeginAndEndAlone) {
  Clock clock;
  EXPECT_EQ(clock.time.take(), 0);
  bool waited = false;
  clock.time.leave_out([&] { waited = true; });
  EXPECT_TRUE(waited);
  for (const trace::Nanos step : {10, 20}) {
    clock.time.begin();
    clock.now += step;
    clock.time.end();
    clock.time.leave_out([&] { clock.now += 1000; });
    EXPECT_EQ(clock.time.take(), step);
  }
}

}  // namespace
}  // namespace lockstep::runtime
