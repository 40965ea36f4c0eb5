#include "runtime/strategies/stage_lengths.h"

#include <cstddef>
#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>

#include <ATen/ATen.h>

#include "runtime/record/c10d/host_read.h"

namespace lockstep::runtime {
namespace {

constexpr int kTag = 0;

// [micro-batches, 3]: texts, tokens of each, pictures.
at::Tensor lengths_of(const std::vector<Batch>& batches) {
  std::vector<std::int64_t> all;
  for (const Batch& batch : batches) {
    const std::int64_t pictures = batch.images.defined() ? batch.images.size(0) : 0;
    all.insert(all.end(), {batch.tokens.size(0), batch.tokens.size(1), pictures});
  }
  return at::tensor(all, at::kLong).view({-1, 3});
}

std::string in_words(const at::Tensor& lengths) {
  std::ostringstream out;
  for (std::int64_t m = 0; m < lengths.size(0); ++m) {
    const auto* of = lengths[m].const_data_ptr<std::int64_t>();
    out << (m == 0 ? "" : "; ") << of[0] << " texts of " << of[1] << " tokens, " << of[2]
        << " pictures";
  }
  return out.str();
}

}  // namespace

StageLengths::StageLengths(int stages, ProcessGroups& groups, Recorder& recorder, bool sent_first)
    : stage_(pipeline_stages(stages)[static_cast<std::size_t>(groups.who().rank % stages)]),
      recorder_(recorder),
      sends_first_(sent_first || stage_.stages_after % 2 == 0) {
  const int first = groups.who().rank - groups.who().rank % stages;
  group_ =
      groups.make(c10::str("replica", first / stages, ".lengths"),
                  "neighbouring stages compare their batches", every_nth_rank(1, first, stages));
}

void StageLengths::exchange(const std::vector<Batch>& batches) {
  const at::Tensor own = lengths_of(batches);
  std::vector<int> neighbours = stage_.inputs;
  if (stage_.output) neighbours.push_back(*stage_.output);
  std::vector<at::Tensor> received;
  for (const bool sending : {sends_first_, !sends_first_}) {
    for (const int neighbour : neighbours) {
      const NoteScope scope(recorder_, recorder_.note({"lengths"}, "pipeline.lengths"));
      std::vector<at::Tensor> tensors = {sending ? own : at::empty_like(own)};
      if (sending) {
        group_->send(tensors, neighbour, kTag)->wait();
      } else {
        received.push_back(tensors.front());
        group_->recv(tensors, neighbour, kTag)->wait();
      }
    }
  }
  // Afterwards, so that the neighbours learn it, too.
  for (at::Tensor& theirs : received) {
    const HostRead reading(recorder_, theirs);
    theirs = theirs.cpu();  // waits for the message on a device that queues calls
    if (theirs.equal(own)) continue;
    throw std::runtime_error(c10::str("the other stage has ", in_words(theirs), "; this one ",
                                      in_words(own),
                                      ": the stages of a replica must read the same batch"));
  }
}

}  // namespace lockstep::runtime
