// What a stage of the pipeline sends and receives.
#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include <ATen/ATen.h>

#include "base/text.h"
#include "runtime/record/c10d/host_read.h"
#include "runtime/strategies/pipeline.h"

namespace lockstep {
namespace {

// Kinds of messages of a micro-batch; also what is added to its tag.
constexpr int kParts = 5;
constexpr std::int64_t kMostSizes = 4;

std::string items(std::int64_t count) {
  return plural(static_cast<std::uint64_t>(std::max<std::int64_t>(count, 0)), "item");
}

[[noreturn]] void refuse(int m, std::int64_t theirs, std::int64_t own) {
  throw std::runtime_error("micro-batch " + std::to_string(m) + ": the other stage has " +
                           items(theirs) + ", this one " + items(own) +
                           ": the stages of a replica must read the same batch");
}

}  // namespace

void Pipeline::expect(int m) {
  for (const int input : stage().inputs) {
    Incoming in;
    in.head = at::empty({kMostSizes}, at::kLong);
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
                                  head.const_data_ptr<std::int64_t>() + kMostSizes);
  if (sizes.front() != own_rows) refuse(m, sizes.front(), own_rows);
  if (own_rows == 0) return {};
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
  std::vector<std::int64_t> sizes(kMostSizes, 0);
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
  return in.head.cpu();  // for the host, which waits for it where calls are queued
}

at::Tensor Pipeline::receive_body(int m, int from, Part part, at::IntArrayRef sizes,
                                  at::ScalarType type, Where where) {
  const at::Tensor body = at::empty(sizes, at::device(parts_.groups.device().place()).dtype(type));
  wait(*begin_receive(m, from, part, body, where));
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
                                                        {"gradient", "pipeline.gradient"},
                                                        {"tokens", "pipeline.seen"}}};
  const Words& words = kWords[static_cast<std::size_t>(part)];
  std::string what = words.what;
  what += '.';
  what += std::to_string(m);
  return parts_.recorder.note({what}, words.tag);
}

}  // namespace lockstep
