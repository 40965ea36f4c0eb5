#include "sim/multimodal/step_simulation.h"

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "sim/multimodal/data_figures.h"
#include "sim/multimodal/place_exchange.h"
#include "sim/multimodal/place_memory.h"
#include "sim/multimodal/places.h"
#include "sim/multimodal/task_times.h"
#include "sim/transformer/plan_network.h"
#include "sim/transformer/slow_replicas.h"

namespace lockstep::sim {
namespace {

// The most tasks of all drawn steps and pipelines that are simulated.
constexpr std::int64_t kMaxTasks = std::int64_t{1} << 24U;

class Simulation {
 public:
  Simulation(const MultimodalPlan& plan, const CostParameters& cost)
      : towers_(plan, cost), plan_(plan), llm_(towers_.llm), model_(towers_.model), cost_(cost) {}

  // Before the first step.
  Status check() const {
    if (const Status checked = check_size(); !checked) return checked;
    return check_network(plan_.gpus, cost_);
  }

  // Runs the next step.
  Status add(const DealtStep& step) {
    if (steps_ == 0) {
      if (const Status prepared = prepare(step); !prepared) return prepared;
      out_.shares.encoders.assign(plan_.encoders.size(), 0);
      out_.places.resize(places_.size());
    }
    return run_step(step, steps_++);
  }

  // After all of them.
  SimulatedSteps finish() {
    for (std::size_t p = 0; p < places_.size(); ++p) {
      PlaceFigures& figures = out_.places[p];
      figures.name = places_[p].name;
      figures.gpus = places_[p].gpus * towers_.groups;
      figures.layers = places_[p].layers;
    }
    finish_data(out_);
    out_.memory = memory_->finish();
    return std::move(out_);
  }

  Result<StepPicture> draw_first() {
    if (const Status checked = check(); !checked) return checked.error();
    const Result<DealtStep> first = deal_step(plan_, 0);
    if (!first) return first.error();
    if (const Status prepared = prepare(*first); !prepared) return prepared.error();
    const Result<PricedStep> priced = price_step(*first);
    if (!priced) return priced.error();
    const StepProgram program = program_of(priced->groups);
    const Result<ExecutionResult> ran = execute_step(program, /*record_issues=*/true);
    if (!ran) return ran.error();
    std::vector<std::string> names;
    for (const Place& place : places_) names.push_back(place.name);
    return draw_step(program, *ran, names);
  }

 private:
  // The places, and the order of their tasks.
  Status prepare(const DealtStep& first) {
    places_ = make_places(towers_, first);
    Result<PipelineProgram> program = make_pipeline(
        llm_.schedule,
        {static_cast<std::int32_t>(places_.size()), towers_.micro_batches, llm_.chunks});
    if (!program) return program.error();
    program_ = std::move(*program);
    times_.emplace(towers_, places_, own_stages(places_), program_);
    find_slow();
    exchanges_ = place_exchanges(towers_, places_);
    if (const Status checked = check_exchanges(); !checked) return checked;
    message_bytes_ = times_->mean_message_bytes(first);
    memory_.emplace(towers_, places_, program_);
    return Status::ok();
  }

  Status check_size() const {
    const std::int64_t passes = splits_backward(llm_.schedule) ? 3 : 2;
    std::int64_t stages = llm_.pipeline;
    for (const EncoderTower& tower : plan_.encoders)
      if (tower.place == EncoderPlace::own_gpus) stages += tower.layout.pipeline;
    const double tasks = static_cast<double>(passes) * static_cast<double>(stages) * llm_.chunks *
                         towers_.micro_batches * llm_.data * static_cast<double>(plan_.steps);
    if (tasks <= static_cast<double>(kMaxTasks)) return Status::ok();
    return Error{fmt::format("{} steps of {} micro-batches on {} replicas are too many to simulate",
                             plan_.steps, towers_.micro_batches, llm_.data),
                 {},
                 "use fewer steps, a smaller global_batch or larger micro-batches"};
  }

  // Each bucket is a call in each group of replicas.
  Status check_exchanges() const {
    double calls = 0;
    for (const PlaceExchange& place : exchanges_)
      for (const StepExchange& one : place.step)
        calls += (one.each_micro_batch ? 1.0 + towers_.micro_batches : 2.0) *
                 (one.buckets == 0 ? 1 : one.buckets * llm_.chunks);
    if (calls * towers_.groups <= static_cast<double>(kMaxTasks)) return Status::ok();
    return Error{"the gradients of all encoders and replicas are too many calls to simulate",
                 {},
                 "use fewer encoders, replicas or GPUs"};
  }

  // --- GPUs that are slow.

  // What tasks take on GPUs whose kernels take longer. Refers to itself: it stays where it is.
  struct SlowTimes {
    SlowTimes(const MultimodalPlan& plan, const CostParameters& by)
        : cost(by), towers(plan, cost) {}
    CostParameters cost;
    TowerTimes towers;
    std::optional<TaskTimes> times;
  };

  void find_slow() {
    if (cost_.slow.empty()) return;
    const auto groups = static_cast<std::size_t>(towers_.groups);
    slowest_ = 0;
    around_.assign(groups, 0);
    for (std::size_t group = 0; group < groups; ++group)
      for (const Place& place : places_) {
        const bool of_llm = place.own == SIZE_MAX;
        const GpuRange all =
            of_llm ? stage_gpus(llm_, place.stage) : own_gpus(plan_, place.own, place.stage);
        const std::int64_t each = all.count / towers_.groups;
        const double slowness =
            slowest_of(cost_.slow, all.first + static_cast<std::int64_t>(group) * each, each);
        slowness_.push_back(slowness);
        slowest_ = std::max(slowest_, slowness);
        if (of_llm) around_[group] = std::max(around_[group], slowness);
      }
    for (const std::vector<double>* some : {&slowness_, &around_})
      for (const double slowness : *some) {
        const auto [known, is_new] = slow_.try_emplace(slowness, plan_, slowed(cost_, slowness));
        if (is_new)
          known->second.times.emplace(known->second.towers, places_, own_stages(places_), program_);
      }
  }

  const TaskTimes& times_of(std::size_t group, std::int32_t piece) const {
    if (slowness_.empty()) return *times_;
    const auto place = static_cast<std::size_t>(program_.stage_of(piece));
    return *slow_.at(slowness_[group * places_.size() + place]).times;
  }

  // Of encoding on every GPU of a group, which is over when the slowest has done its part.
  const TowerTimes& towers_around(std::size_t group) const {
    return around_.empty() ? towers_ : slow_.at(around_[group]).towers;
  }

  // --- A step.

  // The GPUs' work in a step, in GPU-seconds.
  struct Sums {
    StepParts llm;
    double handover = 0, offload = 0, lost = 0;
    std::vector<double> encoders;
  };

  // The tasks of a drawn step. A group of replicas that move together is one pipeline.
  struct PricedStep {
    std::vector<StepReplica> groups;
    std::vector<TaskTime> pieces;  // sums over the groups and their micro-batches
    Sums sums;
  };

  Result<PieceCost> cost_of(std::int32_t piece, const TaskTime& task) const {
    if (!(task.forward + task.backward <= kLongestPiece))
      return Error{"a micro-batch takes a pipeline stage more than a day",
                   {},
                   "use smaller micro-batches, fewer items, more ranks or smaller models"};
    const double weight = program_.split ? task.weight : 0;
    PieceCost out{.forward = picos_of_seconds(task.forward),
                  .backward = picos_of_seconds(task.backward - weight),
                  .weight = picos_of_seconds(weight)};
    const bool own = places_[static_cast<std::size_t>(program_.stage_of(piece))].own != SIZE_MAX;
    out.encode_forward = own ? out.forward : picos_of_seconds(task.encoder_forward);
    out.encode_backward = own ? out.backward : picos_of_seconds(task.encoder_backward);
    return out;
  }

  Result<PricedStep> price_step(const DealtStep& step) {
    PricedStep out;
    out.sums.encoders.assign(plan_.encoders.size(), 0);
    out.pieces.resize(static_cast<std::size_t>(program_.shape.pieces()));
    memory_->keep_items(step);
    if (places_.size() > 1) send_ = picos_of_seconds(times_->mean_handover(step).message);
    for (std::size_t group = 0; group < static_cast<std::size_t>(towers_.groups); ++group) {
      StepReplica replica;
      replica.costs.send = send_;
      std::vector<TaskTime> tasks;  // by piece x micro-batch
      tasks.reserve(out.pieces.size() * static_cast<std::size_t>(towers_.micro_batches));
      for (std::int32_t piece = 0; piece < program_.shape.pieces(); ++piece)
        for (std::int32_t m = 0; m < towers_.micro_batches; ++m) {
          tasks.push_back(
              times_of(group, piece).of(step, group, piece, static_cast<std::size_t>(m)));
          const Result<PieceCost> cost = cost_of(piece, tasks.back());
          if (!cost) return cost.error();
          replica.costs.unequal.push_back(*cost);
          add_task(tasks.back(), piece, out);
        }
      memory_->keep_tasks(tasks);
      encode_around(step, group, replica);
      out.groups.push_back(std::move(replica));
    }
    return out;
  }

  void add_task(const TaskTime& task, std::int32_t piece, PricedStep& out) const {
    const auto gpus =
        static_cast<double>(places_[static_cast<std::size_t>(program_.stage_of(piece))].gpus);
    TaskTime& sum = out.pieces[static_cast<std::size_t>(piece)];
    sum.forward += task.forward;
    sum.backward += task.backward;
    sum.weight += task.weight;
    sum.encoder_forward += task.encoder_forward;
    sum.encoder_backward += task.encoder_backward;
    add_times(out.sums.llm, task.llm, gpus);
    out.sums.handover += gpus * task.handover;
    out.sums.offload += gpus * task.offload;
    out.sums.lost += gpus * task.lost;
    for (std::size_t i = 0; i < task.encoders.size(); ++i)
      out.sums.encoders[i] += gpus * task.encoders[i];
  }

  // Encoding on every GPU, before the pipeline and after it.
  void encode_around(const DealtStep& step, std::size_t group, StepReplica& replica) const {
    double before = 0, after = 0;
    for (std::size_t i = 0; i < plan_.encoders.size(); ++i) {
      const EncoderTower& tower = plan_.encoders[i];
      if (tower.place != EncoderPlace::every_gpu) continue;
      double forward = 0, backward = 0;
      for (std::int32_t r = 0; r < towers_.per_group; ++r) {
        const auto& loads = step.encoders[i][group * static_cast<std::size_t>(towers_.per_group) +
                                             static_cast<std::size_t>(r)][0];
        const GroupTime time = towers_around(group).group_time(i, loads, 1, true);
        const double transfer = towers_.gather_seconds(i, time.tokens);
        forward = std::max(forward, time.forward + transfer);
        backward = std::max(backward, time.backward + (tower.trained() ? transfer : 0));
      }
      before += forward;
      after += backward;
    }
    replica.before = picos_of_seconds(before);
    replica.after = picos_of_seconds(after);
  }

  // Each tower's gradients of a place are summed when all pipelines have done their part of them.
  // One replica stands for all.
  StepProgram program_of(const std::vector<StepReplica>& replicas) {
    std::vector<StageExchange> exchanges;
    std::vector<StageOnNetwork> stages;
    for (const PlaceExchange& place : exchanges_) {
      exchanges.push_back(place.step);
      stages.push_back(place.on_network);
    }
    StepProgram out =
        make_step_program(program_, replicas, exchanges, picos_of_seconds(update_seconds()));
    // The same in all steps.
    std::optional<StepLinks>& links = replicas.size() > 1 ? links_ : links_of_one_;
    if (cost_.network && !links) {
      std::vector<std::int32_t> each(static_cast<std::size_t>(towers_.groups), 0);
      if (replicas.size() > 1) std::iota(each.begin(), each.end(), 0);
      links = step_links(cost_, plan_.gpus, out, stages, message_bytes_, each);
    }
    out.links = links;
    return out;
  }

  // When the groups' pipelines have ended, in seconds.
  struct Ends {
    double latest = 0, sum = 0;
    double pipeline = 0, around = 0;  // of the latest: its tasks, and encoding around them
    double edges = 0;                 // encoding around the tasks, summed over the groups
    double gathering = 0;             // waits for parameters: the mean over the GPUs
  };

  Ends ends_of(const PricedStep& priced, const StepProgram& program,
               const ExecutionResult& ran) const {
    Ends out;
    for (std::size_t group = 0; group < priced.groups.size(); ++group) {
      const StepReplica& replica = priced.groups[group];
      Picos last;
      for (std::size_t p = 0; p < places_.size(); ++p)
        last = std::max(last, program.tasks_end(group * places_.size() + p, ran));
      const double end = (last + replica.after).seconds();
      const double around = (replica.before + replica.after).seconds();
      out.sum += end;
      out.edges += around;
      if (end <= out.latest) continue;
      out.latest = end;
      out.pipeline = end - around;
      out.around = around;
    }
    double gpus = 0;
    for (std::size_t rank = 0; rank < ran.classes.size(); ++rank) {
      const auto own = static_cast<double>(places_[rank % places_.size()].gpus);
      gpus += own;
      for (const StepInterval& one : intervals(program, rank, ran.classes[rank]))
        if (one.work.kind == StepWork::Kind::gather)
          out.gathering += own * (one.end - one.begin).seconds();
    }
    out.gathering /= gpus;
    return out;
  }

  Status run_step(const DealtStep& step, std::int64_t number) {
    const Result<PricedStep> priced = price_step(step);
    if (!priced) return priced.error();
    const StepProgram program = program_of(priced->groups);
    const Result<ExecutionResult> ran = execute_step(program);
    if (!ran) return ran.error();
    const Ends ends = ends_of(*priced, program, *ran);
    const double seconds = ran->end.seconds();
    const double update = update_seconds();
    const double exposed = std::max(0.0, seconds - update - ends.latest);
    const double share = 1.0 / static_cast<double>(plan_.steps);
    out_.seconds += share * seconds;
    out_.shortest = number == 0 ? seconds : std::min(out_.shortest, seconds);
    out_.longest = std::max(out_.longest, seconds);
    out_.pipeline_seconds += share * ends.pipeline;
    out_.encode_seconds += share * ends.around;
    out_.exchange_seconds += share * (exposed + ends.gathering);
    out_.update_seconds += share * update;
    if (const Status counted = count_lost(step, *priced, ends, seconds, exposed, update); !counted)
      return counted.error();
    add_data(plan_, towers_, step, out_);
    return Status::ok();
  }

  // Seconds of the tasks of a pipeline with equal micro-batches: `pieces` are the tasks by piece.
  // `before`: seconds of encoding before them, which do not count.
  Result<double> seconds_with(const std::vector<TaskTime>& pieces, double before) {
    StepReplica replica;
    replica.before = picos_of_seconds(before);
    PipelineCosts& costs = replica.costs;
    costs.send = send_;
    for (std::size_t piece = 0; piece < pieces.size(); ++piece) {
      const Result<PieceCost> cost = cost_of(static_cast<std::int32_t>(piece), pieces[piece]);
      if (!cost) return cost.error();
      costs.pieces.push_back(*cost);
    }
    const StepProgram program = program_of({replica});
    const Result<ExecutionResult> ran = execute_step(program);
    if (!ran) return ran.error();
    Picos end;
    for (std::size_t p = 0; p < places_.size(); ++p)
      end = std::max(end, program.tasks_end(p, *ran));
    return (end - replica.before).seconds();
  }

  // Means over the groups and their micro-batches.
  struct MeanTasks {
    std::vector<TaskTime> pieces;
    TaskTime all;  // the mean over the pieces
  };

  static MeanTasks mean_tasks(const PricedStep& priced, double count) {
    MeanTasks out;
    const auto pieces = static_cast<double>(priced.pieces.size());
    for (TaskTime mean : priced.pieces) {
      for (double TaskTime::*part : {&TaskTime::forward, &TaskTime::backward, &TaskTime::weight,
                                     &TaskTime::encoder_forward, &TaskTime::encoder_backward}) {
        mean.*part /= count;
        out.all.*part += mean.*part / pieces;
      }
      out.pieces.push_back(std::move(mean));
    }
    return out;
  }

  // `count`: tasks of each piece.
  void count_places(const MeanTasks& mean, double count, const Ends& ends) {
    const double share = 1.0 / static_cast<double>(plan_.steps);
    for (std::size_t piece = 0; piece < mean.pieces.size(); ++piece) {
      const TaskTime& task = mean.pieces[piece];
      PlaceFigures& figures = out_.places[static_cast<std::size_t>(
          program_.stage_of(static_cast<std::int32_t>(piece)))];
      figures.micro_batch += share * (task.forward + task.backward);
      figures.busy += share * (task.forward + task.backward) * count / ends.sum;
      figures.encoding += share * (task.encoder_forward + task.encoder_backward) * count / ends.sum;
    }
  }

  // Adds encoding on every GPU: the mean over the ranks is work, the rest is lost in the group.
  void add_encoding_around(const DealtStep& step, Sums& sums) const {
    for (std::size_t i = 0; i < plan_.encoders.size(); ++i) {
      const EncoderTower& tower = plan_.encoders[i];
      if (tower.place != EncoderPlace::every_gpu) continue;
      const auto gpus = static_cast<double>(plan_.replica_gpus());
      for (std::size_t unit = 0; unit < step.encoders[i].size(); ++unit) {
        const GroupTime time = towers_around(unit / static_cast<std::size_t>(towers_.per_group))
                                   .group_time(i, step.encoders[i][unit][0], 1, true);
        const double transfer = towers_.gather_seconds(i, time.tokens) * (tower.trained() ? 2 : 1);
        sums.encoders[i] += gpus * time.mean;
        sums.lost += gpus * std::max(0.0, time.forward + time.backward - time.mean);
        sums.handover += gpus * transfer;
      }
    }
  }

  // GPU-seconds in which GPUs compute or exchange.
  static double worked_seconds(const Sums& sums, double gpus, const Ends& ends) {
    double out = sums.handover + sums.offload + sums.lost;
    for (const double encoder : sums.encoders) out += encoder;
    out += gpus * ends.gathering;
    const StepParts& l = sums.llm;
    out += l.layers + l.recompute + l.logits + l.host + l.tensor + l.context + l.expert + l.data;
    return out;
  }

  // Divides the idle GPU-seconds by their reasons. Each reason gets at most what the ones before it
  // leave. `equal`: seconds of a pipeline whose tasks are the mean of their piece; `even`: the mean
  // of all pieces.
  static LostTime reasons_of(double idle, double gpus, double groups, const Ends& ends,
                             double equal, double even) {
    LostTime out;
    out.stragglers = std::min(idle, gpus * std::max(0.0, ends.latest - ends.sum / groups));
    // A pipeline's time is convex in its tasks' times, so the mean over the replicas is never below
    // the time of the mean, except by rounding.
    out.unequal_batches = std::min(idle - out.stragglers,
                                   gpus * std::max(0.0, (ends.sum - ends.edges) / groups - equal));
    out.unequal_stages =
        std::min(idle - out.stragglers - out.unequal_batches, gpus * std::max(0.0, equal - even));
    out.bubble = idle - out.stragglers - out.unequal_batches - out.unequal_stages;
    return out;
  }

  Status count_lost(const DealtStep& step, const PricedStep& priced, const Ends& ends,
                    double seconds, double exposed, double update) {
    const auto groups = static_cast<double>(priced.groups.size());
    const double count = groups * static_cast<double>(towers_.micro_batches);
    const MeanTasks mean = mean_tasks(priced, count);
    count_places(mean, count, ends);
    Sums sums = priced.sums;
    add_encoding_around(step, sums);
    double before = 0;
    for (const StepReplica& group : priced.groups) before += group.before.seconds() / groups;
    const Result<double> equal = seconds_with(mean.pieces, before);
    if (!equal) return equal.error();
    const Result<double> even =
        seconds_with(std::vector<TaskTime>(mean.pieces.size(), mean.all), before);
    if (!even) return even.error();
    const auto gpus = static_cast<double>(plan_.gpus);
    const double idle = std::max(0.0, gpus * ends.latest - worked_seconds(sums, gpus, ends));
    LostTime lost = reasons_of(idle, gpus, groups, ends, *equal, *even);
    lost.within_group = sums.lost;
    // Shares of the GPUs' time in all steps.
    const double share = 1.0 / static_cast<double>(plan_.steps) / (gpus * seconds);
    out_.lost.stragglers += share * lost.stragglers;
    out_.lost.unequal_batches += share * lost.unequal_batches;
    out_.lost.unequal_stages += share * lost.unequal_stages;
    out_.lost.bubble += share * lost.bubble;
    out_.lost.within_group += share * lost.within_group;
    add_work(sums, share);
    out_.shares.exchange += share * gpus * (exposed + ends.gathering);
    out_.shares.update += share * gpus * update;
    return Status::ok();
  }

  void add_work(const Sums& sums, double share) {
    const StepParts& l = sums.llm;
    WorkShares& work = out_.shares;
    work.llm += share * (l.layers + l.logits);
    work.recompute += share * l.recompute;
    work.host += share * l.host;
    work.collectives += share * (l.tensor + l.context + l.expert);
    work.exchange += share * l.data;
    work.handover += share * sums.handover;
    work.offload += share * sums.offload;
    for (std::size_t i = 0; i < sums.encoders.size(); ++i)
      work.encoders[i] += share * sums.encoders[i];
  }

  // --- Gradients and the optimizer.

  double update_seconds() const {
    double most = 0;
    for (const Place& place : places_) {
      double seconds = 0;
      const auto add_count = [&](const RankParameters& count, const TrainingPlan& layout) {
        const double mine = updated(count, layout);
        if (plan_.offload.optimizer)
          // Per parameter, the GPU sends the gradient (float32) and receives the weight (16 bits);
          // the host reads and writes 28 bytes of state, at the same bandwidth.
          seconds += (4 + 2 + 28) * mine / plan_.offload.bandwidth;
        else
          seconds += slowest_ * traffic_seconds(cost_, cost_.optimizer_traffic * mine);
      };
      if (!plan_.llm_frozen) add_count(llm_count(towers_, place), llm_);
      for (std::size_t i = 0; i < plan_.encoders.size(); ++i)
        add_count({.dense = trained_encoder_count(towers_, place, i)}, towers_.layouts[i]);
      most = std::max(most, seconds);
    }
    return cost_.step_overhead + most;
  }

  const TowerTimes towers_;
  const MultimodalPlan& plan_;
  const TrainingPlan& llm_;
  const Transformer& model_;
  const CostParameters& cost_;
  std::vector<Place> places_;
  PipelineProgram program_;
  std::vector<PlaceExchange> exchanges_;  // by place
  Picos send_;                // a message that overlaps with tasks, in the step that is simulated
  double message_bytes_ = 0;  // of it, in the first step
  std::optional<StepLinks> links_, links_of_one_;  // of all replicas' program, and of one's
  // Once the places are known.
  std::optional<TaskTimes> times_;
  std::optional<MemoryOfPlaces> memory_;
  // If the machine has slow ranks: how slow each group's GPUs are, by group x place, and of all of
  // its places of the LLM; the times for each of these factors; the slowest of all.
  std::vector<double> slowness_, around_;
  std::map<double, SlowTimes> slow_;
  double slowest_ = 1;
  std::int64_t steps_ = 0;  // that were run
  SimulatedSteps out_;
};

}  // namespace

std::vector<Result<SimulatedSteps>> simulate_each(const std::vector<PricedPlan>& plans) {
  std::deque<Simulation> simulations;  // they stay where they are
  std::vector<Status> states;
  std::vector<const MultimodalPlan*> drawn;
  std::vector<std::size_t> numbers;  // of these, in `plans`
  std::int64_t steps = 0;
  for (const PricedPlan& one : plans) {
    simulations.emplace_back(*one.plan, *one.cost);
    states.push_back(simulations.back().check());
    if (!states.back()) continue;
    drawn.push_back(one.plan);
    numbers.push_back(states.size() - 1);
    steps = std::max(steps, one.plan->steps);
  }
  const std::vector<DrawnTogether> together = drawn_together(drawn);
  const auto run = [&](std::int64_t step, const std::vector<std::size_t>& alike,
                       Result<DealtStep> dealt) {
    const MultimodalPlan* dealt_to = nullptr;
    for (const std::size_t i : alike) {
      Status& state = states[numbers[i]];
      if (!state || step >= drawn[i]->steps) continue;
      if (!dealt) {
        state = dealt.error();
        continue;
      }
      if (dealt_to == nullptr || !encodes_alike(*dealt_to, *drawn[i]))
        deal_encoders(*drawn[i], *dealt);
      dealt_to = drawn[i];
      state = simulations[numbers[i]].add(*dealt);
    }
  };
  for (std::int64_t step = 0; step < steps; ++step)
    arrange_each(drawn, together, static_cast<std::uint64_t>(step),
                 [&](const std::vector<std::size_t>& alike, Result<DealtStep> dealt) {
                   run(step, alike, std::move(dealt));
                 });
  std::vector<Result<SimulatedSteps>> out;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    if (states[i])
      out.emplace_back(simulations[i].finish());
    else
      out.emplace_back(states[i].error());
  }
  return out;
}

Result<StepPicture> draw_first_step(const MultimodalPlan& plan, const CostParameters& cost) {
  return Simulation(plan, cost).draw_first();
}

}  // namespace lockstep::sim
