// lockstep simulate pipeline: what a schedule costs, stage by stage.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/quantities.h"
#include "cli/cmd_simulate.h"
#include "cli/report_options.h"
#include "reports/forecasts/pipeline.h"
#include "sim/pipeline/schedule.h"

namespace lockstep::cli {
namespace {

struct PipelineCommand {
  std::string schedule = "1f1b";
  sim::PipelineShape shape;
  std::optional<std::int32_t> chunks;
  std::optional<std::int64_t> layers;
  std::string forward, backward, backward_weight;
  std::string send = "0ns";
  std::string activation, activation_weight;
  SimulationOutput output;
};

constexpr const char* kPipelineFooter = R"(Examples:
  Four stages, eight micro-batches, forward 1 us and backward 2 us:
    lockstep simulate pipeline --schedule 1f1b --stages 4 --micro-batches 8 \
      --forward 1us --backward 2us
  What a slow first stage costs (for example an image encoder):
    lockstep simulate pipeline --stages 4 --micro-batches 16 \
      --forward 3us,1us,1us,1us --backward 6us,2us,2us,2us --send 100ns
  The same stages without a bubble, for twice the activations:
    lockstep simulate pipeline --schedule zb-h2 --stages 4 --micro-batches 16 \
      --forward 1us --backward 1us --backward-weight 1us --activation 2GiB

Times are for one micro-batch on one stage; with --chunks, on one chunk of a
stage. A list has one value for all, one per stage, or one per piece of the
model (stages x chunks, in the model's order).

Exit status: 0 predicted, 2 bad usage, 4 the tool failed.
docs/simulate-workloads.md explains the schedules and the figures.)";

// A value for each piece of `program`. `values`: one for all, one per stage, or one per piece.
// Errors: another number of values.
template <class T>
Result<std::vector<T>> over_pieces(const std::string& option, const std::vector<T>& values,
                                   const sim::PipelineProgram& program) {
  const auto pieces = static_cast<std::size_t>(program.shape.pieces());
  const auto stages = static_cast<std::size_t>(program.shape.stages);
  std::vector<T> out;
  for (std::size_t piece = 0; piece < pieces; ++piece) {
    // Two stages of two chunks have four pieces, and take 1, 4 or 2 values. With one chunk, pieces
    // are stages, and both readings are the same.
    if (values.size() == 1)
      out.push_back(values[0]);
    else if (values.size() == pieces)
      out.push_back(values[piece]);
    else if (values.size() == stages)
      out.push_back(
          values[static_cast<std::size_t>(program.stage_of(static_cast<std::int32_t>(piece)))]);
    else
      return Error{
          fmt::format("{} has {} values for {} stages{}", option, values.size(), stages,
                      pieces == stages ? "" : fmt::format(" of {} chunks", program.shape.chunks)),
          {},
          fmt::format("give one value, or {}{}", stages,
                      pieces == stages ? "" : fmt::format(", or {}", pieces))};
  }
  return out;
}

Result<std::vector<Picos>> durations(const std::string& option, const std::string& text,
                                     const sim::PipelineProgram& program) {
  const Result<std::vector<Picos>> parsed = parse_durations(text);
  if (!parsed) return with_option(option, parsed.error());
  return over_pieces(option, *parsed, program);
}

Result<std::vector<Bytes>> sizes(const std::string& option, const std::string& text,
                                 const sim::PipelineProgram& program) {
  const Result<std::vector<Bytes>> parsed = parse_sizes(text);
  if (!parsed) return with_option(option, parsed.error());
  return over_pieces(option, *parsed, program);
}

// Sets the times of the backward pass from --backward and --backward-weight, as the schedule needs
// them: in two parts if it splits the pass, else in one.
Status set_backward(const PipelineCommand& command, const sim::PipelineProgram& program,
                    std::vector<sim::PieceCost>& pieces) {
  const Result<std::vector<Picos>> backward = durations("--backward", command.backward, program);
  if (!backward) return backward.error();
  std::optional<std::vector<Picos>> weight;
  if (!command.backward_weight.empty()) {
    Result<std::vector<Picos>> given =
        durations("--backward-weight", command.backward_weight, program);
    if (!given) return given.error();
    weight = std::move(*given);
  }
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    pieces[i].backward = (*backward)[i];
    if (program.split) {
      // The backward of a linear layer is two products of equal size: one for the input's gradient,
      // one for the weights'. So without --backward-weight each part takes half. If the number of
      // picoseconds is odd, the first part is longer.
      pieces[i].weight = weight ? (*weight)[i] : Picos{(*backward)[i].value / 2};
      if (!weight) pieces[i].backward = (*backward)[i] - pieces[i].weight;
    } else if (weight) {
      pieces[i].backward += (*weight)[i];
    }
  }
  return Status::ok();
}

// By piece; empty without --activation.
Result<std::vector<sim::KeptBytes>> kept_bytes(const PipelineCommand& command,
                                               const sim::PipelineProgram& program) {
  std::vector<sim::KeptBytes> out;
  if (command.activation.empty()) {
    if (command.activation_weight.empty()) return out;
    return Error{"--activation-weight is a part of --activation, which is not given",
                 {},
                 "give --activation as well"};
  }
  const Result<std::vector<Bytes>> activation = sizes("--activation", command.activation, program);
  if (!activation) return activation.error();
  // The weight part needs some of the activations, by default all; these stay until it has run.
  const Result<std::vector<Bytes>> kept =
      command.activation_weight.empty()
          ? activation
          : sizes("--activation-weight", command.activation_weight, program);
  if (!kept) return kept.error();
  double all = 0;  // a double, because a sum that must be refused may not fit into an integer
  for (std::size_t i = 0; i < activation->size(); ++i) {
    if ((*kept)[i] > (*activation)[i])
      return Error{
          fmt::format("--activation-weight {} B is more than --activation {} B, which includes it",
                      (*kept)[i].value, (*activation)[i].value),
          {},
          "give at most the activation"};
    all += static_cast<double>((*activation)[i].value) * command.shape.micro_batches;
    out.push_back({(*activation)[i], (*kept)[i]});
  }
  if (all > 0x1p61)
    return Error{"the activations together exceed 2^61 bytes", {}, "give a smaller --activation"};
  return out;
}

Result<sim::PipelineCosts> pipeline_costs(const PipelineCommand& command,
                                          const sim::PipelineProgram& program) {
  sim::PipelineCosts costs;
  const Result<std::vector<Picos>> forward = durations("--forward", command.forward, program);
  if (!forward) return forward.error();
  for (const Picos time : *forward) costs.pieces.push_back({.forward = time});
  if (const Status s = set_backward(command, program, costs.pieces); !s) return s.error();
  const Result<Picos> send = parse_duration(command.send);
  if (!send) return with_option("--send", send.error());
  costs.send = *send;
  return costs;
}

// Every piece of the model needs at least one whole layer.
Status check_layers(const PipelineCommand& command, const sim::PipelineShape& shape) {
  if (!command.layers) return Status::ok();
  if (*command.layers < 1)
    return Error{fmt::format("--layers is {}; a model has at least 1", *command.layers),
                 {},
                 "give --layers a positive number"};
  const std::int64_t pieces = shape.pieces();
  const std::string cut =
      fmt::format("{} stages{}", shape.stages,
                  shape.chunks == 1 ? std::string() : fmt::format(" of {} chunks", shape.chunks));
  if (*command.layers < pieces)
    return Error{fmt::format("--layers {} cannot be divided into {}: a piece would have no layer",
                             *command.layers, cut),
                 {},
                 fmt::format("use at most {} --stages (times --chunks)", *command.layers)};
  // 30 layers on 4 stages are 8, 8, 7 and 7: the stages take different times.
  if (*command.layers % pieces != 0 && command.forward.find(',') == std::string::npos)
    return Error{
        fmt::format("--layers {} do not divide evenly over {}, so the stages cannot all take "
                    "--forward {}",
                    *command.layers, cut, command.forward),
        {},
        "give --forward and --backward as lists, one value per stage"};
  return Status::ok();
}

Result<reports::PipelineAnswer> answer(PipelineCommand command) {
  const Result<sim::PipelineSchedule> schedule = sim::parse_pipeline_schedule(command.schedule);
  if (!schedule) return schedule.error();
  // zbv is defined for two; interleaving one chunk is 1F1B.
  const bool two =
      *schedule == sim::PipelineSchedule::zbv || *schedule == sim::PipelineSchedule::interleaved;
  command.shape.chunks = command.chunks.value_or(two ? 2 : 1);
  Result<sim::PipelineProgram> program = sim::make_pipeline(*schedule, command.shape);
  if (!program) return program.error();
  if (const Status layers = check_layers(command, command.shape); !layers) return layers.error();
  const Result<sim::PipelineCosts> costs = pipeline_costs(command, *program);
  if (!costs) return costs.error();
  const Result<std::vector<sim::KeptBytes>> kept = kept_bytes(command, *program);
  if (!kept) return kept.error();
  Result<sim::PipelineRun> run = sim::run_pipeline(*program, *costs);
  if (!run) return run.error();
  std::vector<Bytes> peaks;
  if (!kept->empty()) peaks = sim::peak_bytes(*program, *kept);
  return reports::PipelineAnswer{std::move(*program), std::move(*run), std::move(peaks)};
}

reports::ExitStatus simulate_pipeline(const PipelineCommand& command) {
  if (const Status output = check_simulation_output(command.output); !output)
    return reports::fail(output.error());
  const Result<reports::PipelineAnswer> result = answer(command);
  if (!result) return reports::fail(result.error());
  return write_simulation([&](std::size_t width) { return reports::pipeline_text(*result, width); },
                          reports::pipeline_json(*result), command.output);
}

}  // namespace

void add_simulate_pipeline(CLI::App& simulate, reports::ExitStatus& status) {
  auto command = std::make_shared<PipelineCommand>();
  CLI::App* sub =
      simulate.add_subcommand("pipeline", "Time a pipeline schedule: step, bubble, memory");
  sub->footer(kPipelineFooter);
  sub->add_option("--schedule", command->schedule,
                  "gpipe, 1f1b, interleaved, zb-h1, zb-h2 or zbv;\ndefault: 1f1b")
      ->type_name("NAME");
  sub->add_option("--stages", command->shape.stages, "Stages of the pipeline")
      ->type_name("N")
      ->required();
  sub->add_option("--micro-batches", command->shape.micro_batches, "Micro-batches in a step")
      ->type_name("N")
      ->required();
  sub->add_option("--chunks", command->chunks,
                  "Pieces of the model per stage (interleaved, zbv);\ndefault: 2 for these")
      ->type_name("N");
  sub->add_option("--forward", command->forward,
                  "Forward time of a micro-batch, e.g. 1us or 1us,2us")
      ->type_name("TIME[,TIME..]")
      ->required();
  sub->add_option(
         "--backward", command->backward,
         "Backward time; with --backward-weight, of the part\nthat computes the input's gradient")
      ->type_name("TIME[,TIME..]")
      ->required();
  sub->add_option("--backward-weight", command->backward_weight,
                  "Time of the part that computes the weights'\ngradients, on top of --backward; "
                  "default: half of it")
      ->type_name("TIME[,TIME..]");
  sub->add_option("--send", command->send, "Time from one stage to the next; default: 0")
      ->type_name("TIME");
  sub->add_option("--activation", command->activation,
                  "Bytes that a micro-batch keeps for its backward,\ne.g. 512MiB")
      ->type_name("SIZE[,SIZE..]");
  sub->add_option("--activation-weight", command->activation_weight,
                  "Bytes of --activation that the weight part needs;\ndefault: all")
      ->type_name("SIZE[,SIZE..]");
  sub->add_option("--layers", command->layers,
                  "Layers of the model; refuses stages without a layer")
      ->type_name("N");
  add_simulation_output(*sub, command->output);
  sub->callback([command, &status] { status = simulate_pipeline(*command); });
}

}  // namespace lockstep::cli
