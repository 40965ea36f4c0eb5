#include "runtime/strategies/pipeline.h"

#include <ATen/ATen.h>

#include "base/check.h"
#include "runtime/device/counted_memory.h"
#include "runtime/groups/collectives.h"
#include "runtime/record/c10d/host_read.h"

namespace lockstep {
namespace {

using OpKind = PipelineOp::Kind;

// Places of the stages in a replica of four; in one of two, the last is 1.
constexpr int kImageFront = 0, kImageBack = 1, kTextFront = 2, kTextBack = 3;

}  // namespace

Pipeline::Pipeline(const Scenario::Strategy& options, StrategyParts parts)
    : parts_(std::move(parts)),
      options_(options),
      stages_(pipeline_stages(options.stages)),
      own_(parts_.groups.who().rank % options.stages) {
  const RankOf who = parts_.groups.who();
  const int count = options.stages;
  LOCKSTEP_CHECK(who.world_size % count == 0, "a replica without all of its stages");
  const int first = who.rank - own_;
  const std::string replica = "replica" + std::to_string(first / count);
  const std::vector<std::int32_t> ranks = every_nth_rank(1, first, count);
  replica_ = parts_.groups.make(replica, "the stages of one copy of the model", ranks);
  back_ = parts_.groups.make(replica + ".back", "the same, for what goes back", ranks);
  if (who.world_size > count) {
    peers_ = parts_.groups.make("stage_" + stage().name, "one stage of all copies of the model",
                                every_nth_rank(count, own_, who.world_size / count));
  }
  for (auto& [name, parameter] : named_parameters(*parts_.model)) {
    if (stage_of(name) != own_) parameter.set_requires_grad(false);
    state_.emplace_back(name, parameter);
  }
  for (auto& buffer : named_buffers(*parts_.model)) state_.push_back(std::move(buffer));
}

int Pipeline::stage_of(std::string_view parameter) {
  constexpr std::string_view kImage = "image.";
  constexpr std::string_view kText = "text.";
  if (stages_.size() == 2) return parameter.starts_with(kImage) ? 0 : 1;
  if (parameter.starts_with(kImage)) {
    const bool front = parts_.model->image_tower().in_front(parameter.substr(kImage.size()));
    return front ? kImageFront : kImageBack;
  }
  const bool front = parameter.starts_with(kText) &&
                     parts_.model->text_tower().in_front(parameter.substr(kText.size()));
  return front ? kTextFront : kTextBack;
}

NamedTensors Pipeline::of_stage(int stage) {
  NamedTensors out;
  for (const auto& it : state_) {
    if (stage_of(it.first) == stage) out.push_back(it);
  }
  return out;
}

void Pipeline::start() {
  if (peers_) broadcast_all(*peers_, parts_.recorder, of_stage(own_), "init");
}

std::optional<Strategy::OwnStep> Pipeline::run_step(const std::vector<Batch>& batches) {
  step_ = {};
  const auto count = static_cast<int>(batches.size());
  for (const PipelineOp& op :
       pipeline_schedule(stage(), count, options_.schedule, options_.crossed)) {
    run(op, batches);
  }
  LOCKSTEP_CHECK(flights_.empty() && outgoing_.empty(), "a step that left something under way");
  step_.loss /= count;
  return step_;
}

void Pipeline::run(const PipelineOp& op, const std::vector<Batch>& batches) {
  const int m = op.micro_batch;
  switch (op.kind) {
    case OpKind::forward:
      return forward(m, batches[static_cast<std::size_t>(m)], batches.size());
    case OpKind::backward:
      return backward(m);
    case OpKind::receive:
      return expect(m);
    case OpKind::send:
      return send_result(m);
    case OpKind::settle:
      return settle(m, *stage().output);
    case OpKind::receive_answer:
      return expect_answer(m);
    case OpKind::answer:
      return send_answer(m);
    case OpKind::settle_answer:
      for (const int input : stage().inputs) settle(m, input);
      return;
  }
}

void Pipeline::forward(int m, const Batch& batch, std::size_t micro_batches) {
  const MemoryScope forward(MemoryPhase::forward);
  Flight& flight = flights_[m];
  flight.inputs.resize(stage().inputs.size());
  if (!is_last()) {
    flight.output = compute(m, batch, flight);
    return;
  }
  const at::Tensor loss = compute_loss(m, batch, flight);
  {
    const HostRead reading(parts_.recorder, loss);
    flight.value = loss.item<double>();
  }
  flight.loss = loss / static_cast<double>(micro_batches);
  step_.loss += flight.value;
}

at::Tensor Pipeline::compute(int m, const Batch& batch, Flight& flight) {
  ImageTower& image = parts_.model->image_tower();
  if (stages_.size() == 2) return batch.has_image() ? image.encode(batch.images) : at::Tensor();
  if (own_ == kImageFront) return batch.has_image() ? image.front(batch.images) : at::Tensor();
  if (own_ == kImageBack) {
    const at::Tensor inner = receive_result(m, 0, rows_of(batch.images), flight);
    return inner.defined() ? image.back(inner) : inner;
  }
  TextTower& text = parts_.model->text_tower();
  const at::Tensor seen = parts_.model->seen_by_text(batch.tokens);
  if (!text.causal) flight.seen = seen;
  return text.front(seen, parts_.model->text_mask(batch.tokens));
}

at::Tensor Pipeline::compute_loss(int m, const Batch& batch, Flight& flight) {
  ContrastiveModel& model = parts_.model;
  const auto features = [&] { return receive_result(m, 0, rows_of(batch.images), flight); };
  at::Tensor loss;
  if (stages_.size() == 2) {
    loss = model->losses_with(batch, features).total;
  } else {
    const at::Tensor inner = receive_result(m, 1, rows_of(batch.tokens), flight);
    const at::Tensor seen =
        model->text_tower().causal
            ? batch.tokens
            : receive_body(m, kTextFront, Part::seen, batch.tokens.sizes(), at::kLong);
    const at::Tensor hidden = model->text_tower().back(inner, model->text_mask(batch.tokens));
    loss = model->losses_of(batch, {seen, hidden}, features).total;
  }
  if (!batch.has_image()) features();  // that there are none
  return loss;
}

void Pipeline::backward(int m) {
  Flight& flight = flights_.at(m);
  if (is_last()) {
    if (flight.loss.requires_grad()) flight.loss.backward();
    flight.loss.reset();
  } else {
    const at::Tensor gradient = receive_gradient(m, flight);
    if (flight.output.defined() && flight.output.requires_grad()) flight.output.backward(gradient);
    flight.output.reset();
  }
  if (stage().inputs.empty()) flights_.erase(m);  // else the gradients are still to be sent
}

void Pipeline::synchronise() {
  if (!peers_) return;
  const at::NoGradGuard no_grad;
  const NamedTensors trained = trained_parameters(*parts_.model);
  std::vector<at::Tensor> parts;
  std::vector<float> present;  // whether there is a gradient, for each parameter
  std::vector<std::string> names;
  for (const auto& [name, parameter] : trained) {
    const at::Tensor& gradient = parameter.grad();
    names.push_back(name);
    if (parts_.watch != nullptr && gradient.defined()) {
      parts_.watch->local_gradient(name, gradient);
    }
    present.push_back(gradient.defined() ? 1.0F : 0.0F);
    parts.push_back(gradient.defined() ? gradient.flatten()
                                       : at::zeros({parameter.numel()}, parameter.options()));
  }
  parts.push_back(parts_.groups.device().bring(at::tensor(present)));
  at::Tensor flat;
  {
    const MemoryScope flat_memory(MemoryPhase::communication);
    flat = at::cat(parts);
  }
  {
    const NoteScope scope(parts_.recorder,
                          parts_.recorder.note(names, "pipeline.gradients" + parts_.average));
    all_reduce(*peers_, flat);
  }
  flat.div_(peers_->getSize());
  at::Tensor anyone = flat.slice(0, flat.size(0) - static_cast<std::int64_t>(names.size()));
  {
    const HostRead reading(parts_.recorder, anyone);
    anyone = anyone.cpu();
  }
  std::int64_t from = 0;
  for (std::size_t i = 0; i < trained.size(); ++i) {
    at::Tensor parameter = trained[i].second;
    const at::Tensor mean = flat.slice(0, from, from + parameter.numel());
    from += parameter.numel();
    if (anyone[static_cast<std::int64_t>(i)].item<float>() == 0) continue;
    parameter.mutable_grad() = mean.view_as(parameter).clone();
  }
}

double Pipeline::norm_squared(double own) {
  return sum_over(*replica_, parts_.recorder, own, "squared_norm", "pipeline.norm");
}

void Pipeline::gather_everything() {
  for (int stage = 0; stage < static_cast<int>(stages_.size()); ++stage) {
    broadcast_all(*replica_, parts_.recorder, of_stage(stage), "pipeline.gather", stage);
  }
}

}  // namespace lockstep
