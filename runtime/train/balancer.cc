#include "runtime/train/balancer.h"

#include <cstddef>
#include <cstdint>
#include <utility>

#include <ATen/ATen.h>

#include "base/check.h"
#include "runtime/groups/collectives.h"
#include "runtime/train/cost_model.h"

namespace lockstep::runtime {
namespace {

// The row that a rank contributes to the all-gather: images, texts and milliseconds of the step
// before; then, for each micro-batch of this step, words to predict and image-text pairs. With two
// micro-batches: 4, 16, 31.5, words 0, pairs 0, words 1, pairs 1.
enum Column : std::int64_t { kImagesColumn, kTextsColumn, kMillisecondsColumn, kFirstCountColumn };
constexpr std::int64_t kCounts = 2;  // of a micro-batch: words, pairs

// The factor of a rank's loss: 1 where all ranks have equally much, 2 where it has twice the mean.
double share_of(double own, double all, double ranks) { return all > 0 ? own / all * ranks : 1; }

double exchanged_rows(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<double>(tensor.size(0)) : 0;
}

}  // namespace

Balancer::Balancer(ContrastiveModel model, ProcessGroups& groups, Recorder& recorder)
    : model_(std::move(model)), world_(groups.world()), recorder_(recorder) {}

void Balancer::before_step(std::vector<Batch>& batches, bool balanced) {
  const auto count = static_cast<std::int64_t>(batches.size());
  std::vector<double> own = {last_.images, last_.texts, last_.ms};
  for (const Batch& batch : batches) {
    own.push_back(static_cast<double>(model_->words_to_predict(batch.tokens)));
    own.push_back(exchanged_rows(batch.image_rows));
  }
  at::Tensor all;
  {
    const NoteScope scope(recorder_, recorder_.note({"costs"}, "balance.counts"));
    all = all_gather(*world_, at::tensor(own, at::kDouble)).view({world_->getSize(), -1});
  }
  // When step 2 begins, the times are those of step 1. Those of step 0 are not used: the first step
  // also pays for allocating memory and loading code.
  if (steps_ > 1) take_in(all.const_data_ptr<double>(), all.size(1));
  const at::Tensor sums = all.sum(0);
  const auto ranks = static_cast<double>(world_->getSize());
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t words = kFirstCountColumn + i * kCounts;
    const auto weight = [&](std::int64_t column) {
      return share_of(own[static_cast<std::size_t>(column)], sums[column].item<double>(), ranks);
    };
    batches[static_cast<std::size_t>(i)].weights = {weight(words), weight(words + 1)};
  }
  // What this rank computes in this step; its time is added by after_step() and sent in the next.
  last_ = {};
  for (const Batch& batch : batches) {
    last_.images += exchanged_rows(batch.images);
    last_.texts += exchanged_rows(batch.tokens);
  }
  last_.balanced = balanced;
  ++steps_;
}

void Balancer::after_step(trace::Nanos busy) { last_.ms = static_cast<double>(busy) * 1e-6; }

void Balancer::take_in(const double* rows, std::int64_t width) {
  std::vector<double> times;
  for (int rank = 0; rank < world_->getSize(); ++rank, rows += width) {
    model_of_costs_.add({rows[kImagesColumn], rows[kTextsColumn], rows[kMillisecondsColumn]});
    times.push_back(rows[kMillisecondsColumn]);
  }
  model_of_costs_.fit();
  BalanceReport::Phase& phase = last_.balanced ? report_.balanced : report_.fixed;
  last_idle_share_ = idle_share(times);
  // A sum here; report() divides it by the number of steps.
  phase.idle_share += *last_idle_share_;
  ++phase.steps;
}

BalanceReport Balancer::report() const {
  BalanceReport out = report_;
  for (BalanceReport::Phase* phase : {&out.fixed, &out.balanced}) {
    if (phase->steps > 0) phase->idle_share /= phase->steps;
  }
  if (const auto& found = costs()) {
    out.image_ms = found->image;
    out.text_ms = found->text;
    out.step_ms = found->step;
  }
  return out;
}

}  // namespace lockstep::runtime
