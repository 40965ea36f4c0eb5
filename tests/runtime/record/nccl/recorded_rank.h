// A rank that records the calls of one communicator, for tests of what notes their completion.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/record/nccl/communicator.h"
#include "tests/support/temp_dir.h"
#include "trace/formats/ring/reader.h"

namespace lockstep::runtime {

class RecordedRankTest : public testing::Test {
 protected:
  // Issues the next call; returns its id.
  std::uint32_t issue() {
    trace::RingWriter::Issue call;
    call.group = ring_->make_communicator("comm", 0, 1);
    call.signature = ring_->make_signature({});
    call.seq = next_++;
    return ring_->issue(call);
  }
  std::vector<trace::Call> recorded() const {
    trace::Tables tables;
    return trace::read_ring_file(folder_.file("rank_0.ring"), tables)->calls;
  }

  TempDir folder_;
  RecordedRank rank_;
  trace::RingWriter* const ring_ = [this] {
    trace::RingWriter::Options options;
    options.path = folder_.file("rank_0.ring");
    options.rank = trace::Rank(0);
    rank_.ring = std::move(*trace::RingWriter::create(options));
    return rank_.ring.get();
  }();

 private:
  std::uint32_t next_ = 0;
};

}  // namespace lockstep::runtime
