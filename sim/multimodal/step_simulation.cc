#include "sim/multimodal/step_simulation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/text.h"
#include "sim/multimodal/mixed_lengths.h"

namespace lockstep::sim {
namespace {

// Tasks of all drawn steps and pipelines.
constexpr std::int64_t kMostTasks = std::int64_t{1} << 24U;

Picos as_picos(double seconds) {
  return Picos{static_cast<std::int64_t>(std::llround(seconds * 1e12))};
}

Bytes as_bytes(double bytes) {
  return Bytes{static_cast<std::int64_t>(std::llround(std::min(bytes, 1e15)))};
}

// A place: the GPUs that are one stage of every pipeline.
struct Place {
  std::string name;
  std::int64_t gpus = 0;       // of one pipeline
  std::size_t own = SIZE_MAX;  // the encoder whose own stage it is
  std::int32_t stage = 0;      // of the LLM, or of that encoder
  double layers = 0;           // of the LLM, all chunks
  std::vector<double> shares;  // by encoder: of its layers
  std::vector<bool> ends;      // by encoder: its last layer and the projector are here
};

// What a piece of the pipeline does in one micro-batch, in seconds; `lost`: ranks of an encoder
// that wait for the slowest one of their group, mean over the ranks.
struct TaskTime {
  double forward = 0, backward = 0;
  double encoder_forward = 0, encoder_backward = 0;  // parts of the above
  double lost = 0;
  double layers_backward = 0;  // of which schedules that split it delay the weights' part
  double activations = 0;      // bytes
  std::vector<double> encoder_activations;
  StepParts llm;
  double handover = 0, offload = 0;
  std::vector<double> encoders;  // busy, mean over the group's ranks
};

class Simulation {
 public:
  Simulation(const MultimodalPlan& plan, const CostParameters& cost)
      : plan_(plan), llm_(plan.llm.plan), model_(plan.llm.model), cost_(cost) {
    groups_ = coupled_groups(plan);
    per_group_ = llm_.data / groups_;
    micro_batches_ = static_cast<std::int32_t>(llm_.micro_batches());
    for (const EncoderTower& tower : plan.encoders) {
      TrainingPlan layout = tower.layout;
      // All ranks that hold the same part of the encoder: they share its gradients.
      if (tower.place != EncoderPlace::own_gpus) layout.data *= llm_.data;
      layouts_.push_back(layout);
    }
  }

  Result<SimulatedSteps> run() {
    if (const Status checked = check_size(); !checked) return checked.error();
    Result<DealtStep> first = deal_step(plan_, 0);
    if (!first) return first.error();
    make_places(*first);
    const Result<PipelineProgram> program = make_pipeline(
        llm_.schedule, {static_cast<std::int32_t>(places_.size()), micro_batches_, llm_.chunks});
    if (!program) return program.error();
    program_ = *program;
    price_full_sequences();
    out_.shares.encoders.assign(plan_.encoders.size(), 0);
    out_.places.resize(places_.size());
    peaks_.resize(places_.size());
    for (std::int64_t step = 0; step < plan_.steps; ++step) {
      if (step > 0) {
        first = deal_step(plan_, static_cast<std::uint64_t>(step));
        if (!first) return first.error();
      }
      if (const Status ran = run_step(*first, step); !ran) return ran.error();
    }
    finish();
    return std::move(out_);
  }

 private:
  Status check_size() const {
    const std::int64_t passes = splits_backward(llm_.schedule) ? 3 : 2;
    std::int64_t stages = llm_.pipeline;
    for (const EncoderTower& tower : plan_.encoders)
      if (tower.place == EncoderPlace::own_gpus) stages += tower.layout.pipeline;
    const double tasks = static_cast<double>(passes) * static_cast<double>(stages) * llm_.chunks *
                         micro_batches_ * llm_.data * static_cast<double>(plan_.steps);
    if (tasks <= static_cast<double>(kMostTasks)) return Status::ok();
    return Error{fmt::format("{} steps of {} micro-batches on {} replicas are too many to simulate",
                             plan_.steps, micro_batches_, llm_.data),
                 {},
                 "use fewer steps, a smaller global_batch or larger micro-batches"};
  }

  // --- Where everything is.

  void make_places(const DealtStep& step) {
    for (std::size_t i = 0; i < plan_.encoders.size(); ++i) {
      const EncoderTower& tower = plan_.encoders[i];
      if (tower.place != EncoderPlace::own_gpus) continue;
      for (std::int32_t stage = 0; stage < tower.layout.pipeline; ++stage) {
        Place place = empty_place();
        place.name = fmt::format("{} stage {}", tower.name, stage);
        place.own = i;
        place.stage = stage;
        place.gpus = std::int64_t{tower.layout.tensor} * (tower.layout.data / groups_);
        place.shares[i] = 1.0 / tower.layout.pipeline;
        place.ends[i] = stage + 1 == tower.layout.pipeline;
        places_.push_back(std::move(place));
      }
    }
    own_stages_ = static_cast<std::int32_t>(places_.size());
    for (std::int32_t stage = 0; stage < llm_.pipeline; ++stage) {
      Place place = empty_place();
      place.stage = stage;
      place.gpus = std::int64_t{llm_.tensor} * llm_.context * per_group_;
      place.layers = static_cast<double>(model_.layers) / llm_.pipeline;
      if (stage == 0)
        for (std::size_t i = 0; i < plan_.encoders.size(); ++i)
          if (plan_.encoders[i].place == EncoderPlace::first_stage) {
            place.shares[i] = 1;
            place.ends[i] = true;
          }
      places_.push_back(std::move(place));
    }
    if (plan_.balanced_split && llm_.pipeline > 1) cut_evenly(step);
    for (Place& place : places_) {
      if (place.own != SIZE_MAX) continue;
      place.name = fmt::format("LLM stage {}", place.stage);
      std::string with;
      for (std::size_t i = 0; i < plan_.encoders.size(); ++i)
        if (place.shares[i] > 0) with += (with.empty() ? " with " : ", ") + plan_.encoders[i].name;
      place.name += with;
    }
  }

  Place empty_place() const {
    Place place;
    place.shares.assign(plan_.encoders.size(), 0);
    place.ends.assign(plan_.encoders.size(), false);
    return place;
  }

  // Cuts the chain of layers (of the encoders on the first stages, then the LLM's) into stages such
  // that the largest mean time is the least possible. The threshold is found by bisection: with a
  // given one, filling stage after stage needs the fewest of them.
  void cut_evenly(const DealtStep& step) {
    struct Link {
      std::size_t encoder;  // SIZE_MAX: the LLM
      double seconds;
    };
    std::vector<Link> chain;
    for (std::size_t i = 0; i < plan_.encoders.size(); ++i) {
      if (plan_.encoders[i].place != EncoderPlace::first_stage) continue;
      double sum = 0, count = 0;
      for (const auto& unit : step.encoders[i])
        for (const auto& loads : unit) {
          const GroupTime time = group_time(i, loads, 1, true);
          sum += time.forward + time.backward;
          ++count;
        }
      const std::int64_t layers = plan_.encoders[i].model.layers;
      for (std::int64_t layer = 0; layer < layers; ++layer)
        chain.push_back({i, sum / count / static_cast<double>(layers)});
    }
    const PieceTime one = llm_layers(layer_times(model_, llm_, cost_), 1);
    for (std::int64_t layer = 0; layer < model_.layers; ++layer)
      chain.push_back({SIZE_MAX, one.forward + one.backward});
    const PieceTime head = logits_time(model_, llm_, cost_);
    const double last = head.forward + head.backward;
    const auto stages = static_cast<std::size_t>(llm_.pipeline);
    const auto fits = [&](double most, std::vector<std::size_t>* cuts) {
      std::size_t at = 0;
      for (std::size_t stage = 0; stage < stages; ++stage) {
        double load = stage + 1 == stages ? last : 0;
        while (at < chain.size() && load + chain[at].seconds <= most) load += chain[at++].seconds;
        if (cuts != nullptr) cuts->push_back(at);
      }
      return at == chain.size();
    };
    double low = 0, high = last;
    for (const Link& link : chain) high += link.seconds;
    for (int halving = 0; halving < 60; ++halving) {
      const double middle = (low + high) / 2;
      (fits(middle, nullptr) ? high : low) = middle;
    }
    std::vector<std::size_t> cuts;
    LOCKSTEP_CHECK(fits(high, &cuts), "all in one stage fits");
    std::size_t from = 0;
    for (std::size_t stage = 0; stage < stages; ++stage) {
      Place& place = places_[static_cast<std::size_t>(own_stages_) + stage];
      place.layers = 0;
      std::fill(place.shares.begin(), place.shares.end(), 0);
      std::fill(place.ends.begin(), place.ends.end(), false);
      for (; from < cuts[stage]; ++from) {
        const std::size_t encoder = chain[from].encoder;
        if (encoder == SIZE_MAX) {
          ++place.layers;
          continue;
        }
        place.shares[encoder] += 1.0 / static_cast<double>(plan_.encoders[encoder].model.layers);
        place.ends[encoder] = from + 1 == chain.size() || chain[from + 1].encoder != encoder;
      }
    }
  }

  // --- What a micro-batch takes.

  // Whether gradients pass through the LLM for something before it.
  bool trained_before() const {
    return std::any_of(plan_.encoders.begin(), plan_.encoders.end(),
                       [](const EncoderTower& tower) { return tower.trained(); });
  }

  PieceTime llm_layers(LayerTimes one, double layers) const {
    // Frozen: of the two products backward only the input's gradient.
    if (plan_.llm_frozen)
      one.backward.kernels =
          (one.backward.kernels - one.backward.attention) / 2 + one.backward.attention;
    return piece_time(model_, llm_, cost_, one, layers);
  }

  void price_full_sequences() {
    handover_ = handover_seconds(model_, llm_, cost_);
    // Stages of encoders in front make a pipeline of an LLM that has none.
    if (llm_.pipeline == 1 && own_stages_ > 0) handover_ = cost_.stage_handover;
    const LayerTimes one = layer_times(model_, llm_, cost_);
    for (const Place& place : places_) full_.push_back(llm_layers(one, place.layers / llm_.chunks));
    embedding_ = embedding_time(model_, llm_, cost_);
    logits_ = logits_time(model_, llm_, cost_);
    weight_share_ = 0.5 * one.backward.on_gpu() / (one.backward.on_gpu() + one.again.on_gpu());
  }

  struct GroupTime {
    double forward = 0, backward = 0;  // of the slowest rank
    double mean = 0;                   // of all ranks, both directions
    double tokens = 0, most_tokens = 0;
  };

  // One encoder, for one micro-batch of one unit. A dummy is an image of 256 patches.
  GroupTime group_time(std::size_t encoder, const std::vector<EncoderLoad>& loads, double share,
                       bool end) const {
    const EncoderTower& tower = plan_.encoders[encoder];
    GroupTime out;
    for (EncoderLoad load : loads) {
      if (load.items == 0 && tower.dummy) load = {256, 256.0 * 256, 1};
      const TowerTime time =
          encoder_time(tower, layouts_[encoder], model_.hidden, cost_, load, share, end);
      out.forward = std::max(out.forward, time.forward);
      out.backward = std::max(out.backward, time.backward);
      out.mean += (time.forward + time.backward) / static_cast<double>(loads.size());
      out.tokens += load.tokens;
      out.most_tokens = std::max(out.most_tokens, load.tokens);
    }
    return out;
  }

  // What an encoder keeps of a token for the backward pass, on one rank.
  double kept_per_token(std::size_t encoder) const {
    const EncoderTower& tower = plan_.encoders[encoder];
    if (tower.frozen) return 0;
    TrainingPlan one = layouts_[encoder];
    one.sequence = 1024;
    one.micro_batch = 1;
    return layer_activation_bytes(tower.model, one) / 1024 *
           static_cast<double>(tower.model.layers);
  }

  // The transfer of the embeddings of a micro-batch to the ranks of the LLM, one direction.
  double gather_seconds(std::size_t encoder, double tokens) const {
    const EncoderTower& tower = plan_.encoders[encoder];
    const double bytes =
        2 * tokens / static_cast<double>(tower.merge) * static_cast<double>(model_.hidden);
    if (tokens <= 0) return 0;
    if (tower.place == EncoderPlace::own_gpus)
      return collective_seconds(cost_, trace::Op::send, bytes / tower.layout.tensor, {2, 1});
    if (tower.layout.data == 1) return 0;
    const int ranks = static_cast<int>(std::int64_t{tower.layout.data} * tower.layout.tensor);
    return collective_seconds(cost_, trace::Op::all_gather, bytes, group_of(cost_, ranks, 1));
  }

  double micro_tokens(const DealtStep& step, std::size_t replica, std::size_t m,
                      double* squares) const {
    double out = 0;
    for (const std::size_t i : step.micro_batches[replica][m]) {
      const auto tokens = static_cast<double>(step.sequences[i].tokens);
      out += tokens;
      *squares += tokens * tokens;
    }
    return out;
  }

  // The LLM's part of a task: of the slowest replica of the group.
  void add_llm(const DealtStep& step, std::size_t group, const Place& place, std::int32_t piece,
               std::size_t m, TaskTime& task) const {
    const std::size_t index = static_cast<std::size_t>(&place - places_.data());
    PieceTime layers = full_[index];
    double of_full = 1;  // tokens, as a share of full sequences
    if (plan_.data.filling == SequenceFilling::ragged) {
      double most = 0, squares = 0;
      for (std::int32_t r = 0; r < per_group_; ++r) {
        double sum = 0;
        const double tokens = micro_tokens(
            step, group * static_cast<std::size_t>(per_group_) + static_cast<std::size_t>(r), m,
            &sum);
        if (tokens <= most) continue;
        most = tokens;
        squares = sum;
      }
      of_full = most / (static_cast<double>(llm_.tokens()) * llm_.context);
      layers = llm_layers(
          mixed_layer_times(model_, llm_, cost_, most / llm_.context, squares, llm_.sequence),
          place.layers / llm_.chunks);
    }
    double forward = layers.forward + handover_;
    double backward = layers.backward + handover_;
    add(task.llm, layers.parts, 1);
    const std::int32_t first = 0, last = llm_.pipeline * llm_.chunks - 1;
    if (piece == first) {
      forward += of_full * embedding_.forward;
      backward += of_full * embedding_.backward;
      add(task.llm, embedding_.parts, of_full);
    }
    if (piece == last) {
      forward += of_full * logits_.forward;
      backward += of_full * logits_.backward;
      add(task.llm, logits_.parts, of_full);
    }
    if (plan_.llm_frozen && !trained_before()) backward = 0;
    task.forward = forward;
    task.backward = backward;
    task.layers_backward = std::min(layers.backward, backward);
    task.handover = 2 * handover_;
    task.activations = of_full * place.layers / llm_.chunks * layer_activation_bytes(model_, llm_);
  }

  static void add(StepParts& sum, const StepParts& more, double times) {
    for (double StepParts::*part :
         {&StepParts::layers, &StepParts::recompute, &StepParts::logits, &StepParts::host,
          &StepParts::tensor, &StepParts::context, &StepParts::data})
      sum.*part += times * more.*part;
  }

  TaskTime task_of(const DealtStep& step, std::size_t group, std::int32_t piece,
                   std::size_t m) const {
    const Place& place = places_[static_cast<std::size_t>(program_.stage_of(piece))];
    TaskTime task;
    task.encoders.assign(plan_.encoders.size(), 0);
    task.encoder_activations.assign(plan_.encoders.size(), 0);
    const bool of_llm = place.own == SIZE_MAX;
    if (of_llm) add_llm(step, group, place, piece - own_stages_, m, task);
    // Encoders are on the first chunk of their stage.
    if (of_llm && piece - own_stages_ >= llm_.pipeline) return offloaded(std::move(task));
    for (std::size_t i = 0; i < plan_.encoders.size(); ++i) {
      if (place.shares[i] <= 0) continue;
      const bool own = plan_.encoders[i].place == EncoderPlace::own_gpus;
      // Of replicas that move together the slowest.
      GroupTime slowest;
      double transfer = 0;
      const std::size_t units = own ? 1 : static_cast<std::size_t>(per_group_);
      for (std::size_t u = 0; u < units; ++u) {
        const auto& loads = step.encoders[i][group * units + u][m];
        const GroupTime time = group_time(i, loads, place.shares[i], place.ends[i]);
        slowest.forward = std::max(slowest.forward, time.forward);
        slowest.backward = std::max(slowest.backward, time.backward);
        slowest.mean += time.mean / static_cast<double>(units);
        slowest.most_tokens = std::max(slowest.most_tokens, time.most_tokens);
        const double tokens = own ? time.most_tokens : time.tokens;
        if (place.ends[i]) transfer = std::max(transfer, gather_seconds(i, tokens));
      }
      const bool back = plan_.encoders[i].trained();
      task.encoder_forward += slowest.forward + transfer;
      task.encoder_backward += slowest.backward + (back ? transfer : 0);
      task.layers_backward += slowest.backward;
      task.handover += transfer * (back ? 2 : 1);
      task.encoders[i] = slowest.mean;
      task.lost += std::max(0.0, slowest.forward + slowest.backward - slowest.mean);
      task.encoder_activations[i] = kept_per_token(i) * place.shares[i] * slowest.most_tokens;
      task.activations += task.encoder_activations[i];
    }
    if (!of_llm) {
      task.handover += 2 * cost_.stage_handover;
      task.forward += cost_.stage_handover;
      task.backward += cost_.stage_handover;
    }
    task.forward += task.encoder_forward;
    task.backward += task.encoder_backward;
    return offloaded(std::move(task));
  }

  // Activations go to the host beside the forward pass and come back beside the backward pass; what
  // takes longer than the pass is added to it.
  TaskTime offloaded(TaskTime task) const {
    if (!plan_.offload.activations) return task;
    const double seconds = task.activations / plan_.offload.bandwidth;
    const double out = std::max(0.0, seconds - task.forward);
    const double back = std::max(0.0, seconds - task.backward);
    task.forward += out;
    task.backward += back;
    task.offload = out + back;
    return task;
  }

  // --- A step.

  struct GroupRun {
    std::vector<TaskTime> tasks;  // by piece x micro-batch
    PipelineCosts costs;
    PipelineRun run;
    double before = 0, after = 0;  // encoding on every GPU
    double end() const { return before + run.time.seconds() + after; }
  };

  Result<PipelineCosts> costs_of(const std::vector<TaskTime>& tasks) const {
    PipelineCosts costs;
    costs.unequal.reserve(tasks.size());
    for (const TaskTime& task : tasks) {
      if (!(task.forward + task.backward <= kLongestPiece))
        return Error{"a micro-batch takes a pipeline stage more than a day",
                     {},
                     "use smaller micro-batches, fewer items, more ranks or smaller models"};
      const double weight = program_.split ? weight_share_ * task.layers_backward : 0;
      costs.unequal.push_back({.forward = as_picos(task.forward),
                               .backward = as_picos(task.backward - weight),
                               .weight = as_picos(weight),
                               .activation = as_bytes(task.activations)});
    }
    return costs;
  }

  Result<GroupRun> run_group(const DealtStep& step, std::size_t group) {
    GroupRun out;
    const std::int32_t pieces = program_.shape.pieces();
    out.tasks.reserve(static_cast<std::size_t>(pieces) * static_cast<std::size_t>(micro_batches_));
    for (std::int32_t piece = 0; piece < pieces; ++piece)
      for (std::int32_t m = 0; m < micro_batches_; ++m)
        out.tasks.push_back(task_of(step, group, piece, static_cast<std::size_t>(m)));
    Result<PipelineCosts> costs = costs_of(out.tasks);
    if (!costs) return costs.error();
    out.costs = std::move(*costs);
    Result<PipelineRun> run = run_pipeline(program_, out.costs);
    if (!run) return run.error();
    out.run = std::move(*run);
    for (std::size_t i = 0; i < plan_.encoders.size(); ++i) {
      const EncoderTower& tower = plan_.encoders[i];
      if (tower.place != EncoderPlace::every_gpu) continue;
      double forward = 0, backward = 0;
      for (std::int32_t r = 0; r < per_group_; ++r) {
        const auto& loads = step.encoders[i][group * static_cast<std::size_t>(per_group_) +
                                             static_cast<std::size_t>(r)][0];
        const GroupTime time = group_time(i, loads, 1, true);
        const double transfer = gather_seconds(i, time.tokens);
        forward = std::max(forward, time.forward + transfer);
        backward = std::max(backward, time.backward + (tower.trained() ? transfer : 0));
      }
      out.before += forward;
      out.after += backward;
    }
    return out;
  }

  // What a step's parts add up to, in GPU-seconds.
  struct Sums {
    StepParts llm;
    double handover = 0, offload = 0, lost = 0;
    std::vector<double> encoders;
  };

  Status run_step(const DealtStep& step, std::int64_t number) {
    std::vector<GroupRun> runs;
    for (std::int32_t group = 0; group < groups_; ++group) {
      Result<GroupRun> run = run_group(step, static_cast<std::size_t>(group));
      if (!run) return run.error();
      runs.push_back(std::move(*run));
    }
    const auto slowest =
        std::max_element(runs.begin(), runs.end(),
                         [](const GroupRun& a, const GroupRun& b) { return a.end() < b.end(); });
    const double pipeline = slowest->end();
    // Gradients of a place are summed when all pipelines have done their part of it.
    double end = pipeline;
    const double update = update_seconds();
    double exposed = 0;
    for (std::size_t p = 0; p < places_.size(); ++p) {
      double done = 0, last_backward = 0;
      for (const GroupRun& run : runs) {
        const TaskSpan& span = run.run.spans[p].back();
        done = std::max(done, run.before + span.end.seconds() + run.after);
        last_backward = std::max(last_backward, span.end.seconds() - span.start.seconds());
      }
      const double exchange = exposed_exchange(p, last_backward);
      end = std::max(end, done + exchange);
    }
    exposed = end - pipeline;
    const double seconds = end + update;
    const double share = 1.0 / static_cast<double>(plan_.steps);
    out_.seconds += share * seconds;
    out_.shortest = number == 0 ? seconds : std::min(out_.shortest, seconds);
    out_.longest = std::max(out_.longest, seconds);
    out_.pipeline_seconds += share * slowest->run.time.seconds();
    out_.encode_seconds += share * (slowest->before + slowest->after);
    out_.exchange_seconds += share * exposed;
    out_.update_seconds += share * update;
    if (const Status counted = count_lost(step, runs, seconds, exposed, update); !counted)
      return counted.error();
    count_data(step);
    for (const GroupRun& run : runs) keep_peaks(run, step);
    if (number == 0) draw(*slowest);
    return Status::ok();
  }

  // Seconds of the pipeline with the given tasks: equal micro-batches, and equal stages, too.
  Result<double> seconds_with(const std::vector<TaskTime>& tasks) const {
    Result<PipelineCosts> costs = costs_of(tasks);
    if (!costs) return costs.error();
    const Result<PipelineRun> run = run_pipeline(program_, *costs);
    if (!run) return run.error();
    return run->time.seconds();
  }

  Status count_lost(const DealtStep& step, const std::vector<GroupRun>& runs, double seconds,
                    double exposed, double update) {
    const auto pieces = static_cast<std::size_t>(program_.shape.pieces());
    const auto batches = static_cast<std::size_t>(micro_batches_);
    Sums sums;
    sums.encoders.assign(plan_.encoders.size(), 0);
    std::vector<TaskTime> mean(pieces * batches), flat(pieces * batches);
    TaskTime of_all;
    double ends = 0, latest = 0, edges = 0;
    for (std::size_t piece = 0; piece < pieces; ++piece) {
      const auto p = static_cast<std::size_t>(program_.stage_of(static_cast<std::int32_t>(piece)));
      const auto gpus = static_cast<double>(places_[p].gpus);
      TaskTime sum;
      for (const GroupRun& run : runs)
        for (std::size_t m = 0; m < batches; ++m) {
          const TaskTime& task = run.tasks[piece * batches + m];
          sum.forward += task.forward;
          sum.backward += task.backward;
          sum.layers_backward += task.layers_backward;
          sum.encoder_forward += task.encoder_forward + task.encoder_backward;
          add(sums.llm, task.llm, gpus);
          sums.handover += gpus * task.handover;
          sums.offload += gpus * task.offload;
          sums.lost += gpus * task.lost;
          for (std::size_t i = 0; i < task.encoders.size(); ++i)
            sums.encoders[i] += gpus * task.encoders[i];
        }
      const double count = static_cast<double>(runs.size()) * static_cast<double>(batches);
      sum.forward /= count;
      sum.backward /= count;
      sum.layers_backward /= count;
      for (std::size_t m = 0; m < batches; ++m) mean[piece * batches + m] = sum;
      of_all.forward += sum.forward / static_cast<double>(pieces);
      of_all.backward += sum.backward / static_cast<double>(pieces);
      of_all.layers_backward += sum.layers_backward / static_cast<double>(pieces);
      PlaceFigures& figures = out_.places[p];
      const double share = 1.0 / static_cast<double>(plan_.steps);
      figures.micro_batch += share * (sum.forward + sum.backward);
      double total = 0;
      for (const GroupRun& run : runs) total += run.end();
      figures.busy += share * (sum.forward + sum.backward) * count / total;
      figures.encoding += share * sum.encoder_forward / total;
    }
    std::fill(flat.begin(), flat.end(), of_all);
    // Encoding on every GPU: the mean over the ranks is work, the rest is lost in the group.
    for (std::size_t i = 0; i < plan_.encoders.size(); ++i) {
      const EncoderTower& tower = plan_.encoders[i];
      if (tower.place != EncoderPlace::every_gpu) continue;
      const auto gpus = static_cast<double>(plan_.replica_gpus());
      for (const auto& unit : step.encoders[i]) {
        const GroupTime time = group_time(i, unit[0], 1, true);
        const double transfer = gather_seconds(i, time.tokens) * (tower.trained() ? 2 : 1);
        sums.encoders[i] += gpus * time.mean;
        sums.lost += gpus * std::max(0.0, time.forward + time.backward - time.mean);
        sums.handover += gpus * transfer;
      }
    }
    for (const GroupRun& run : runs) {
      ends += run.end();
      latest = std::max(latest, run.end());
      edges += run.before + run.after;
    }
    const auto count = static_cast<double>(runs.size());
    const Result<double> equal = seconds_with(mean);
    if (!equal) return equal.error();
    const Result<double> even = seconds_with(flat);
    if (!even) return even.error();
    const auto gpus = static_cast<double>(plan_.gpus);
    const double all = gpus * seconds;
    // All that is neither computed nor exchanged: what is left of the GPUs' time.
    double worked = sums.handover + sums.offload + sums.lost;
    for (const double encoder : sums.encoders) worked += encoder;
    const StepParts& l = sums.llm;
    worked += l.layers + l.recompute + l.logits + l.host + l.tensor + l.context + l.data;
    const double idle = std::max(0.0, gpus * latest - worked);
    LostTime lost;
    lost.stragglers = std::min(idle, gpus * std::max(0.0, latest - ends / count));
    // A pipeline's time is convex in its tasks' times, so the mean over the replicas is never below
    // the time of the mean; what is below is rounding.
    lost.unequal_batches =
        std::min(idle - lost.stragglers, gpus * std::max(0.0, (ends - edges) / count - *equal));
    lost.unequal_stages = std::min(idle - lost.stragglers - lost.unequal_batches,
                                   gpus * std::max(0.0, *equal - *even));
    lost.bubble = idle - lost.stragglers - lost.unequal_batches - lost.unequal_stages;
    lost.within_group = sums.lost;
    const double share = 1.0 / static_cast<double>(plan_.steps) / all;
    out_.lost.stragglers += share * lost.stragglers;
    out_.lost.unequal_batches += share * lost.unequal_batches;
    out_.lost.unequal_stages += share * lost.unequal_stages;
    out_.lost.bubble += share * lost.bubble;
    out_.lost.within_group += share * lost.within_group;
    WorkShares& work = out_.shares;
    work.llm += share * (l.layers + l.logits);
    work.recompute += share * l.recompute;
    work.host += share * l.host;
    work.collectives += share * (l.tensor + l.context + l.data);
    work.handover += share * sums.handover;
    work.offload += share * sums.offload;
    for (std::size_t i = 0; i < sums.encoders.size(); ++i)
      work.encoders[i] += share * sums.encoders[i];
    work.exchange += share * gpus * exposed;
    work.update += share * gpus * update;
    return Status::ok();
  }

  void count_data(const DealtStep& step) {
    const double share = 1.0 / static_cast<double>(plan_.steps);
    double tokens = 0, cut = 0;
    std::array<MultimodalForecast::ItemFigures, kItemKindCount> kinds;
    std::array<double, kItemKindCount> sizes{};
    std::array<double, kItemKindCount> flops{};
    // What each tower needs: forward once; trained: twice more; frozen: once more where something
    // before it is trained.
    for (const TrainingSequence& sequence : step.sequences) {
      tokens += static_cast<double>(sequence.tokens);
      cut += static_cast<double>(sequence.cut);
      out_.samples += share * static_cast<double>(sequence.samples);
      for (std::size_t kind = 0; kind < kItemKindCount; ++kind)
        for (const std::int32_t size : sequence.items[kind]) {
          kinds[kind].per_step += 1;
          sizes[kind] += size;
          kinds[kind].largest = std::max<double>(kinds[kind].largest, size);
        }
    }
    for (const EncoderTower& tower : plan_.encoders)
      for (const TrainingSequence& sequence : step.sequences)
        for (const std::int32_t size : sequence.items[tower.input])
          flops[tower.input] += encoder_flops(tower, model_.hidden, size) * (tower.frozen ? 1 : 3);
    double all = std::accumulate(flops.begin(), flops.end(), 0.0);
    const double room = static_cast<double>(llm_.global_batch) * static_cast<double>(llm_.sequence);
    const double llm = model_flops(model_, llm_) * tokens / room;
    all += plan_.llm_frozen ? llm * (trained_before() ? 2 : 1) / 3 : llm;
    out_.flops += share * all;
    out_.tokens += share * tokens;
    // Ragged sequences compute no padding.
    out_.padding += plan_.data.filling == SequenceFilling::ragged ? 0 : share * (1 - tokens / room);
    out_.cut += tokens + cut > 0 ? share * cut / (tokens + cut) : 0;
    if (out_.items.empty()) out_.items.resize(kItemKindCount);
    for (std::size_t kind = 0; kind < kItemKindCount; ++kind) {
      MultimodalForecast::ItemFigures& figures = out_.items[kind];
      figures.kind = kItemKinds[kind];
      figures.per_step += share * kinds[kind].per_step;
      figures.mean_size += share * sizes[kind];
      figures.largest = std::max(figures.largest, kinds[kind].largest);
    }
  }

  // --- Gradients and the optimizer.

  double llm_count(const Place& place) const {
    if (place.own != SIZE_MAX) return 0;
    if (!plan_.balanced_split) return parameters_per_rank(model_, llm_);
    const double table =
        static_cast<double>(model_.vocabulary) * static_cast<double>(model_.hidden);
    double tables = place.stage == 0 || place.stage + 1 == llm_.pipeline ? table : 0;
    if (llm_.pipeline == 1 && !model_.tied_embeddings) tables = 2 * table;
    return (place.layers * static_cast<double>(layer_parameters(model_)) + tables) / llm_.tensor;
  }

  // Parameters of an encoder's layers on a rank of a place.
  double encoder_count(const Place& place, std::size_t encoder) const {
    const EncoderTower& tower = plan_.encoders[encoder];
    const double share = tower.place == EncoderPlace::every_gpu ? (place.own == SIZE_MAX ? 1 : 0)
                                                                : place.shares[encoder];
    return share * static_cast<double>(tower.model.layers) *
           static_cast<double>(layer_parameters(tower.model)) / tower.layout.tensor;
  }

  double projector_count(const Place& place, std::size_t encoder) const {
    const EncoderTower& tower = plan_.encoders[encoder];
    const bool here =
        tower.place == EncoderPlace::every_gpu ? place.own == SIZE_MAX : place.ends[encoder];
    if (!here) return 0;
    const auto between = static_cast<double>(tower.projector_hidden);
    return between *
           (static_cast<double>(tower.merge) * static_cast<double>(tower.model.hidden) +
            static_cast<double>(model_.hidden)) /
           tower.layout.tensor;
  }

  double trained_encoder_count(const Place& place, std::size_t encoder) const {
    const EncoderTower& tower = plan_.encoders[encoder];
    return (tower.frozen ? 0 : encoder_count(place, encoder)) +
           (tower.projector_frozen ? 0 : projector_count(place, encoder));
  }

  double exposed_exchange(std::size_t p, double last_backward) const {
    const Place& place = places_[p];
    double all = 0;
    if (place.own == SIZE_MAX && !plan_.llm_frozen)
      all += exchange_seconds(llm_, cost_, llm_count(place));
    for (std::size_t i = 0; i < plan_.encoders.size(); ++i) {
      const double count = trained_encoder_count(place, i);
      if (count > 0) all += exchange_seconds(layouts_[i], cost_, count);
    }
    if (!plan_.overlapped_gradients || all == 0) return all;
    // The last bucket cannot be hidden: a layer of the place's.
    double layers = place.layers;
    for (std::size_t i = 0; i < plan_.encoders.size(); ++i)
      if (trained_encoder_count(place, i) > 0)
        layers += static_cast<double>(plan_.encoders[i].model.layers);
    layers = std::max(1.0, layers);
    const double shown = std::min(all, std::max(all / layers, all - last_backward));
    return shown + cost_.overlap_slowdown * (all - shown);
  }

  double update_seconds() const {
    double most = 0;
    for (const Place& place : places_) {
      double seconds = 0;
      const auto add_count = [&](double count, const TrainingPlan& layout) {
        const double shards = layout.sharding == Sharding::none
                                  ? 1.0
                                  : static_cast<double>(layout.data) * layout.context;
        if (plan_.offload.optimizer)
          // Gradients out in float32, weights back in 16 bits, and the host reads and writes 28
          // bytes of state at the same bandwidth.
          seconds += (4 + 2 + 28) * count / shards / plan_.offload.bandwidth;
        else
          seconds += traffic_seconds(cost_, cost_.optimizer_traffic * count / shards);
      };
      if (!plan_.llm_frozen) add_count(llm_count(place), llm_);
      for (std::size_t i = 0; i < plan_.encoders.size(); ++i)
        add_count(trained_encoder_count(place, i), layouts_[i]);
      most = std::max(most, seconds);
    }
    return cost_.step_overhead + most;
  }

  // --- Memory.

  struct Peak {
    double bytes = 0, llm = 0;
    std::vector<double> encoders;
    double working_tokens = 0;        // most that an encoder on the place computes at once
    std::vector<double> most_tokens;  // by encoder
  };

  // Bytes held at the fullest moment of each place: they follow from the order of its tasks.
  void keep_peaks(const GroupRun& run, const DealtStep& step) {
    for (std::size_t p = 0; p < places_.size(); ++p) {
      Peak& peak = peaks_[p];
      peak.most_tokens.resize(plan_.encoders.size());
      peak.encoders.resize(plan_.encoders.size());
      for (std::size_t i = 0; i < plan_.encoders.size(); ++i)
        for (const auto& unit : step.encoders[i])
          for (const auto& loads : unit)
            for (const EncoderLoad& load : loads)
              peak.most_tokens[i] = std::max(peak.most_tokens[i], load.tokens);
      if (static_cast<double>(run.run.peak_bytes[p].value) <= peak.bytes) continue;
      double now = 0, most = 0, largest = 0;
      std::vector<double> held(plan_.encoders.size(), 0), at_most = held;
      for (const PipelineTask& task : program_.tasks[p]) {
        const auto piece =
            static_cast<std::size_t>(program_.piece(static_cast<std::int32_t>(p), task.chunk));
        const TaskTime& time = run.tasks[piece * static_cast<std::size_t>(micro_batches_) +
                                         static_cast<std::size_t>(task.micro_batch)];
        if (task.work == Work::weight) continue;
        const double sign = task.work == Work::forward ? 1 : -1;
        now += sign * time.activations;
        largest = std::max(largest, time.activations);
        for (std::size_t i = 0; i < held.size(); ++i) held[i] += sign * time.encoder_activations[i];
        if (now <= most) continue;
        most = now;
        at_most = held;
      }
      peak.bytes = most;
      peak.encoders = at_most;
      peak.llm = most - std::accumulate(at_most.begin(), at_most.end(), 0.0);
      if (plan_.offload.activations && most > 2 * largest) {
        const double left = 2 * largest / most;
        peak.llm *= left;
        for (double& bytes : peak.encoders) bytes *= left;
      }
    }
  }

  TowerMemory states(std::string name, double trained, double frozen, const TrainingPlan& layout,
                     double layer) const {
    TowerMemory out;
    out.tower = std::move(name);
    const double ranks = static_cast<double>(layout.data) * layout.context;
    const auto shared = [&](Sharding from) { return layout.sharding >= from ? ranks : 1.0; };
    const bool fsdp = layout.sharding == Sharding::zero3;
    out.parameters = ((fsdp ? 4 : 2) * trained + 2 * frozen) / shared(Sharding::zero3);
    out.gradients = (fsdp ? 4 : layout.gradient_bytes()) * trained / shared(Sharding::zero2);
    out.optimizer = (fsdp ? 8 : 12) * trained / shared(Sharding::zero1);
    if (plan_.offload.optimizer) out.optimizer = 0;
    if (fsdp)
      out.gathered = layout.pipeline > 1 ? 6 * trained + 2 * frozen : 2 * 2 * layer / layout.tensor;
    return out;
  }

  void finish_memory() {
    for (std::size_t p = 0; p < places_.size(); ++p) {
      const Place& place = places_[p];
      PlaceMemory memory;
      memory.name = place.name;
      memory.reserved = cost_.reserved_memory;
      if (place.own == SIZE_MAX) {
        const double count = llm_count(place);
        TowerMemory tower =
            states("LLM", plan_.llm_frozen ? 0 : count, plan_.llm_frozen ? count : 0, llm_,
                   static_cast<double>(layer_parameters(model_)));
        tower.activations = peaks_[p].llm;
        memory.towers.push_back(std::move(tower));
        TrainingPlan whole = llm_;
        whole.recompute = Recompute::none;
        memory.working = layer_activation_bytes(model_, whole);
        const std::int32_t head = llm_.schedule == PipelineSchedule::zbv ? 0 : llm_.pipeline - 1;
        if (place.stage == head)
          memory.working = std::max(memory.working, logit_bytes(model_, llm_));
      }
      for (std::size_t i = 0; i < plan_.encoders.size(); ++i) {
        const EncoderTower& tower = plan_.encoders[i];
        const double trained = trained_encoder_count(place, i);
        const double frozen = encoder_count(place, i) + projector_count(place, i) - trained;
        if (trained + frozen <= 0) continue;
        TowerMemory bytes = states(tower.name, trained, frozen, layouts_[i],
                                   static_cast<double>(layer_parameters(tower.model)));
        // Encoded before the pipeline: all of a step's items are kept until it has ended.
        bytes.activations = tower.place == EncoderPlace::every_gpu
                                ? kept_per_token(i) * peaks_[p].most_tokens[i]
                                : peaks_[p].encoders[i];
        memory.towers.push_back(std::move(bytes));
        TrainingPlan one = layouts_[i];
        one.sequence = 1024;
        one.micro_batch = 1;
        one.recompute = Recompute::none;
        // A layer of one pass over the items; on every GPU they are taken one micro-batch at a
        // time.
        const double passes =
            tower.place == EncoderPlace::every_gpu ? static_cast<double>(micro_batches_) : 1;
        memory.working = std::max(memory.working, layer_activation_bytes(tower.model, one) / 1024 *
                                                      peaks_[p].most_tokens[i] / passes);
      }
      out_.memory.push_back(std::move(memory));
    }
  }

  // --- The picture.

  void draw(const GroupRun& run) {
    out_.drawn_seconds = run.end();
    const auto task_time = [&](std::size_t p, const PipelineTask& task) -> const TaskTime& {
      const auto piece =
          static_cast<std::size_t>(program_.piece(static_cast<std::int32_t>(p), task.chunk));
      return run.tasks[piece * static_cast<std::size_t>(micro_batches_) +
                       static_cast<std::size_t>(task.micro_batch)];
    };
    using Kind = DrawnTask::Kind;
    for (std::size_t p = 0; p < places_.size(); ++p) {
      const auto place = static_cast<std::int32_t>(p);
      if (run.before > 0) out_.drawn.push_back({place, 0, run.before, Kind::encoder, 0});
      for (std::size_t t = 0; t < program_.tasks[p].size(); ++t) {
        const PipelineTask& task = program_.tasks[p][t];
        const TaskSpan& span = run.run.spans[p][t];
        const double begin = run.before + span.start.seconds();
        const double end = run.before + span.end.seconds();
        const TaskTime& time = task_time(p, task);
        const bool forward = task.work == Work::forward;
        const bool own = places_[p].own != SIZE_MAX;
        const double encoding = own       ? end - begin
                                : forward ? time.encoder_forward
                                : task.work == Work::backward
                                    ? std::min(time.encoder_backward, end - begin)
                                    : 0;
        const Kind kind = forward ? Kind::forward : Kind::backward;
        // Forward the encoder comes first, backward last.
        const double cut = forward ? begin + encoding : end - encoding;
        if (cut > begin)
          out_.drawn.push_back(
              {place, begin, cut, forward ? Kind::encoder : kind, task.micro_batch});
        if (cut < end)
          out_.drawn.push_back({place, cut, end, forward ? kind : Kind::encoder, task.micro_batch});
      }
      if (run.after > 0)
        out_.drawn.push_back({place, run.end() - run.after, run.end(), Kind::encoder, 0});
    }
    std::map<std::string, double> path;
    for (const PipelineStep& on : longest_path(program_, run.run)) {
      const auto p = static_cast<std::size_t>(on.stage);
      const PipelineTask& task = program_.tasks[p][on.task];
      const TaskSpan& span = run.run.spans[p][on.task];
      const TaskTime& time = task_time(p, task);
      const double all = span.end.seconds() - span.start.seconds();
      double encoding = task.work == Work::forward    ? time.encoder_forward
                        : task.work == Work::backward ? time.encoder_backward
                                                      : 0;
      if (places_[p].own != SIZE_MAX) encoding = all;
      encoding = std::min(encoding, all);
      if (encoding > 0) path[fmt::format("encoding on {}", places_[p].name)] += encoding;
      if (all > encoding) path[fmt::format("the LLM on {}", places_[p].name)] += all - encoding;
    }
    if (run.before + run.after > 0) path["encoding on every GPU"] += run.before + run.after;
    for (const auto& [what, seconds] : path) out_.path.push_back({what, what, seconds, {}});
    std::stable_sort(
        out_.path.begin(), out_.path.end(),
        [](const ForecastPart& a, const ForecastPart& b) { return a.value > b.value; });
  }

  void finish() {
    for (std::size_t p = 0; p < places_.size(); ++p) {
      PlaceFigures& figures = out_.places[p];
      figures.name = places_[p].name;
      figures.gpus = places_[p].gpus * groups_;
      figures.layers = places_[p].layers;
    }
    for (MultimodalForecast::ItemFigures& figures : out_.items)
      figures.mean_size = figures.per_step > 0 ? figures.mean_size / figures.per_step : 0;
    std::erase_if(out_.items, [](const auto& figures) { return figures.per_step == 0; });
    finish_memory();
  }

  const MultimodalPlan& plan_;
  const TrainingPlan& llm_;
  const Transformer& model_;
  const CostParameters& cost_;
  std::vector<TrainingPlan> layouts_;  // of encoders, with all their data-parallel ranks
  std::int32_t groups_ = 1, per_group_ = 1, micro_batches_ = 1, own_stages_ = 0;
  std::vector<Place> places_;
  PipelineProgram program_;
  std::vector<PieceTime> full_;  // by place: a chunk of the LLM's layers, for full sequences
  PieceTime embedding_, logits_;
  double handover_ = 0, weight_share_ = 0;
  std::vector<Peak> peaks_;
  SimulatedSteps out_;
};

}  // namespace

Result<SimulatedSteps> simulate_steps(const MultimodalPlan& plan, const CostParameters& cost) {
  return Simulation(plan, cost).run();
}

}  // namespace lockstep::sim
