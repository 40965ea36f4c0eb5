#include "reports/forecasts/scenario.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/quantities.h"
#include "base/tables.h"
#include "base/text.h"
#include "reports/findings/reports.h"
#include "reports/forecasts/memory.h"
#include "reports/forecasts/path.h"
#include "sim/machine/work_time.h"

namespace lockstep::reports {
namespace {

constexpr std::size_t kShownClasses = 16;

double samples_per_second(const sim::ScenarioForecast& f) {
  const double seconds = f.figures.step_time.seconds();
  return seconds > 0 ? static_cast<double>(f.samples) / seconds : 0;
}

// If memory was not counted: parameters, gradients and optimizer state are the least that the rank
// needs.
bool forecast_fits(const sim::ScenarioForecast& f) {
  if (!f.memory.classes.empty()) return sim::fits(f.memory, f.machine);
  // Optimistic on purpose: "does not fit" is then certain.
  return !f.machine.per_device || f.state_bytes <= static_cast<double>(f.machine.per_device->value);
}

// The sentences behind the figures: each function gives one assumption, worded for this job.
std::string calls_assumption(const sim::ScenarioForecast& f) {
  std::string out =
      fmt::format("the ranks call what they were derived with, each alone, by {}", f.derived_by);
  if (f.on_meta) out += ", on tensors without values";
  return fmt::format("{}; watched values are left out", out);
}

std::string steps_assumption(const sim::ScenarioForecast& f) {
  // The first step allocates buckets and buffers and is longer than all that follow; with one step
  // there is no other.
  if (f.figures.times.size() < 2)
    return "one step, which arranges buffers: simulate more (--steps)";
  const std::string out = "the median of the steps after the first, which arranges buffers";
  return out + (f.checkpoints > 0 ? "; saving checkpoints is not included" : "");
}

std::string evaluation_assumption(const sim::ScenarioForecast& f) {
  const std::string out = "from the last step's end until rank 0, which evaluates alone, is done: ";
  if (f.on_meta)
    return fmt::format("{}of calls alone, since without values nothing is evaluated", out);
  return fmt::format(
      "{}its work is priced like that of steps, and that of preparing samples is not", out);
}

std::string work_assumption(const sim::ScenarioForecast& f) {
  const std::string slow =
      sim::slow_ranks_text(f.machine.slow, static_cast<std::int64_t>(f.class_of.size()));
  const std::string unequal = slow.empty() ? "" : fmt::format("; {}", slow);
  if (f.timed_work)
    return "between calls a rank takes the shortest of three times measured here, with the rank "
           "alone; a changed machine takes as much longer as its rates say" +
           unequal;
  std::string out =
      "between calls a rank takes what the machine file gives for the operations and bytes that "
      "were counted: a roofline for products, memory bandwidth for the rest, ";
  out += f.machine.launches_hidden ? "or the host's launches and dispatches where they take longer"
                                   : "and the host's launches and dispatches";
  return out + unequal;
}

std::string carrier_of_calls(const sim::ScenarioForecast& f) {
  if (!f.machine.nccl) return "its algorithm's formula";
  std::string out = "what NCCL's tuning model chooses";
  // " (all_reduce of 4 KiB to 1 MiB: tree/LL, of 64 MiB: ring/Simple)".
  for (std::size_t i = 0; i < f.carried.size(); ++i) {
    const sim::CarriedCalls& c = f.carried[i];
    out += fmt::format("{}{} of {}{}: {}/{}", i == 0 ? " (" : ", ", trace::op_name(c.op),
                       bytes_text(c.least),
                       c.least == c.most ? "" : fmt::format(" to {}", bytes_text(c.most)),
                       sim::algorithm_name(c.algorithm), sim::protocol_name(c.protocol));
  }
  return out + (f.carried.empty() ? "" : ")");
}

std::string links_assumption(const sim::ScenarioForecast& f) {
  if (f.machine.cores)
    return fmt::format(
        "a call is work of its ranks' processors, by its algorithm's formula, from the "
        "last rank's arrival on, and later where its threads have rested; all threads "
        "that can run share a node's {} equally, and work after a wait finds cold "
        "caches",
        plural(*f.machine.cores, "core"));
  if (f.machine.network) {
    const std::string slowed =
        f.slowed_calls == 0
            ? std::string("none was slowed down")
            : fmt::format("{} of different ranks took longer, up to {} times as long",
                          plural(f.slowed_calls, "call"), number_text(f.most_slowed));
    return fmt::format(
        "a call takes {} from the last rank's arrival, and longer while the links of the {} are "
        "full, which all calls share fairly: {}; calls do not slow down the work that they "
        "overlap",
        carrier_of_calls(f), sim::topology_name(f.machine.network->kind), slowed);
  }
  return fmt::format(
      "a call takes {} from the last rank's arrival; links and devices carry nothing "
      "else meanwhile, and calls do not slow down the work that they overlap",
      carrier_of_calls(f));
}

// The share of time in which the stages of a pipeline wait for each other.
double forecast_bubble(const sim::ScenarioForecast& f) {
  // Classes differ in size: each is weighted by its number of ranks.
  std::vector<double> ranks(f.figures.classes.size(), 0);
  for (const std::uint32_t c : f.class_of) ++ranks[c];
  double idle = 0, all = 0;
  for (std::size_t c = 0; c < ranks.size(); ++c) {
    const sim::RankUse& use = f.figures.classes[c];
    idle += ranks[c] * use.idle;
    all += ranks[c] * (use.busy + use.exposed + use.idle);
  }
  return all > 0 ? idle / all : 0;
}

std::string flops_assumption(const sim::ScenarioForecast& f) {
  return fmt::format(
      "hardware FLOP utilisation as of PaLM's appendix B: what products and "
      "convolutions carry out, over step time and the peak of their types{}",
      f.dummies ? "; dummy images count, so that the model's own (MFU) is less"
                : "; nothing is computed twice, so that it is the model's own (MFU) "
                  "as well");
}

std::vector<Assumption> all_assumptions(const sim::ScenarioForecast& f) {
  return {{"calls", calls_assumption(f)},
          {"work", work_assumption(f)},
          {"links", links_assumption(f)},
          {"steps", steps_assumption(f)},
          {"checkpoints",
           "the mean time from a step's end until the last rank has saved: its calls and the work "
           "between them; copying from the device and writing files are not priced"},
          {"evaluation", evaluation_assumption(f)},
          {"bytes",
           "sent on the busiest link of a rank, by the algorithms' bus factors; of rings over "
           "several nodes each rank's share leaves its node"},
          {"flops", flops_assumption(f)},
          {"path",
           "of the steps that are measured, together: the chain of work and calls in which each "
           "starts when the one before it ends; what is not on it has slack"},
          {"what if", "the job simulated again with one thing changed"},
          {"memory", memory_assumption(f.machine)}};
}

std::string rank_table(const sim::ScenarioForecast& f, std::size_t width) {
  const std::vector<std::string> names = names_of_classes(f);
  Table table(columns({"share of the time"}, {"busy", "exposed", "idle", "hidden communication"}));
  for (std::size_t c = 0; c < std::min(names.size(), kShownClasses); ++c) {
    const sim::RankUse& use = f.figures.classes[c];
    // A job of calls that take no time: all shares are 0, and none is a division by 0.
    const double all = std::max(use.busy + use.exposed + use.idle, 1e-30);
    table.add({names[c], percent(use.busy / all), percent(use.exposed / all),
               percent(use.idle / all), percent(use.hidden / all)});
  }
  std::string out = fmt::format("\n{}", table.text(width, 2));
  if (names.size() > kShownClasses)
    out += fmt::format("  and {} other kinds of ranks: --output json=FILE has them\n",
                       names.size() - kShownClasses);
  return out;
}

nlohmann::ordered_json spread_json(const sim::TrialsForecast::Quantiles& q,
                                   const sim::Histogram& histogram) {
  return {{"p5_ps", q.p5.value},
          {"p50_ps", q.p50.value},
          {"p95_ps", q.p95.value},
          {"mean_ps", q.mean.value},
          {"histogram",
           {{"begin_ps", histogram.begin.value},
            {"end_ps", histogram.end.value},
            {"counts", histogram.counts}}}};
}

// At most `width` columns wide.
std::string trials_text(const sim::TrialsForecast& t, std::size_t width) {
  return fmt::format("  {}, seed {}\n{}", plural(t.options.trials, "trial"), t.options.seed,
                     quantiles_table(t).text(width, 2));
}

nlohmann::ordered_json trials_json(const sim::TrialsForecast& t) {
  nlohmann::ordered_json out = {{"trials", t.options.trials}, {"seed", t.options.seed}};
  for (const auto& [name, share] : sim::kJitterNames)
    out["jitter"][std::string(name)] = t.options.jitter.*share;
  out["redraw_batches"] = t.options.redraw_batches;
  out["steps"] = spread_json(t.steps, t.step_histogram);
  out["trial_means"] = spread_json(t.trials, t.trial_histogram);
  return out;
}

std::string trials_assumption(const sim::TrialsForecast& t) {
  std::string varied;
  for (const auto& [name, share] : sim::kJitterNames) {
    if (t.options.jitter.*share > 0)
      varied += fmt::format("{}{} by {}", varied.empty() ? "" : ", ", name,
                            percent(t.options.jitter.*share));
  }
  std::string out;
  if (!varied.empty())
    out = fmt::format(
        "log-normal factors with the mean 1, independent for each rank and step "
        "(communication: for each call), vary {}; ",
        varied);
  return out + (t.options.redraw_batches
                    ? "what a rank works in a step is drawn from what ranks that make the same "
                      "calls worked in the steps that are measured"
                    : "batches are those that were derived");
}

}  // namespace

std::vector<Assumption> assumptions(const sim::ScenarioForecast& f) {
  // A figure that is not shown needs no assumption.
  std::vector<Assumption> out = all_assumptions(f);
  if (f.what_ifs.empty())
    std::erase_if(out, [](const Assumption& a) { return a.key == "what if"; });
  if (f.checkpoints == 0)
    std::erase_if(out, [](const Assumption& a) { return a.key == "checkpoints"; });
  if (!f.figures.times.evaluation())
    std::erase_if(out, [](const Assumption& a) { return a.key == "evaluation"; });
  if (f.trials) out.push_back({"trials", trials_assumption(*f.trials)});
  return out;
}

std::vector<Headline> headlines(const sim::ScenarioForecast& f) {
  std::vector<Headline> out = {
      {"step time", duration_text(f.figures.step_time), "calls, work, links, steps"},
      {"throughput", fmt::format("{} samples/s", number_text(samples_per_second(f))),
       "as step time"}};
  if (f.checkpoints > 0)
    out.push_back({"checkpoints",
                   fmt::format("{}, {}", f.checkpoints,
                               f.checkpoint_time.value > 0
                                   ? fmt::format("{} on average", duration_text(f.checkpoint_time))
                                   : "not priced"),
                   "checkpoints"});
  if (const auto evaluation = f.figures.times.evaluation())
    out.push_back({"evaluation",
                   duration_text(*evaluation) +
                       (f.on_meta ? " of calls, work uncounted" : " after the last step"),
                   "evaluation"});
  out.push_back({"sent",
                 fmt::format("{} per rank and step, {} calls", bytes_text(f.figures.bytes),
                             number_text(f.figures.calls)),
                 "calls, bytes"});
  // On one node nothing leaves it, and a line "0 B" would be noise.
  if (f.figures.bytes_between > 0)
    out.push_back(
        {"between nodes", fmt::format("{} of it", bytes_text(f.figures.bytes_between)), "bytes"});
  // Dummy images are computed and train nothing, so with them the share is of what the hardware
  // carries out.
  out.push_back({f.dummies ? "HFU" : "MFU",
                 fmt::format("{} of the peak FLOP/s", percent(f.flops_share)), "flops, step time"});
  if (f.stages > 0)
    out.push_back({"bubble", fmt::format("{} of the stages' time", percent(forecast_bubble(f))),
                   "calls, work, links"});
  if (!f.memory.classes.empty())
    out.push_back({"device memory", memory_headline(f.memory, f.machine), "memory"});
  return out;
}

namespace {

std::vector<std::vector<std::int32_t>> members_of_classes(const sim::ScenarioForecast& f) {
  std::vector<std::vector<std::int32_t>> out(f.figures.classes.size());
  for (std::size_t r = 0; r < f.class_of.size(); ++r)
    out[f.class_of[r]].push_back(static_cast<std::int32_t>(r));
  return out;
}

// By class: its ranks, "0-3,5".
std::vector<std::string> ranks_by_class(const sim::ScenarioForecast& f) {
  std::vector<std::string> out;
  for (const auto& members : members_of_classes(f)) out.push_back(ranges(members));
  return out;
}

}  // namespace

std::vector<std::string> names_of_classes(const sim::ScenarioForecast& f) {
  std::vector<std::string> out;
  for (const std::vector<std::int32_t>& members : members_of_classes(f)) {
    const std::string ranks = named_ranks(ranges(members));
    const auto in_first_stage = [&](std::int32_t rank) {
      return rank % f.stages == members.front() % f.stages;
    };
    const bool stage = f.stages > 0 && !members.empty() &&
                       std::all_of(members.begin(), members.end(), in_first_stage);
    out.push_back(stage ? fmt::format("stage {} ({})", members.front() % f.stages, ranks) : ranks);
  }
  return out;
}

nlohmann::ordered_json forecast_json(const sim::ScenarioForecast& f, const JudgedRun* wrong) {
  nlohmann::ordered_json out;
  out["scenario"] = f.scenario;
  out["machine"] = f.machine.name;
  out["ranks"] = f.class_of.size();
  out["steps"] = f.steps;
  out["step_time_ps"] = f.figures.step_time.value;
  out["samples_per_s"] = samples_per_second(f);
  out["bytes_sent_per_step"] = f.figures.bytes;
  out["bytes_between_nodes_per_step"] = f.figures.bytes_between;
  out["calls_per_step"] = f.figures.calls;
  out["state_bytes"] = f.state_bytes;
  out["fits_memory"] = forecast_fits(f);
  out["memory"] = memory_json(f.memory, f.machine);
  out["step_begins_ps"] = nlohmann::ordered_json::array();
  out["step_ends_ps"] = nlohmann::ordered_json::array();
  for (std::size_t s = 0; s < f.figures.times.size(); ++s) {
    out["step_begins_ps"].push_back(f.figures.times.begin(s).value);
    out["step_ends_ps"].push_back(f.figures.times.ends()[s].value);
  }
  out["checkpoints"] = f.checkpoints;
  out["checkpoint_time_ps"] = f.checkpoint_time.value;
  // Present and null rather than absent: whoever reads many forecasts finds the same keys in each.
  out["evaluation_ps"] = nullptr;
  if (const auto evaluation = f.figures.times.evaluation())
    out["evaluation_ps"] = evaluation->value;
  const std::vector<std::string> ranks = ranks_by_class(f);
  for (std::size_t c = 0; c < ranks.size(); ++c) {
    const sim::RankUse& use = f.figures.classes[c];
    out["use"].push_back({{"ranks", ranks[c]},
                          {"busy_s", use.busy},
                          {"exposed_s", use.exposed},
                          {"idle_s", use.idle},
                          {"hidden_s", use.hidden}});
  }
  if (f.stages > 0) out["bubble"] = forecast_bubble(f);
  out["flops_per_step"] = f.flops.flops;
  out["flop_utilisation"] = f.flops_share;
  out["critical_path"] = path_json(f.path, ranks);
  out["what_if"] = what_if_json(f.what_ifs);
  if (f.trials) out["trials"] = trials_json(*f.trials);
  for (const sim::CarriedCalls& c : f.carried)
    out["carried"].push_back({{"op", trace::op_name(c.op)},
                              {"algorithm", sim::algorithm_name(c.algorithm)},
                              {"protocol", sim::protocol_name(c.protocol)},
                              {"least_bytes", c.least.value},
                              {"most_bytes", c.most.value}});
  // The same keys as the text has in brackets after its figures.
  for (const Assumption& a : assumptions(f)) out["assumptions"][a.key] = a.text;
  out["report"] = nullptr;
  if (wrong != nullptr)
    out["report"] = nlohmann::ordered_json::parse(json_report(wrong->report, &wrong->run));
  return out;
}

std::string forecast_text(const sim::ScenarioForecast& f, std::size_t width,
                          const JudgedRun* wrong) {
  std::string out =
      fmt::format("{}\n\n", wrap(fmt::format("\"{}\": {} on {}, {}", printable(f.scenario),
                                             plural(f.class_of.size(), "rank"),
                                             printable(f.machine.name), plural(f.steps, "step")),
                                 width));
  // "  step time       25.2 ms                [calls, work, links, steps]", which takes 80 columns.
  constexpr std::size_t kNames = 16;
  for (const Headline& one : headlines(f))
    out += fmt::format(
        "  {}{}\n", pad_right(one.what, kNames),
        width < kReportColumns
            ? wrap(fmt::format("{} [{}]", one.value, one.rests_on), width, kNames + 2, kNames + 2)
            : fmt::format("{}[{}]", pad_right(fmt::format("{} ", one.value), 35), one.rests_on));
  out += fmt::format("{}  [calls, work, links]\n\n", rank_table(f, width));
  if (!f.memory.classes.empty())
    out += fmt::format("{}  [memory]\n\n", memory_text(f.memory, f.machine, width));
  out += fmt::format("{}  [path]\n\n", path_text(f.path, names_of_classes(f), width));
  if (!f.what_ifs.empty()) out += fmt::format("{}  [what if]\n\n", what_if_text(f.what_ifs, width));
  if (f.trials) out += fmt::format("{}  [trials]\n\n", trials_text(*f.trials, width));
  for (const Assumption& a : assumptions(f))
    out += fmt::format("{}\n", wrap(fmt::format("[{}] {}", a.key, printable(a.text)), width, 2));
  // Last, where a terminal shows it.
  if (wrong != nullptr)
    out += fmt::format("\n{}\n\n{}", wrap("This job does not hang, but the verifier finds:", width),
                       text_report(wrong->report, wrong->run, {.width = width, .color = false}));
  return out;
}

std::string forecast_csv(const sim::ScenarioForecast& f) {
  // The clock's own resolution: what other programs add up is exact.
  constexpr int kPicos = 12;  // digits
  const std::vector<std::string> ranks = ranks_by_class(f);
  std::vector<std::size_t> count(ranks.size(), 0);
  for (const std::uint32_t c : f.class_of) ++count[c];
  Table table(columns({"step", "ranks"},
                      {"count", "begin_s", "end_s", "busy_s", "exposed_s", "idle_s", "hidden_s"}));
  for (std::size_t s = 0; s < f.figures.times.size(); ++s) {
    for (std::size_t c = 0; c < ranks.size(); ++c) {
      const sim::StepUse& step = f.figures.steps[c][s];
      std::vector<std::string> cells = {std::to_string(s), ranks[c], std::to_string(count[c])};
      for (const double seconds : {step.begin.seconds(), step.end.seconds(), step.use.busy,
                                   step.use.exposed, step.use.idle, step.use.hidden})
        cells.push_back(fixed(seconds, kPicos));
      table.add(std::move(cells));
    }
  }
  return table.csv();
}

Table quantiles_table(const sim::TrialsForecast& t) {
  Table table(columns({""}, {"5 %", "50 %", "95 %", "mean"}));
  const auto add = [&](const char* name, const sim::TrialsForecast::Quantiles& q) {
    table.add({name, duration_text(q.p5), duration_text(q.p50), duration_text(q.p95),
               duration_text(q.mean)});
  };
  add("single steps", t.steps);
  add("mean step of a trial", t.trials);
  return table;
}

}  // namespace lockstep::reports
