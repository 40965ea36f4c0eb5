#include "runtime/train_loop.h"

#include <chrono>
#include <cstdio>

#include <ATen/ATen.h>
#include <torch/csrc/api/include/torch/optim.h>

#include "base/clock.h"
#include "runtime/data/batch.h"
#include "runtime/data/sampler.h"
#include "runtime/evaluate.h"
#include "runtime/models/contrastive.h"
#include "runtime/remedies/dummy_image.h"
#include "runtime/strategies/strategy.h"

namespace lockstep {
namespace {

constexpr int kHeldOutItems = 128;
constexpr int kProgressLines = 20;

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const Scenario::Train& options,
                                                        const ContrastiveModel& model) {
  std::vector<at::Tensor> trained;
  for (auto& [name, parameter] : trained_parameters(*model)) trained.push_back(parameter);
  switch (options.optimizer) {
    case Scenario::Train::Optimizer::sgd:
      return std::make_unique<torch::optim::SGD>(
          trained, torch::optim::SGDOptions(options.lr).weight_decay(options.weight_decay));
    case Scenario::Train::Optimizer::adamw:
      return std::make_unique<torch::optim::AdamW>(
          trained, torch::optim::AdamWOptions(options.lr).weight_decay(options.weight_decay));
  }
  LOCKSTEP_CHECK(false, "an optimizer without an implementation");
}

at::Tensor loss_of(ContrastiveModel& model, const Batch& batch, Scenario::Remedy remedy,
                   Recorder& recorder) {
  at::Tensor loss = model->losses(batch).total;
  if (batch.has_image() || remedy == Scenario::Remedy::none) return loss;
  const Nanos began = monotonic_nanos();
  const at::Tensor dummy = dummy_image_term(model);
  recorder.span("remedy.dummy_image", began);
  // Outside the graph: computed, and thrown away. That is the mistake.
  return remedy == Scenario::Remedy::dummy_image ? loss + dummy : loss;
}

void log_progress(int rank, std::int64_t step, int steps, double loss) {
  const std::int64_t every = std::max(1, steps / kProgressLines);
  if (rank != 0 || ((step + 1) % every != 0 && step + 1 != steps)) return;
  std::fprintf(stderr, "rank %d: step %lld of %d: loss %.4f\n", rank,
               static_cast<long long>(step + 1), steps, loss);
}

}  // namespace

void train(const Scenario& scenario, ProcessGroups& groups, Recorder& recorder,
           WorkerResult& result) {
  const RankOf who = groups.who();
  const ShapesDataset data(scenario.data.items, scenario.data.text_only, scenario.train.seed);
  Sampler sampler(data, scenario.data.sampler, scenario.train.batch_size, scenario.train.seed,
                  {who.rank, who.world_size});
  at::manual_seed(scenario.train.seed);
  ContrastiveModel model(scenario.model.embed_dim);
  freeze(*model, scenario.model.freeze);
  const auto strategy = make_strategy(scenario.strategy, {model, groups, recorder});
  const auto optimizer = make_optimizer(scenario.train, model);
  strategy->start();

  const std::int64_t recording_before = recorder.nanos();
  for (std::int64_t step = 0; step < scenario.train.steps; ++step) {
    const auto began = std::chrono::steady_clock::now();
    recorder.context().step = static_cast<std::int32_t>(step);
    const Batch batch = make_batch(data, sampler.batch(step), scenario.rule_for(who.rank, step));
    recorder.data(step, batch.indices);
    recorder.modality(step, batch.modalities());

    optimizer->zero_grad();
    strategy->before_forward();
    const at::Tensor loss = loss_of(model, batch, scenario.remedy, recorder);
    strategy->before_backward(loss);
    loss.backward();
    strategy->after_backward();
    optimizer->step();

    const auto samples = static_cast<std::int64_t>(batch.indices.size());
    result.losses.push_back(loss.item<double>());
    result.samples += samples;
    recorder.step(step, result.losses.back(), samples);
    result.recording_ns = recorder.nanos() - recording_before;
    result.recording_events = recorder.events();
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
    result.step_ms.push_back(took.count());
    log_progress(who.rank, step, scenario.train.steps, result.losses.back());
  }
  if (scenario.train.evaluate && who.rank == 0) {
    result.retrieval = evaluate_retrieval(model, data, kHeldOutItems);
    std::fprintf(stderr, "rank 0: caption retrieval: top-1 %.3f, chance %.3f, %d items\n",
                 result.retrieval->top1, result.retrieval->chance, result.retrieval->items);
  }
}

}  // namespace lockstep
