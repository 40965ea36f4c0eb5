// Pipeline: the model split over two or four ranks, which pass micro-batches to each other.
//
// A replica is as many consecutive ranks as there are stages (pipeline_schedule.h). With two
// stages, the first is the image stage (image.*), the second the text stage (everything else: text,
// projections, fusion, logit_scale). With four, the encoders are cut in half: image_front,
// image_back, text_front, and text_back with everything else. Each rank trains its stage's
// parameters; those of other stages are frozen there and never change. Replicas are data parallel.
//
//  group "replica<k>"       the ranks of a replica: messages to the next stage
//  group "replica<k>.back"  the same ranks: messages to the previous stage
//  group "stage_<name>"     one stage of all replicas: gradients, if there are several replicas
//
// Why two groups: on a device, the messages of two ranks in one group run one after the other.
// Under 1F1B one stage sends forward while the other sends back, and each send would block the
// receive that the other stage waits for. Within a group, a stage receives from another in the
// order in which that one sends, because NCCL has no tags.
//
// Messages of a micro-batch m between two stages, point-to-point, with tag 5 m + kind:
//
//  0  on    int64 [4]     the sizes of the result, padded with 0; 0 rows: no images
//  1  on    float         the result: features [rows, width], or the activation between two halves
//                         (image: [rows, channels, h, w], text: [rows, tokens, width])
//  2  back  float64 [2]   rows of the gradient, and the micro-batch's loss
//  3  back  float         the result's gradient; like 1, absent with 0 rows
//  4  on    int64         between the halves of a text encoder that is not causal: the tokens that
//                         the first half saw, some of them masked [rows, tokens]
//
// The host reads 0 and 2, so they stay on the host and use Gloo. The others are on the model's
// device.
//
// The loss of a step is the mean over its micro-batches. The contrastive loss compares the images
// of one micro-batch only. For order and memory see pipeline_schedule.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <source_location>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/strategies/pipeline_schedule.h"
#include "runtime/strategies/strategy.h"

namespace lockstep::runtime {

// The number of rows (items) of a tensor; 0 if it is undefined.
inline std::int64_t rows_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.size(0) : 0;
}

class Pipeline : public Strategy {
 public:
  // Freezes the parameters of the other stages. The number of ranks must be a multiple of the
  // number of stages (the scenario's check ensures it).
  Pipeline(const Scenario::Strategy& options, StrategyParts parts);

  // Broadcasts this stage's parameters and buffers from the first replica.
  void start() override;
  // Not used: run_step does everything.
  void before_forward(Pass) override {}
  void backward(const at::Tensor& loss, Pass) override { loss.backward(); }
  // Throws std::runtime_error if the stages hold different batches, and what c10d throws.
  std::optional<OwnStep> run_step(const std::vector<Batch>& batches) override;
  // The mean over the replicas, in one all-reduce. A replica none of whose micro-batches had images
  // contributes zeros; a gradient that no replica computed stays undefined.
  void synchronise() override;
  // Sums over the stages.
  double norm_squared(double own) override;
  // The stages of a replica broadcast their parameters and buffers to each other.
  void gather_everything() override;

 private:
  // What a stage keeps of a micro-batch between forward and backward.
  struct Flight {
    std::vector<at::Tensor> inputs;  // leaves that require a gradient; undefined: no images
    at::Tensor output;  // with its graph; undefined without images, and on the last stage
    at::Tensor seen;    // tokens to send with the output; undefined: none
    at::Tensor loss;    // on the last stage: its share of the mean, with its graph
    double value = 0;   // the micro-batch's own loss; other stages learn it from the answer
  };
  struct Outgoing {
    c10::intrusive_ptr<c10d::Work> work;
    at::Tensor tensor;  // must stay alive until the message has been taken
  };
  struct Incoming {
    c10::intrusive_ptr<c10d::Work> work;
    at::Tensor head;  // the first part of the other stage's message
  };
  enum class Part : int { shape, features, answer, gradient, seen };
  using Key = std::pair<int, int>;  // micro-batch, and the other stage

  int stage_of(std::string_view parameter);
  NamedTensors of_stage(int stage);
  void run(const PipelineOp& op, const std::vector<Batch>& batches);
  void forward(int m, const Batch& batch, std::size_t micro_batches);
  at::Tensor compute(int m, const Batch& batch, Flight& flight);
  at::Tensor compute_loss(int m, const Batch& batch, Flight& flight);
  void backward(int m);
  void expect(int m);
  void expect_answer(int m);
  void send_result(int m);
  void send_answer(int m);
  void settle(int m, int other);
  at::Tensor receive_result(int m, std::size_t input, std::int64_t own_rows, Flight& flight);
  at::Tensor receive_gradient(int m, Flight& flight);

  // The group that carries this part.
  c10d::ProcessGroup& carrier(Part part);
  // `where` is the location that the trace shows for the call.
  using Where = std::source_location;
  void send(int m, int to, Part part, const at::Tensor& tensor, Where where = Where::current());
  c10::intrusive_ptr<c10d::Work> begin_receive(int m, int from, Part part, const at::Tensor& into,
                                               Where where = Where::current());
  at::Tensor head_of(int m, int from);
  at::Tensor receive_body(int m, int from, Part part, at::IntArrayRef sizes, at::ScalarType type,
                          Where where = Where::current());
  void wait(c10d::Work& work);
  CallNote note(int m, Part part);
  bool is_last() const { return !stage().output.has_value(); }
  const PipelineStage& stage() const { return stages_[static_cast<std::size_t>(own_)]; }

  StrategyParts parts_;
  Scenario::Strategy options_;
  const std::vector<PipelineStage>& stages_;
  int own_;  // this rank's stage, which is also its group rank in the replica
  ProcessGroups::Ptr replica_, back_;
  ProcessGroups::Ptr peers_;  // this stage of all replicas; null if there is one replica
  NamedTensors state_;        // parameters and buffers of all stages

  // State of the current step, by micro-batch.
  std::map<int, Flight> flights_;
  std::map<Key, Incoming> incoming_;
  std::map<Key, std::vector<Outgoing>> outgoing_;
  OwnStep step_;
};

}  // namespace lockstep::runtime
