#include "runtime/train/train_loop.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

#include <ATen/ATen.h>

#include "base/clock.h"
#include "base/text.h"
#include "runtime/derive/torch/meta_tensors.h"
#include "runtime/device/counted_memory.h"
#include "runtime/device/operation_cost.h"
#include "runtime/groups/collectives.h"
#include "runtime/record/c10d/host_read.h"
#include "runtime/train/evaluation.h"
#include "runtime/train/generation.h"
#include "runtime/train/optimization.h"

namespace lockstep::runtime {
namespace {

// A run prints about this many progress lines, however many steps it has.
constexpr int kProgressLines = 20;

// For what training cannot continue without: the data set, a file of weights.
template <class T>
T value_or_throw(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().str());
  return std::move(*result);
}

void load_tower(torch::nn::Module& module, const std::string& file, const WeightNames& names) {
  if (file.empty()) return;
  value_or_throw(load_weights(module, value_or_throw(SafetensorsFile::open(file)), names));
}

void log_progress(int rank, const StepMetrics& metrics, int steps) {
  const std::int64_t every = std::max(1, steps / kProgressLines);
  const std::int64_t done = metrics.step + 1;
  if (rank != 0 || (done % every != 0 && done != steps)) return;
  std::fprintf(stderr, "rank %d: step %lld of %d: loss %.4f, learning rate %.3g\n", rank,
               static_cast<long long>(done), steps, metrics.loss, metrics.learning_rate);
}

// The mean that a reduction is meant to compute, as its tag declares it in the trace. `verify`
// compares gradients across ranks against it; without watched values nothing reads it.
std::string average_tag(const Scenario& scenario) {
  if (scenario.watch.every == 0) return {};
  const bool world = scenario.remedy.average == Scenario::Remedy::Average::world;
  return world ? " average=world" : " average=contributors";
}

// Like the optimizer's zero_grad, which rejects gradients that are views into DDP's buckets.
void drop_gradients(const NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors) tensor.mutable_grad().reset();
}

// On the meta device there are no values to watch.
Scenario::Watch watched(const Scenario& scenario, const Device& device) {
  return device.torch_device().is_meta() ? Scenario::Watch() : scenario.watch;
}

// Null where no values are watched, so that the device compiles no fingerprint kernel for nothing.
std::unique_ptr<DeviceFingerprints> fingerprints_of(const Device& device,
                                                    const Scenario::Watch& watch) {
  if (watch.every == 0) return nullptr;
  return device.make_fingerprints(static_cast<std::uint32_t>(watch.sketch));
}

std::vector<at::Tensor> clones(const torch::nn::Module& module) {
  std::vector<at::Tensor> out;
  for (const auto& [name, buffer] : named_buffers(module)) out.push_back(buffer.detach().clone());
  return out;
}

void copy_back(const std::vector<at::Tensor>& values, const torch::nn::Module& module) {
  const at::NoGradGuard no_grad;
  auto value = values.begin();
  for (const auto& [name, buffer] : named_buffers(module)) buffer.copy_(*value++);
}

double milliseconds_since(trace::Nanos began) {
  return static_cast<double>(monotonic_nanos() - began) * 1e-6;
}

}  // namespace

TrainLoop::TrainLoop(const Scenario& scenario, ProcessGroups& groups, Recorder& recorder,
                     WorkerResult& result, StepLog* log, const Scenario* data_of)
    : scenario_(scenario),
      groups_(groups),
      recorder_(recorder),
      result_(result),
      log_(log),
      watch_(watched(scenario, groups.device()), recorder,
             fingerprints_of(groups.device(), scenario.watch)) {
  // Data. On the meta device only the shapes of the batches exist.
  const bool on_meta = groups_.device().torch_device().is_meta();
  if (on_meta) {
    shapes_.emplace(value_or_throw(ShapeBatches::open(scenario, groups.who().rank)));
  } else {
    open_data(data_of);
  }
  // The model. Every rank draws the same initial weights, before the strategy makes them rank 0's.
  at::manual_seed(scenario_.train.seed);
  {
    std::optional<MakeOnMeta> scope;
    if (on_meta) scope.emplace();
    model_ = ContrastiveModel(scenario_.model, on_meta ? shapes_->input() : data_->input());
  }
  if (!on_meta) {
    load_tower(*model_->image_tower().module, scenario_.model.weights.image,
               model_->image_tower().names);
    load_tower(*model_->text_tower().module, scenario_.model.weights.text,
               model_->text_tower().names);
    model_->to(groups_.device().torch_device());
  }
  freeze(*model_, scenario_.model.freeze);
  mark_memory(named_parameters(*model_), trace::MemoryCategory::parameters);
  mark_memory(named_buffers(*model_), trace::MemoryCategory::parameters);
  using Negatives = Scenario::Model::Negatives;
  if (scenario_.model.negatives != Negatives::local) {
    gather_.emplace(groups_.world(), recorder_, scenario_.fault != Fault::detached_negatives);
  }
  // Strategy, remedy and optimizer, in this order: the strategy decides which tensors are optimised
  // (shards under FSDP), and the other two work on those.
  strategy_ = make_strategy(
      scenario_.strategy, {model_, groups_, recorder_,
                           scenario_.watch.every > 0 ? &watch_ : nullptr, average_tag(scenario_),
                           scenario_.ranks_with_images(groups_.who().world_size), scenario_.fault});
  if (scenario_.strategy.exchange_lengths) {
    lengths_.emplace(scenario_.strategy.stages, groups_, recorder_,
                     scenario_.fault == Fault::lengths_sent_first);
  }
  optimised_ = strategy_->optimised(model_);
  mark_memory(optimised_, trace::MemoryCategory::parameters);
  remedy_ =
      make_remedy(scenario_.remedy, {model_, groups_, recorder_, gather_ ? &*gather_ : nullptr,
                                     optimised_, scenario_.fault, scenario_.tower_runs()});
  optimizer_ = make_optimizer(scenario_.train, optimised_);
  scaler_.emplace(scenario_.train, groups_.world(), recorder_, groups_.device().torch_device());
  if (scenario_.data.balance == Scenario::Data::Balance::cost) {
    balancer_.emplace(model_, groups_, recorder_);
  }
  if (const std::string& folder = scenario_.train.checkpoint.folder; !folder.empty()) {
    checkpoints_.emplace(folder, groups_.who(), data_ ? data_->digest() : 0,
                         groups_.alone() ? Checkpoints::Files::none : Checkpoints::Files::kept);
  }
}

void TrainLoop::open_data(const Scenario* data_of) {
  const Scenario& whose = data_of != nullptr ? *data_of : scenario_;
  const auto [rank, world_size] = data_of != nullptr ? RankOf{0, data_of->ranks} : groups_.who();
  data_ = value_or_throw(BatchSource::open(whose, rank, world_size));
  // `data_of`: this process trains on the batches of a whole job (see the header). The ranks of a
  // replica read the same batch, so one of them is enough: with 2 stages and 8 ranks, ranks 0, 2,
  // 4, 6. With `broadcast` all ranks get rank 0's batch, and there are no others to read.
  const int whole = data_of == nullptr || data_of->data.broadcast ? 0 : data_of->ranks;
  for (int r = whole == 0 ? 0 : data_of->ranks_of_replica(); r < whole;
       r += data_of->ranks_of_replica()) {
    further_data_.push_back(value_or_throw(BatchSource::open(*data_of, r, whole)));
  }
  // A rank that sees other files would sample other items under the same indices; stop before
  // training rather than compare wrong gradients.
  const std::string digest = hex(data_->digest());
  groups_.require_same("the digest of the data set's index map", digest);
  if (groups_.who().rank == 0) {
    std::fprintf(stderr, "rank 0: %lld items to train on, index map %s\n",
                 static_cast<long long>(data_->items()), digest.c_str());
  }
}

void TrainLoop::run() {
  strategy_->start();
  const std::int64_t first = resume();
  const std::int64_t recording_before = recorder_.nanos();
  // FLOPs are counted only for a rank that runs alone; counting slows the others down for nothing.
  std::optional<FlopCount> flops;
  if (groups_.alone() && groups_.who().rank == 0) flops.emplace();
  for (std::int64_t step = first; step < scenario_.train.steps; ++step) {
    const trace::Nanos began = monotonic_nanos();
    const trace::Nanos waited_before = recorder_.waited_nanos();
    recorder_.context().step = static_cast<std::int32_t>(step);
    const double flops_before = flops ? flops->so_far() : 0;
    StepMetrics metrics = one_step(step);
    if (flops) result_.step_flops.push_back(flops->so_far() - flops_before);
    result_.recording_ns = recorder_.nanos() - recording_before;
    result_.recording_events = recorder_.events();
    result_.watch_ns = watch_.nanos();
    result_.device_memory = groups_.device().memory();
    metrics.ms = milliseconds_since(began);
    metrics.wait_ms = static_cast<double>(recorder_.waited_nanos() - waited_before) * 1e-6;
    result_.step_ms.push_back(metrics.ms);
    if (log_ != nullptr) log_->write(metrics);
    generate(step);
    const int every = scenario_.train.checkpoint.every;
    if (every == 0 || (step + 1) % every != 0) continue;
    // Checkpoints count finished steps: after step 9 the folder is step_000010.
    save(step + 1);
    recorder_.saved_checkpoint();
  }
  if (!scenario_.train.evaluate) return;
  // Collective, so all ranks take part although only rank 0 evaluates.
  strategy_->gather_everything();
  if (groups_.who().rank == 0 && data_) evaluate();
  recorder_.evaluated();
}

double TrainLoop::state_bytes() const {
  const bool adamw = scenario_.train.optimizer == Scenario::Train::Optimizer::adamw;
  const double copies = adamw ? 4 : 2;  // parameter and gradient; adamw adds two moments
  double out = 0;
  for (const auto& [name, parameter] : optimised_) {
    out += copies * static_cast<double>(parameter.numel()) *
           static_cast<double>(parameter.element_size());
  }
  return out;
}

TrainingState TrainLoop::state() {
  return {optimised_, named_buffers(*model_), *optimizer_, *scaler_};
}

// Called before save() removes the first of them.
void TrainLoop::warn_of_earlier_checkpoints() const {
  if (scenario_.train.checkpoint.every == 0 || groups_.who().rank != 0) return;
  const auto earlier = checkpoints_->latest();
  if (!earlier) return;
  std::fprintf(
      stderr,
      "rank 0: this job starts from step 0 and will replace the checkpoint of %lld steps in %s "
      "(\"resume: true\" continues from it)\n",
      static_cast<long long>(*earlier), printable(scenario_.train.checkpoint.folder).c_str());
}

std::int64_t TrainLoop::resume() {
  if (!scenario_.train.checkpoint.resume) {
    warn_of_earlier_checkpoints();
    return 0;
  }
  // On a shared file system ranks may see the newest folder at different moments. The minimum over
  // the ranks is a checkpoint that all of them see complete.
  const at::Tensor steps = at::full({1}, checkpoints_->latest().value_or(0), at::kLong);
  {
    const NoteScope scope(recorder_, recorder_.note({"steps"}, "checkpoint.resume"));
    all_reduce(*groups_.world(), steps, Reduce::min);
  }
  const auto first = steps.item<std::int64_t>();
  if (first == 0) {
    if (groups_.who().rank == 0) {
      std::fprintf(stderr, "rank 0: no checkpoint of all ranks in %s: beginning with step 0\n",
                   printable(scenario_.train.checkpoint.folder).c_str());
    }
    return 0;
  }
  TrainingState loaded = state();
  if (const Status ok = checkpoints_->load(loaded, *strategy_, first); !ok) {
    throw std::runtime_error(ok.error().str());
  }
  if (groups_.who().rank == 0) {
    std::fprintf(stderr, "rank 0: going on from step %lld\n", static_cast<long long>(first));
  }
  return first;
}

void TrainLoop::save(std::int64_t steps) {
  const Status saved = scenario_.train.checkpoint.gathered
                           ? checkpoints_->save_gathered(state(), *strategy_, steps)
                           : checkpoints_->save(state(), steps);
  if (!saved) {
    throw std::runtime_error(saved.error().str());
  }
  if (scenario_.train.checkpoint.barrier) wait_after_checkpoint();
}

void TrainLoop::wait_after_checkpoint() {
  const NoteScope scope(recorder_, recorder_.note({}, "checkpoint.barrier"));
  barrier(*groups_.world());
}

void TrainLoop::clear_gradients() { drop_gradients(optimised_); }

StepMetrics TrainLoop::one_step(std::int64_t step) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.learning_rate = learning_rate(scenario_.train, step);
  metrics.loss_scale = scaler_->current();
  set_learning_rate(*optimizer_, metrics.learning_rate);
  // Data: read (or broadcast) the micro-batches, then let the remedy change them.
  const double waited_ms = result_.data_wait_ms;
  std::vector<Batch> batches = micro_batches(step);
  prompt_ = batches.front().tokens.slice(1, 0, 1);
  metrics.data_ms = result_.data_wait_ms - waited_ms;
  remedy_->before_step(batches);
  // Balancing needs this rank's computing time. Where the device queues calls, the host's clock
  // does not show it, and the device's time of a step is only known one step later.
  const bool by_device = balancer_ && groups_.device().queues();
  if (balancer_) {
    if (by_device) balancer_->after_step(groups_.device_time().take());  // of the step before
    balancer_->before_step(batches, data_->balanced());
    metrics.balanced = data_->balanced();
    metrics.idle_share_before = balancer_->last_idle_share();
  }
  if (by_device) groups_.device_time().begin();
  const trace::Nanos computing_since = monotonic_nanos();
  const trace::Nanos waited_before = recorder_.waited_nanos();
  metrics.samples = record_contents(step, batches);

  // The step itself. Gradients that are still there after clear_gradients() are leftovers, a defect
  // that `watch_` records.
  watch_.begin_step(step, batches.size());
  clear_gradients();
  watch_.leftovers(optimised_);
  if (lengths_) lengths_->exchange(batches);
  metrics.loss = accumulate(step, batches);
  update();
  if (balancer_) {
    const trace::Nanos waited = recorder_.waited_nanos() - waited_before;
    if (by_device) {
      groups_.device_time().end();
    } else {
      balancer_->after_step(monotonic_nanos() - computing_since - waited);
    }
    result_.balance = balancer_->report();
  }

  result_.losses.push_back(metrics.loss);
  result_.samples += metrics.samples;
  recorder_.step(step, metrics.loss, metrics.samples);
  log_progress(groups_.who().rank, metrics, scenario_.train.steps);
  return metrics;
}

std::int64_t TrainLoop::record_contents(std::int64_t step, const std::vector<Batch>& batches) {
  std::vector<std::int64_t> indices;
  std::set<std::string> held;
  for (const Batch& batch : batches) {
    for (const at::Tensor* part : {&batch.tokens, &batch.images, &batch.image_rows})
      mark_memory(*part, trace::MemoryCategory::inputs);
    indices.insert(indices.end(), batch.indices.begin(), batch.indices.end());
    for (const std::string& modality : batch.modalities()) held.insert(modality);
  }
  if (!indices.empty()) recorder_.data(step, indices);
  // Micro-batches have marks of their own, each before its calls (accumulate()), except where a
  // strategy orders them.
  const bool pipeline = scenario_.strategy.kind == Scenario::Strategy::Kind::pipeline;
  if (batches.size() == 1 || pipeline) recorder_.modality(step, {held.begin(), held.end()});
  return static_cast<std::int64_t>(indices.size());
}

std::vector<Batch> TrainLoop::micro_batches(std::int64_t step) {
  if (shapes_) return shapes_->step(step);
  // Costs take effect with the next plan of the data source, not necessarily in this step.
  if (balancer_ && balancer_->costs()) data_->use_costs(*balancer_->costs());
  std::vector<Batch> batches = data_->step(step);
  // A process that stands for a whole job (`data_of`) appends the other ranks' micro-batches.
  own_batches_ = batches.size();
  for (const auto& source : further_data_) {
    for (Batch& batch : source->step(step)) batches.push_back(std::move(batch));
  }
  result_.skipped = data_->skipped();
  result_.data_wait_ms = static_cast<double>(data_->wait_ns()) * 1e-6;
  if (scenario_.data.broadcast && groups_.who().world_size > 1) {
    for (Batch& batch : batches) broadcast_batch(*groups_.world(), recorder_, batch);
  }
  for (Batch& batch : batches) {
    for (at::Tensor* part : {&batch.tokens, &batch.images, &batch.image_rows}) {
      *part = groups_.device().bring(*part);
    }
  }
  return batches;
}

void TrainLoop::generate(std::int64_t step) {
  if (!scenario_.generates_after(step)) return;
  TokenLimits limits{scenario_.generated_tokens(groups_.who().rank, step), 0};
  for (int rank = 0; rank < groups_.who().world_size; ++rank) {
    limits.most = std::max(limits.most, scenario_.generated_tokens(rank, step));
  }
  generate_texts(model_, *strategy_, groups_, recorder_, prompt_, limits,
                 scenario_.train.generate.synced);
}

double TrainLoop::accumulate(std::int64_t step, const std::vector<Batch>& batches) {
  // A pipeline orders forwards and backwards itself.
  if (const auto own = strategy_->run_step(batches)) {
    mark_gradients(optimised_);
    result_.idle_ns = result_.idle_ns.value_or(0) + own->idle;
    return own->loss;
  }
  double sum = 0;
  std::vector<at::Tensor> kept_buffers;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    // Only the last backward of the step communicates (DDP's no_sync for the others).
    const Pass pass = i + 1 == batches.size() ? Pass::last : Pass::accumulate;
    if (batches.size() > 1) recorder_.modality(step, batches[i].modalities());
    strategy_->before_forward(pass);
    at::Tensor loss;
    {
      // The memory scope encloses autocast, because autocast keeps its casts until it ends.
      const MemoryScope forward(MemoryPhase::forward);
      const Autocast autocast(scenario_.train.precision, groups_.device().torch_device().type());
      loss = remedy_->loss(batches[i]);
    }
    {
      const HostRead reading(recorder_, loss);
      sum += loss.item<double>();
    }
    // Divided by the number of micro-batches, so that the gradients add up to their mean.
    const auto parts = static_cast<double>(batches.size());
    strategy_->backward(scaler_->scale(parts == 1 ? loss : loss / parts), pass);
    mark_gradients(optimised_);
    // Before the first batch of another rank: BatchNorm's statistics as rank 0 has them.
    if (i + 1 == own_batches_ && i + 1 < batches.size()) kept_buffers = clones(*model_);
  }
  // A process that stands for all ranks ends the step with the buffers that rank 0 would have.
  if (!kept_buffers.empty()) copy_back(kept_buffers, *model_);
  return sum / static_cast<double>(batches.size());
}

void TrainLoop::synchronise() {
  strategy_->synchronise();
  mark_gradients(optimised_);
  remedy_->after_sync();
  for (const auto& [name, parameter] : optimised_) {
    if (parameter.grad().defined()) {
      // Without a gradient there is nothing to compare; that it is absent shows elsewhere.
      watch_.synced_gradient(name, parameter.grad(), part_of(name));
    }
  }
}

std::function<double(double)> TrainLoop::norm_over_shards() {
  return [this](double own) { return strategy_->norm_squared(own); };
}

TrainLoop::ClipFactors TrainLoop::clip(const std::function<double(double)>& whole) {
  const Scenario::Train::Clip& limits = scenario_.train.clip;
  return limits.any() ? clip_gradients(limits, optimised_, recorder_, whole) : ClipFactors();
}

void TrainLoop::step_optimizer(const ClipFactors& factors) {
  for (const auto& [name, factor] : factors) watch_.scalar(name, factor);
  // On the meta device there are no values to update, and the optimizer issues no calls. It still
  // runs where somebody counts its cost, or where a checkpoint gathers the state that it creates.
  if (!shapes_ || recorder_.has_listener() || checkpoints_) {
    const MemoryScope optimizer(MemoryPhase::optimizer);
    optimizer_->step();
  }
  watch_update(true);
}

bool TrainLoop::overflowed(LossScaler::Overflow of) {
  // All ranks must agree. A rank that is derived alone trains on other values than in the job (what
  // it gathers repeats its own shard). So each does as rank 0 did (instant_backend.h), and only its
  // planned outliers count, which the other ranks' derivations know. Stages that run together do
  // not see what rank 0 did.
  const int rank = groups_.who().rank;
  const bool follows = rank != 0 || scenario_.strategy.kind == Scenario::Strategy::Kind::pipeline;
  const bool planned = scenario_.outlier_factor(rank, recorder_.context().step) != 1;
  if (of == LossScaler::Overflow::on_any_rank && groups_.alone() && follows && !planned)
    of = LossScaler::Overflow::on_another_rank;
  return scaler_->unscale(optimised_, of);
}

void TrainLoop::update() {
  synchronise();
  if (overflowed()) return leave_step_out();
  step_optimizer(clip(norm_over_shards()));
}

TensorPart TrainLoop::part_of(const std::string& name) {
  // A fingerprint of a shard only compares with those of shards that begin at the same element.
  const std::optional<std::uint64_t> begin = strategy_->shard_begin(name);
  return {begin.has_value(), begin.value_or(0)};
}

void TrainLoop::watch_update(bool stepped) {
  if (!watch_.on()) return;
  watch_.scalar("lr", optimizer_->param_groups().front().options().get_lr());
  watch_.scalar("loss_scale", scaler_->current());
  watch_.scalar("stepped", stepped ? 1 : 0);
  for (const auto& [name, parameter] : optimised_) {
    watch_.parameter(name, parameter, part_of(name));
  }
  watch_.optimizer(*optimizer_, optimised_,
                   !optimised_.empty() && part_of(optimised_.front().first).sharded);
  watch_.buffers(named_buffers(*model_));
  watch_.end_step();
}

void TrainLoop::evaluate() {
  result_.retrieval = evaluate_retrieval(model_, *data_, scenario_.data.held_out);
  const Retrieval& found = *result_.retrieval;
  std::fprintf(
      stderr,
      "rank 0: caption retrieval: recall@1 %.3f, @5 %.3f, @10 %.3f, chance %.3f, %d items\n",
      found.recall_at_1, found.recall_at_5, found.recall_at_10, found.chance, found.items);
}

}  // namespace lockstep::runtime
