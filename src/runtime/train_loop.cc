#include "runtime/train_loop.h"

#include <cstdio>

#include <ATen/ATen.h>

#include "base/clock.h"
#include "runtime/broadcast_batch.h"
#include "runtime/evaluate.h"
#include "runtime/optimization.h"

namespace lockstep {
namespace {

constexpr int kHeldOutItems = 128;
constexpr int kProgressLines = 20;

Sampler::Shard shard_of(const Scenario::Data& data, RankOf who) {
  if (!data.sharding) return {};  // every rank believes to be alone
  return {who.rank, who.world_size};
}

void log_progress(int rank, const StepMetrics& metrics, int steps) {
  const std::int64_t every = std::max(1, steps / kProgressLines);
  const std::int64_t done = metrics.step + 1;
  if (rank != 0 || (done % every != 0 && done != steps)) return;
  std::fprintf(stderr, "rank %d: step %lld of %d: loss %.4f, learning rate %.3g\n", rank,
               static_cast<long long>(done), steps, metrics.loss, metrics.learning_rate);
}

double milliseconds_since(Nanos began) {
  return static_cast<double>(monotonic_nanos() - began) * 1e-6;
}

}  // namespace

TrainLoop::TrainLoop(const Scenario& scenario, ProcessGroups& groups, Recorder& recorder,
                     WorkerResult& result, StepLog* log)
    : scenario_(scenario),
      groups_(groups),
      recorder_(recorder),
      result_(result),
      log_(log),
      data_(scenario.data.items, scenario.data.text_only, scenario.train.seed),
      sampler_(data_, scenario.data.sampler, scenario.train.batch_size, scenario.train.seed,
               shard_of(scenario.data, groups.who()), scenario.data.reshuffle) {
  at::manual_seed(scenario_.train.seed);
  model_ = ContrastiveModel(scenario_.model.embed_dim);
  freeze(*model_, scenario_.model.freeze);
  trained_ = trained_parameters(*model_);
  using Negatives = Scenario::Model::Negatives;
  if (scenario_.model.negatives != Negatives::local) {
    gather_.emplace(groups_.world(), recorder_, scenario_.model.negatives == Negatives::global);
  }
  strategy_ = make_strategy(scenario_.strategy, {model_, groups_, recorder_});
  remedy_ =
      make_remedy(scenario_.remedy, {model_, groups_, recorder_, gather_ ? &*gather_ : nullptr});
  optimizer_ = make_optimizer(scenario_.train, trained_);
  scaler_.emplace(scenario_.train, groups_.world(), recorder_);
}

void TrainLoop::run() {
  strategy_->start();
  const std::int64_t recording_before = recorder_.nanos();
  for (std::int64_t step = 0; step < scenario_.train.steps; ++step) {
    const Nanos began = monotonic_nanos();
    recorder_.context().step = static_cast<std::int32_t>(step);
    StepMetrics metrics = one_step(step);
    result_.recording_ns = recorder_.nanos() - recording_before;
    result_.recording_events = recorder_.events();
    metrics.ms = milliseconds_since(began);
    result_.step_ms.push_back(metrics.ms);
    if (log_ != nullptr) log_->write(metrics);
  }
  if (scenario_.train.evaluate && groups_.who().rank == 0) evaluate();
}

StepMetrics TrainLoop::one_step(std::int64_t step) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.learning_rate = learning_rate(scenario_.train, step);
  metrics.loss_scale = scaler_->current();
  set_learning_rate(*optimizer_, metrics.learning_rate);
  const Nanos began = monotonic_nanos();
  std::vector<Batch> batches = micro_batches(step);
  metrics.data_ms = milliseconds_since(began);
  remedy_->before_step(batches);
  Batch all;  // what the step saw
  for (const Batch& batch : batches) {
    all.indices.insert(all.indices.end(), batch.indices.begin(), batch.indices.end());
    if (batch.has_image()) all.images = batch.images;
  }
  recorder_.data(step, all.indices);
  recorder_.modality(step, all.modalities());

  optimizer_->zero_grad();
  metrics.loss = accumulate(batches);
  update();

  metrics.samples = static_cast<std::int64_t>(all.indices.size());
  result_.losses.push_back(metrics.loss);
  result_.samples += metrics.samples;
  recorder_.step(step, metrics.loss, metrics.samples);
  log_progress(groups_.who().rank, metrics, scenario_.train.steps);
  return metrics;
}

std::vector<Batch> TrainLoop::micro_batches(std::int64_t step) {
  const RankOf who = groups_.who();
  const Scenario::Data::Rule* rule = scenario_.rule_for(who.rank, step);
  const double outlier = scenario_.outlier_factor(who.rank, step);
  const int common = scenario_.train.accumulation.steps;
  std::vector<Batch> batches;
  for (int i = 0; i < scenario_.train.accumulation.of(who.rank); ++i) {
    batches.push_back(make_batch(data_, sampler_.batch(step * common + i), rule));
    Batch& batch = batches.back();
    if (batch.has_image() && outlier != 1) batch.images.mul_(outlier);
    if (scenario_.data.broadcast) broadcast_batch(*groups_.world(), recorder_, batch);
  }
  return batches;
}

double TrainLoop::accumulate(const std::vector<Batch>& batches) {
  double sum = 0;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const Pass pass = i + 1 == batches.size() ? Pass::last : Pass::accumulate;
    strategy_->before_forward(pass);
    at::Tensor loss;
    {
      const Autocast autocast(scenario_.train.precision);
      loss = remedy_->loss(batches[i]);
    }
    sum += loss.item<double>();
    const auto parts = static_cast<double>(batches.size());
    strategy_->backward(scaler_->scale(parts == 1 ? loss : loss / parts), pass);
  }
  return sum / static_cast<double>(batches.size());
}

void TrainLoop::update() {
  // A scaler that decides alone looks at this rank's own gradients, and leaves the whole update
  // out, the communication included: that is the mistake that it stands for.
  if (scaler_->decides_alone() && scaler_->unscale(trained_)) return;
  const Scenario::Train::Clip& clip = scenario_.train.clip;
  if (clip.any() && clip.before_sync) clip_gradients(clip, trained_);
  strategy_->synchronise();
  remedy_->after_sync();
  if (!scaler_->decides_alone() && scaler_->unscale(trained_)) return;
  if (clip.any() && !clip.before_sync) clip_gradients(clip, trained_);
  optimizer_->step();
}

void TrainLoop::evaluate() {
  result_.retrieval = evaluate_retrieval(model_, data_, kHeldOutItems);
  std::fprintf(stderr, "rank 0: caption retrieval: top-1 %.3f, chance %.3f, %d items\n",
               result_.retrieval->top1, result_.retrieval->chance, result_.retrieval->items);
}

}  // namespace lockstep
