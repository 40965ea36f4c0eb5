// Pipeline: the model split over two ranks, between which micro-batches pass.
//
// A replica is two neighbouring ranks: the even one is the image stage (image.*), the odd one the
// text stage (everything else: text, projections, fusion, logit_scale). Each rank trains its
// stage's parameters; the others are frozen there and never change. Replicas are data parallel.
//
//   group "replica<k>"            ranks 2k, 2k + 1: the messages
//   group "stage_image", "stage_text"  one stage of all replicas: gradients, where there are
//   several
//
// Messages of a micro-batch m, point to point, tag 4 m + kind:
//
//   0  image → text  int64 [2]    rows and width of the features; 0 rows: it has no images
//   1  image → text  float [rows, width]   the encoder's features; absent with 0 rows
//   2  text → image  float64 [2]  rows of the gradient, and the micro-batch's loss
//   3  text → image  float [rows, width]   the features' gradient; absent with 0 rows
//
// The loss of a step is the mean over its micro-batches. The contrastive loss tells apart the
// pictures of one micro-batch. Order and memory: pipeline_schedule.h.
#pragma once

#include <map>
#include <source_location>
#include <string>
#include <vector>

#include "runtime/strategies/pipeline_schedule.h"
#include "runtime/strategies/strategy.h"

namespace lockstep {

class Pipeline : public Strategy {
 public:
  // Freezes the parameters of the other stage. The number of ranks must be even (the scenario's
  // check sees to it).
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
    at::Tensor features;  // image stage: with its graph; text stage: a leaf that takes a gradient
    at::Tensor loss;      // text stage: its share of the mean, with its graph
    double value = 0;     // … and undivided
  };
  struct Outgoing {
    c10::intrusive_ptr<c10d::Work> work;
    at::Tensor tensor;  // must stay until the message was taken
  };

  struct Incoming {
    c10::intrusive_ptr<c10d::Work> work;
    at::Tensor head;  // the first part of the other stage's message
  };
  enum class Part : int;

  void forward(int m, const Batch& batch, std::size_t micro_batches);
  void backward(int m);
  void expect(int m);
  void send_message(int m);
  void settle(int m);
  at::Tensor receive_features(int m, const Batch& batch);
  at::Tensor receive_gradient(int m, const Flight& flight);

  // The trace says `where` a message is sent or received.
  using Where = std::source_location;
  void send(int m, Part part, const at::Tensor& tensor, Where where = Where::current());
  c10::intrusive_ptr<c10d::Work> begin_receive(int m, Part part, const at::Tensor& into,
                                               Where where = Where::current());
  at::Tensor head_of(int m);
  at::Tensor receive_body(int m, Part part, at::IntArrayRef sizes, Where where = Where::current());
  void wait(c10d::Work& work);
  CallNote note(int m, Part part);
  bool is_image() const { return stage_ == PipelineStage::image; }

  StrategyParts parts_;
  Scenario::Strategy options_;
  PipelineStage stage_;
  int other_;  // the other stage's rank in the replica's group
  ProcessGroups::Ptr replica_;
  ProcessGroups::Ptr peers_;  // this stage of all replicas; null with one replica
  NamedTensors state_;        // parameters and buffers, of both stages

  // Of the current step, by micro-batch.
  std::map<int, Flight> flights_;
  std::map<int, Incoming> incoming_;
  std::map<int, std::vector<Outgoing>> outgoing_;
  OwnStep step_;
};

}  // namespace lockstep
