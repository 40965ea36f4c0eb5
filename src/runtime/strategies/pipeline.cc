#include "runtime/strategies/pipeline.h"

#include <algorithm>
#include <array>
#include <stdexcept>

#include <ATen/ATen.h>

#include "base/check.h"
#include "base/text.h"
#include "runtime/collectives.h"

namespace lockstep {
namespace {

using Kind = PipelineOp::Kind;

// Messages of a micro-batch; also what is added to its tag.
constexpr int kParts = 4;

PipelineStage stage_of(int rank) {
  return rank % kPipelineStages == 0 ? PipelineStage::image : PipelineStage::text;
}

PipelineStage stage_of(std::string_view parameter) {
  return parameter.starts_with("image.") ? PipelineStage::image : PipelineStage::text;
}

// The ranks of a replica, or of a stage.
std::vector<std::int32_t> every(int step, int first, int end) {
  std::vector<std::int32_t> ranks;
  for (int rank = first; rank < end; rank += step) ranks.push_back(rank);
  return ranks;
}

std::string images(std::int64_t count) {
  return plural(static_cast<std::uint64_t>(count), "image");
}

[[noreturn]] void refuse(int m, std::int64_t theirs, std::int64_t own) {
  throw std::runtime_error("micro-batch " + std::to_string(m) + ": the other stage has " +
                           images(std::max<std::int64_t>(theirs, 0)) + ", this one " + images(own) +
                           ": the stages of a replica must read the same batch");
}

}  // namespace

enum class Pipeline::Part : int { shape, features, answer, gradient };

Pipeline::Pipeline(const Scenario::Strategy& options, StrategyParts parts)
    : parts_(std::move(parts)), options_(options), stage_(stage_of(parts_.groups.who().rank)) {
  const RankOf who = parts_.groups.who();
  LOCKSTEP_CHECK(who.world_size % kPipelineStages == 0, "a replica without all of its stages");
  const int own = who.rank % kPipelineStages;
  const int first = who.rank - own;
  other_ = 1 - own;
  replica_ = parts_.groups.make("replica" + std::to_string(first / kPipelineStages),
                                "the stages of one copy of the model",
                                every(1, first, first + kPipelineStages));
  if (who.world_size > kPipelineStages) {
    const bool image = stage_ == PipelineStage::image;
    peers_ = parts_.groups.make(image ? "stage_image" : "stage_text",
                                "one stage of all copies of the model",
                                every(kPipelineStages, own, who.world_size));
  }
  for (auto& [name, parameter] : named_parameters(*parts_.model)) {
    if (stage_of(name) != stage_) parameter.set_requires_grad(false);
    state_.emplace_back(name, parameter);
  }
  for (auto& buffer : named_buffers(*parts_.model)) state_.push_back(std::move(buffer));
}

void Pipeline::start() {
  if (!peers_) return;
  const at::NoGradGuard no_grad;
  for (auto& [name, tensor] : state_) {
    if (stage_of(name) != stage_) continue;
    const NoteScope scope(parts_.recorder, parts_.recorder.note({name}, "init"));
    broadcast(*peers_, tensor);
  }
}

std::optional<Strategy::OwnStep> Pipeline::run_step(const std::vector<Batch>& batches) {
  step_ = {};
  const auto count = static_cast<int>(batches.size());
  for (const PipelineOp& op :
       pipeline_schedule(stage_, count, options_.schedule, options_.crossed)) {
    const int m = op.micro_batch;
    const Batch& batch = batches[static_cast<std::size_t>(m)];
    switch (op.kind) {
      case Kind::forward:
        forward(m, batch, batches.size());
        break;
      case Kind::backward:
        backward(m);
        break;
      case Kind::receive:
        expect(m);
        break;
      case Kind::send:
        send_message(m);
        break;
      case Kind::settle:
        settle(m);
        break;
    }
  }
  LOCKSTEP_CHECK(flights_.empty() && outgoing_.empty(), "a step that left something under way");
  step_.loss /= count;
  return step_;
}

void Pipeline::forward(int m, const Batch& batch, std::size_t micro_batches) {
  Flight flight;
  if (is_image()) {
    if (batch.has_image()) flight.features = parts_.model->image_tower().encode(batch.images);
    flights_.emplace(m, std::move(flight));
    return;
  }
  const auto features = [&] { return flight.features = receive_features(m, batch); };
  const at::Tensor loss = parts_.model->losses_with(batch, features).total;
  if (!batch.has_image()) receive_features(m, batch);  // that there are none
  flight.value = loss.item<double>();
  flight.loss = loss / static_cast<double>(micro_batches);
  step_.loss += flight.value;
  flights_.emplace(m, std::move(flight));
}

void Pipeline::backward(int m) {
  Flight& flight = flights_.at(m);
  if (!is_image()) {
    if (flight.loss.requires_grad()) flight.loss.backward();
    flight.loss.reset();
    return;  // the features' gradient is still to be sent
  }
  const at::Tensor gradient = receive_gradient(m, flight);
  if (flight.features.defined() && flight.features.requires_grad()) {
    flight.features.backward(gradient);
  }
  flights_.erase(m);
}

void Pipeline::expect(int m) {
  Incoming in;
  in.head = is_image() ? at::empty({2}, at::kDouble) : at::empty({2}, at::kLong);
  in.work = begin_receive(m, is_image() ? Part::answer : Part::shape, in.head);
  incoming_.emplace(m, std::move(in));
}

at::Tensor Pipeline::receive_features(int m, const Batch& batch) {
  const at::Tensor head = head_of(m);
  const auto rows = head[0].item<std::int64_t>();
  const std::int64_t own = batch.has_image() ? batch.images.size(0) : 0;
  if (rows != own) refuse(m, rows, own);
  if (rows == 0) return {};
  const std::int64_t width = parts_.model->image_tower().width;
  LOCKSTEP_CHECK(head[1].item<std::int64_t>() == width, "both stages make the same model");
  return receive_body(m, Part::features, {rows, width}).requires_grad_();
}

at::Tensor Pipeline::receive_gradient(int m, const Flight& flight) {
  const at::Tensor head = head_of(m);
  const auto rows = static_cast<std::int64_t>(head[0].item<double>());
  step_.loss += head[1].item<double>();
  const std::int64_t own = flight.features.defined() ? flight.features.size(0) : 0;
  if (rows != own) refuse(m, rows, own);
  return rows == 0 ? at::Tensor() : receive_body(m, Part::gradient, flight.features.sizes());
}

void Pipeline::send_message(int m) {
  const Flight& flight = flights_.at(m);
  const bool has_image = flight.features.defined();
  const std::int64_t rows = has_image ? flight.features.size(0) : 0;
  if (is_image()) {
    const std::int64_t width = has_image ? flight.features.size(1) : 0;
    send(m, Part::shape, at::tensor({rows, width}, at::kLong));
    if (has_image) send(m, Part::features, flight.features.detach().contiguous());
    return;
  }
  send(m, Part::answer, at::tensor({static_cast<double>(rows), flight.value}, at::kDouble));
  if (has_image) send(m, Part::gradient, flight.features.grad().contiguous());
  flights_.erase(m);
}

void Pipeline::settle(int m) {
  for (const Outgoing& message : outgoing_.at(m)) wait(*message.work);
  outgoing_.erase(m);
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
    present.push_back(gradient.defined() ? 1.0F : 0.0F);
    parts.push_back(gradient.defined() ? gradient.flatten() : at::zeros({parameter.numel()}));
  }
  parts.push_back(at::tensor(present));
  at::Tensor flat = at::cat(parts);
  {
    const NoteScope scope(parts_.recorder, parts_.recorder.note(names, "pipeline.gradients"));
    all_reduce(*peers_, flat);
  }
  flat.div_(peers_->getSize());
  const at::Tensor anyone = flat.slice(0, flat.size(0) - static_cast<std::int64_t>(names.size()));
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
  const at::Tensor sum = at::full({1}, own, at::kDouble);
  const NoteScope scope(parts_.recorder, parts_.recorder.note({"norm_squared"}, "pipeline.norm"));
  all_reduce(*replica_, sum);
  return sum.item<double>();
}

void Pipeline::gather_everything() {
  const at::NoGradGuard no_grad;
  for (auto& [name, tensor] : state_) {
    const NoteScope scope(parts_.recorder, parts_.recorder.note({name}, "pipeline.gather"));
    broadcast(*replica_, tensor, stage_of(name) == PipelineStage::image ? 0 : 1);
  }
}

// --- messages ------------------------------------------------------------------------------------

void Pipeline::send(int m, Part part, const at::Tensor& tensor, Where where) {
  const NoteScope scope(parts_.recorder, note(m, part), where);
  std::vector<at::Tensor> tensors = {tensor};
  const int tag = m * kParts + static_cast<int>(part);
  outgoing_[m].push_back({replica_->send(tensors, other_, tag), tensor});
}

c10::intrusive_ptr<c10d::Work> Pipeline::begin_receive(int m, Part part, const at::Tensor& into,
                                                       Where where) {
  const NoteScope scope(parts_.recorder, note(m, part), where);
  std::vector<at::Tensor> tensors = {into};
  return replica_->recv(tensors, other_, m * kParts + static_cast<int>(part));
}

at::Tensor Pipeline::head_of(int m) {
  const Incoming in = incoming_.at(m);
  wait(*in.work);
  incoming_.erase(m);
  return in.head;
}

at::Tensor Pipeline::receive_body(int m, Part part, at::IntArrayRef sizes, Where where) {
  const at::Tensor body = at::empty(sizes, at::kFloat);
  wait(*begin_receive(m, part, body, where));
  return body;
}

void Pipeline::wait(c10d::Work& work) {
  const Nanos began = monotonic_nanos();
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
                                                        {"gradient", "pipeline.gradient"}}};
  const Words& words = kWords[static_cast<std::size_t>(part)];
  std::string what = words.what;
  what += '.';
  what += std::to_string(m);
  return parts_.recorder.note({what}, words.tag);
}

}  // namespace lockstep
