// Pipeline: the model split over two or four ranks, between which micro-batches pass.
//
// A replica is as many neighbouring ranks as there are stages (pipeline_schedule.h). Of two, the
// first is the image stage (image.*), the second the text stage (everything else: text,
// projections, fusion, logit_scale). Of four, the encoders are cut in half: image_front,
// image_back, text_front, and text_back with everything else. Each rank trains its stage's
// parameters; the others are frozen there and never change. Replicas are data parallel.
//
//   group "replica<k>"       the ranks of a replica: the messages on to the next stage
//   group "replica<k>.back"  the same ranks: the messages back
//   group "stage_<name>"     one stage of all replicas: gradients, where there are several
//
// There are two groups because on a device the messages of two ranks in one group run one after the
// other: under 1F1B one stage sends on while the other sends back, and each would be in front of
// the receive that the other waits for. Within a group, a stage receives from another in the order
// in which that one sends: NCCL has no tags.
//
// Messages of a micro-batch m from a stage to the next, and back, point to point, tag 5 m + kind:
//
//   0  on    int64 [4]     the sizes of the result, padded with 0; 0 rows: it has no images
//   1  on    float         the result: features [rows, width], or what lies between two halves
//                          (image: [rows, channels, h, w], text: [rows, tokens, width])
//   2  back  float64 [2]   rows of the gradient, and the micro-batch's loss
//   3  back  float         the result's gradient; as 1 absent with 0 rows
//   4  on    int64         between the halves of a text encoder that is not causal: the tokens that
//                          the first half saw, some of them hidden [rows, tokens]
//
// The host reads 0 and 2, which stay on it and travel by Gloo; the others lie where the model does.
//
// The loss of a step is the mean over its micro-batches. The contrastive loss tells apart the
// pictures of one micro-batch. Order and memory: pipeline_schedule.h.
#pragma once

#include <cstdint>
#include <map>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/strategies/pipeline_schedule.h"
#include "runtime/strategies/strategy.h"

namespace lockstep::runtime {

// How many items of a batch a tensor is of; 0 where there is none.
inline std::int64_t rows_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.size(0) : 0;
}

class Pipeline : public Strategy {
 public:
  // Freezes the parameters of the other stages. The number of ranks must be a multiple of the
  // stages' (the scenario's check sees to it).
  Pipeline(const Scenario::Strategy& options, StrategyParts parts);

  // Gives every replica the first one's parameters and buffers of this stage.
  void start() override;
  // All of it happens in run_step.
  void before_forward(Pass) override {}
  void backward(const at::Tensor& loss, Pass) override { loss.backward(); }
  // Throws std::runtime_error where the stages hold different batches, and what c10d throws.
  std::optional<OwnStep> run_step(const std::vector<Batch>& batches) override;
  // The mean over the replicas, in one all-reduce. A replica whose micro-batches all lacked images
  // counts with zeros; what no replica computed stays undefined.
  void synchronise() override;
  // The sum over the stages.
  double norm_squared(double own) override;
  // The stages of a replica give each other their parameters and buffers.
  void gather_everything() override;

 private:
  // What a stage keeps of a micro-batch between its forward and its backward.
  struct Flight {
    std::vector<at::Tensor> inputs;  // leaves that take a gradient; undefined: without images
    at::Tensor output;               // with its graph; undefined without images, and at the end
    at::Tensor seen;                 // tokens that go on with it; undefined: none do
    at::Tensor loss;                 // at the end: its share of the mean, with its graph
    double value = 0;                // … and undivided; elsewhere from the answer
  };
  struct Outgoing {
    c10::intrusive_ptr<c10d::Work> work;
    at::Tensor tensor;  // must stay until the message was taken
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

  // Of the group that carries this part.
  c10d::ProcessGroup& carrier(Part part);
  // The trace says `where` a message is sent or received.
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
  int own_;  // this rank's stage, and its rank in the replica's group
  ProcessGroups::Ptr replica_, back_;
  ProcessGroups::Ptr peers_;  // this stage of all replicas; null with one replica
  NamedTensors state_;        // parameters and buffers, of all stages

  // Of the current step, by micro-batch.
  std::map<int, Flight> flights_;
  std::map<Key, Incoming> incoming_;
  std::map<Key, std::vector<Outgoing>> outgoing_;
  OwnStep step_;
};

}  // namespace lockstep::runtime
