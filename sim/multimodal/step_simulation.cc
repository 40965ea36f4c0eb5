#include "sim/multimodal/step_simulation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "sim/multimodal/place_memory.h"
#include "sim/multimodal/places.h"
#include "sim/multimodal/task_times.h"

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

class Simulation {
 public:
  Simulation(const MultimodalPlan& plan, const CostParameters& cost)
      : towers_(plan, cost), plan_(plan), llm_(towers_.llm), model_(towers_.model), cost_(cost) {}

  Result<SimulatedSteps> run() {
    if (const Status checked = check_size(); !checked) return checked.error();
    Result<DealtStep> first = deal_step(plan_, 0);
    if (!first) return first.error();
    places_ = make_places(towers_, *first);
    const Result<PipelineProgram> program = make_pipeline(
        llm_.schedule,
        {static_cast<std::int32_t>(places_.size()), towers_.micro_batches, llm_.chunks});
    if (!program) return program.error();
    program_ = *program;
    times_.emplace(towers_, places_, own_stages(places_), program_);
    memory_.emplace(towers_, places_, program_);
    out_.shares.encoders.assign(plan_.encoders.size(), 0);
    out_.places.resize(places_.size());
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
                         towers_.micro_batches * llm_.data * static_cast<double>(plan_.steps);
    if (tasks <= static_cast<double>(kMostTasks)) return Status::ok();
    return Error{fmt::format("{} steps of {} micro-batches on {} replicas are too many to simulate",
                             plan_.steps, towers_.micro_batches, llm_.data),
                 {},
                 "use fewer steps, a smaller global_batch or larger micro-batches"};
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
      const double weight = program_.split ? times_->weight_share() * task.layers_backward : 0;
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
    out.tasks.reserve(static_cast<std::size_t>(pieces) *
                      static_cast<std::size_t>(towers_.micro_batches));
    for (std::int32_t piece = 0; piece < pieces; ++piece)
      for (std::int32_t m = 0; m < towers_.micro_batches; ++m)
        out.tasks.push_back(times_->of(step, group, piece, static_cast<std::size_t>(m)));
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
      for (std::int32_t r = 0; r < towers_.per_group; ++r) {
        const auto& loads = step.encoders[i][group * static_cast<std::size_t>(towers_.per_group) +
                                             static_cast<std::size_t>(r)][0];
        const GroupTime time = towers_.group_time(i, loads, 1, true);
        const double transfer = towers_.gather_seconds(i, time.tokens);
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
    for (std::int32_t group = 0; group < towers_.groups; ++group) {
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
    for (const GroupRun& run : runs) memory_->keep(step, run.tasks, run.run);
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
    const auto batches = static_cast<std::size_t>(towers_.micro_batches);
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
        const GroupTime time = towers_.group_time(i, unit[0], 1, true);
        const double transfer = towers_.gather_seconds(i, time.tokens) * (tower.trained() ? 2 : 1);
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
    all += plan_.llm_frozen ? llm * (towers_.trained_before() ? 2 : 1) / 3 : llm;
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

  double exposed_exchange(std::size_t p, double last_backward) const {
    const Place& place = places_[p];
    double all = 0;
    if (place.own == SIZE_MAX && !plan_.llm_frozen)
      all += exchange_time(llm_, cost_, llm_count(towers_, place)).total();
    for (std::size_t i = 0; i < plan_.encoders.size(); ++i) {
      const double count = trained_encoder_count(towers_, place, i);
      if (count > 0) all += exchange_time(towers_.layouts[i], cost_, count).total();
    }
    if (!plan_.overlapped_gradients || all == 0) return all;
    // The last bucket cannot be hidden: a layer of the place's.
    double layers = place.layers;
    for (std::size_t i = 0; i < plan_.encoders.size(); ++i)
      if (trained_encoder_count(towers_, place, i) > 0)
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
      if (!plan_.llm_frozen) add_count(llm_count(towers_, place), llm_);
      for (std::size_t i = 0; i < plan_.encoders.size(); ++i)
        add_count(trained_encoder_count(towers_, place, i), towers_.layouts[i]);
      most = std::max(most, seconds);
    }
    return cost_.step_overhead + most;
  }

  // --- The picture.

  void draw(const GroupRun& run) {
    out_.drawn_seconds = run.end();
    const auto task_time = [&](std::size_t p, const PipelineTask& task) -> const TaskTime& {
      const auto piece =
          static_cast<std::size_t>(program_.piece(static_cast<std::int32_t>(p), task.chunk));
      return run.tasks[piece * static_cast<std::size_t>(towers_.micro_batches) +
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
      figures.gpus = places_[p].gpus * towers_.groups;
      figures.layers = places_[p].layers;
    }
    for (MultimodalForecast::ItemFigures& figures : out_.items)
      figures.mean_size = figures.per_step > 0 ? figures.mean_size / figures.per_step : 0;
    std::erase_if(out_.items, [](const auto& figures) { return figures.per_step == 0; });
    out_.memory = memory_->finish();
  }

  const TowerTimes towers_;
  const MultimodalPlan& plan_;
  const TrainingPlan& llm_;
  const Transformer& model_;
  const CostParameters& cost_;
  std::vector<Place> places_;
  PipelineProgram program_;
  // Once the places are known.
  std::optional<TaskTimes> times_;
  std::optional<MemoryOfPlaces> memory_;
  SimulatedSteps out_;
};

}  // namespace

Result<SimulatedSteps> simulate_steps(const MultimodalPlan& plan, const CostParameters& cost) {
  return Simulation(plan, cost).run();
}

}  // namespace lockstep::sim
