#include "runtime/strategies/pipeline.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include <ATen/ATen.h>

#include "base/check.h"
#include "base/text.h"
#include "runtime/device/counted_memory.h"
#include "runtime/groups/collectives.h"
#include "runtime/record/c10d/host_read.h"

namespace lockstep::runtime {
namespace {

using OpKind = PipelineOp::Kind;

// Indices of the stages of a replica of four. In a replica of two, the stages are 0 and 1.
constexpr int kImageFront = 0, kImageBack = 1, kTextFront = 2, kTextBack = 3;

// Kinds of messages per micro-batch (Part); the kind is added to the tag.
constexpr int kParts = 5;
// Dimensions of the largest result: images have [rows, channels, h, w].
constexpr std::int64_t kMaxSizes = 4;

std::string items(std::int64_t count) { return plural(std::max<std::int64_t>(count, 0), "item"); }

[[noreturn]] void refuse(int m, std::int64_t theirs, std::int64_t own) {
  throw std::runtime_error(c10::str("micro-batch ", m, ": the other stage has ", items(theirs),
                                    ", this one ", items(own),
                                    ": the stages of a replica must read the same batch"));
}

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
  const std::string replica = c10::str("replica", first / count);
  const std::vector<std::int32_t> ranks = every_nth_rank(1, first, count);
  // 8 ranks, 4 stages: rank 6 is in replica1 = {4, 5, 6, 7} and stage_text_front = {2, 6}.
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
  for (const PipelineOp& op : pipeline_schedule(stage(), count, options_.schedule,
                                                parts_.fault == Fault::crossed_stages)) {
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
  if (!batch.has_image()) features();  // receives the message that says "no images"
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
  // With inputs, send_answer() still needs their gradients.
  if (stage().inputs.empty()) flights_.erase(m);
}

void Pipeline::synchronise() {
  if (!peers_) return;
  const at::NoGradGuard no_grad;
  const NamedTensors trained = trained_parameters(*parts_.model);
  // One flat tensor: all gradients (zeros for absent ones), then one number per parameter that says
  // whether this replica has it. Every replica makes the same call whatever its batches held.
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
  // The reduced number of a parameter is 0 only if no replica has its gradient.
  at::Tensor present_anywhere =
      flat.slice(0, flat.size(0) - static_cast<std::int64_t>(names.size()));
  {
    const HostRead reading(parts_.recorder, present_anywhere);
    present_anywhere = present_anywhere.cpu();
  }
  std::int64_t from = 0;
  for (std::size_t i = 0; i < trained.size(); ++i) {
    at::Tensor parameter = trained[i].second;
    const at::Tensor mean = flat.slice(0, from, from + parameter.numel());
    from += parameter.numel();
    if (present_anywhere[static_cast<std::int64_t>(i)].item<float>() == 0) continue;
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

// Messages between stages.

void Pipeline::expect(int m) {
  for (const int input : stage().inputs) {
    Incoming in;
    in.head = at::empty({kMaxSizes}, at::kLong);
    in.work = begin_receive(m, input, Part::shape, in.head);
    incoming_.emplace(Key{m, input}, std::move(in));
  }
}

void Pipeline::expect_answer(int m) {
  Incoming in;
  in.head = at::empty({2}, at::kDouble);
  in.work = begin_receive(m, *stage().output, Part::answer, in.head);
  incoming_.emplace(Key{m, *stage().output}, std::move(in));
}

at::Tensor Pipeline::receive_result(int m, std::size_t input, std::int64_t own_rows,
                                    Flight& flight) {
  const int from = stage().inputs[input];
  const at::Tensor head = head_of(m, from);
  std::vector<std::int64_t> sizes(head.const_data_ptr<std::int64_t>(),
                                  head.const_data_ptr<std::int64_t>() + kMaxSizes);
  // Both stages read the batch; different numbers of rows mean different batches.
  if (sizes.front() != own_rows) refuse(m, sizes.front(), own_rows);
  if (own_rows == 0) return {};
  // Remove the padding: [8, 32, 0, 0] is [8, 32].
  while (sizes.back() == 0) sizes.pop_back();
  at::Tensor& result = flight.inputs[input];
  result = receive_body(m, from, Part::features, sizes, at::kFloat).requires_grad_();
  return result;
}

at::Tensor Pipeline::receive_gradient(int m, Flight& flight) {
  const int from = *stage().output;
  const at::Tensor head = head_of(m, from);
  const auto rows = static_cast<std::int64_t>(head[0].item<double>());
  flight.value = head[1].item<double>();
  step_.loss += flight.value;
  const std::int64_t own = rows_of(flight.output);
  if (rows != own) refuse(m, rows, own);
  if (rows == 0) return {};
  return receive_body(m, from, Part::gradient, flight.output.sizes(), at::kFloat);
}

void Pipeline::send_result(int m) {
  Flight& flight = flights_.at(m);
  const at::Tensor& result = flight.output;
  const int to = *stage().output;
  std::vector<std::int64_t> sizes(kMaxSizes, 0);
  if (result.defined()) std::copy(result.sizes().begin(), result.sizes().end(), sizes.begin());
  send(m, to, Part::shape, at::tensor(sizes, at::kLong));
  if (result.defined()) send(m, to, Part::features, result.detach().contiguous());
  if (flight.seen.defined()) send(m, to, Part::seen, std::exchange(flight.seen, {}));
}

void Pipeline::send_answer(int m) {
  const Flight& flight = flights_.at(m);
  for (std::size_t i = 0; i < flight.inputs.size(); ++i) {
    const at::Tensor& input = flight.inputs[i];
    const int to = stage().inputs[i];
    const auto rows = static_cast<double>(rows_of(input));
    send(m, to, Part::answer, at::tensor({rows, flight.value}, at::kDouble));
    if (!input.defined()) continue;
    const at::Tensor& gradient = input.grad();
    send(m, to, Part::gradient, gradient.defined() ? gradient.contiguous() : at::zeros_like(input));
  }
  flights_.erase(m);
}

void Pipeline::settle(int m, int other) {
  for (const Outgoing& message : outgoing_.at({m, other})) wait(*message.work);
  outgoing_.erase({m, other});
}

void Pipeline::send(int m, int to, Part part, const at::Tensor& tensor, Where where) {
  const NoteScope scope(parts_.recorder, note(m, part), where);
  std::vector<at::Tensor> tensors = {tensor};
  const int tag = m * kParts + static_cast<int>(part);
  outgoing_[{m, to}].push_back({carrier(part).send(tensors, to, tag), tensor});
}

c10d::ProcessGroup& Pipeline::carrier(Part part) {
  return part == Part::answer || part == Part::gradient ? *back_ : *replica_;
}

c10::intrusive_ptr<c10d::Work> Pipeline::begin_receive(int m, int from, Part part,
                                                       const at::Tensor& into, Where where) {
  const NoteScope scope(parts_.recorder, note(m, part), where);
  std::vector<at::Tensor> tensors = {into};
  return carrier(part).recv(tensors, from, m * kParts + static_cast<int>(part));
}

at::Tensor Pipeline::head_of(int m, int from) {
  const Incoming in = incoming_.at({m, from});
  wait(*in.work);
  incoming_.erase({m, from});
  const HostRead reading(parts_.recorder, in.head);
  return in.head.cpu();  // waits for the message on a device that queues calls
}

at::Tensor Pipeline::receive_body(int m, int from, Part part, at::IntArrayRef sizes,
                                  at::ScalarType type, Where where) {
  const at::Tensor body =
      at::empty(sizes, at::device(parts_.groups.device().torch_device()).dtype(type));
  wait(*begin_receive(m, from, part, body, where));
  return body;
}

void Pipeline::wait(c10d::Work& work) {
  const trace::Nanos began = monotonic_nanos();
  work.wait();
  step_.idle += monotonic_nanos() - began;
}

CallNote Pipeline::note(int m, Part part) {
  struct Words {
    const char *what, *tag;
  };
  static constexpr std::array<Words, kParts> kWords = {{{"shape", "pipeline.shape"},
                                                        {"features", "pipeline.features"},
                                                        {"loss", "pipeline.loss"},
                                                        {"gradient", "pipeline.gradient"},
                                                        {"tokens", "pipeline.seen"}}};
  const Words& words = kWords[static_cast<std::size_t>(part)];
  return parts_.recorder.note({c10::str(words.what, '.', m)}, words.tag);
}

}  // namespace lockstep::runtime
