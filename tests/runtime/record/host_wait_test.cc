// Hosts that read a value: the calls in flight that the trace says they wait for.
#include <memory>
#include <optional>
#include <vector>

#include <gmock/gmock.h>

#include "runtime/record/recorder.h"
#include "tests/runtime/spawn.h"
#include "tests/support/temp_dir.h"

namespace lockstep::runtime {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::IsEmpty;

class HostWait : public testing::Test {
 protected:
  HostWait() {
    trace::RingWriter::Options options;
    options.path = folder_.file("rank_0.ring");
    options.rank = trace::Rank(0);
    ring_ = std::move(*trace::RingWriter::create(options));
    recorder_.emplace(*ring_);
  }

  // Ids from 0.
  void issue(std::uint32_t calls) {
    trace::RingWriter::SignatureFields fields;
    fields.op = trace::Op::barrier;
    for (std::uint32_t i = 0; i < calls; ++i) {
      trace::RingWriter::Issue call;
      call.group = ring_->make_group("world", std::vector<std::int32_t>{0});
      call.signature = ring_->make_signature(fields);
      call.seq = i;
      recorder_->issue(call);
    }
  }

  // The calls whose events of that kind are in the trace, in their order.
  std::vector<std::uint32_t> calls_of(trace::EventKind kind) const {
    std::vector<std::uint32_t> out;
    for (const trace::Event& event : recorded(folder_.path(), 0).trace.events) {
      if (event.kind == kind) out.push_back(event.index);
    }
    return out;
  }

  TempDir folder_;
  std::unique_ptr<trace::RingWriter> ring_;
  std::optional<Recorder> recorder_;
};

TEST_F(HostWait, WaitsForWhatIsInFlight) {
  recorder_->follow_calls();
  issue(3);
  recorder_->complete(1);
  {
    const Recorder::HostWait reading(*recorder_);
    EXPECT_THAT(calls_of(trace::EventKind::wait), ElementsAre(0, 2));
    EXPECT_THAT(calls_of(trace::EventKind::waited), IsEmpty());
  }
  EXPECT_THAT(calls_of(trace::EventKind::waited), ElementsAre(0, 2));
  recorder_->complete(0);
  recorder_->complete(2);
  const Recorder::HostWait reading(*recorder_);
  EXPECT_THAT(calls_of(trace::EventKind::wait), ElementsAre(0, 2));
}

TEST_F(HostWait, OfManyForTheOldestAndTheNewest) {
  recorder_->follow_calls();
  issue(40);
  { const Recorder::HostWait reading(*recorder_); }
  const std::vector<std::uint32_t> kept = {0, 1, 2, 3, 4, 5, 6, 7, 32, 33, 34, 35, 36, 37, 38, 39};
  EXPECT_THAT(calls_of(trace::EventKind::wait), ElementsAreArray(kept));
  EXPECT_THAT(calls_of(trace::EventKind::waited), ElementsAreArray(kept));
}

TEST_F(HostWait, OfAsManyAsAreKeptForAll) {
  recorder_->follow_calls();
  issue(16);
  const Recorder::HostWait reading(*recorder_);
  EXPECT_EQ(calls_of(trace::EventKind::wait).size(), 16U);
}

TEST_F(HostWait, InsideAnotherOneIsTheSameWait) {
  recorder_->follow_calls();
  issue(2);
  {
    const Recorder::HostWait reading(*recorder_);
    { const Recorder::HostWait again(*recorder_); }
    EXPECT_THAT(calls_of(trace::EventKind::waited), IsEmpty());
  }
  EXPECT_THAT(calls_of(trace::EventKind::wait), ElementsAre(0, 1));
  const Recorder::HostWait later(*recorder_);
  EXPECT_THAT(calls_of(trace::EventKind::wait), ElementsAre(0, 1, 0, 1));
}

TEST_F(HostWait, IsNotRecordedWhereCallsAreCompleteWhenTheyReturn) {
  issue(2);
  const Recorder::HostWait reading(*recorder_);
  EXPECT_THAT(calls_of(trace::EventKind::wait), IsEmpty());
}

}  // namespace
}  // namespace lockstep::runtime
