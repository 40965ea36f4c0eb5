#include "cli/simulate_trials.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/tables.h"
#include "base/text.h"
#include "cli/cmd_simulate.h"

namespace lockstep {
namespace {

using Share = double sim::Jitter::*;
constexpr std::array<std::pair<std::string_view, Share>, 4> kShareNames = {
    {{"compute", &sim::Jitter::work},
     {"communication", &sim::Jitter::meetings},
     {"image", &sim::Jitter::images},
     {"text", &sim::Jitter::texts}}};

Error bad(const std::string& item, const std::string& why) {
  return {"--jitter: \"" + printable(item) + "\" " + why,
          {},
          "write compute=5%, with any of communication, image and text behind commas"};
}

Status read_item(const std::string& item, sim::Jitter& out) {
  const std::size_t equals = item.find('=');
  const auto* const name =
      std::find_if(kShareNames.begin(), kShareNames.end(),
                   [&](const auto& one) { return one.first == item.substr(0, equals); });
  if (equals == std::string::npos || name == kShareNames.end())
    return bad(item, "names nothing that varies");
  if (!item.ends_with('%')) return bad(item, "is no share in percent");
  double percent = -1;
  const char* const begin = item.data() + equals + 1;
  const char* const end = item.data() + item.size() - 1;
  const auto read = std::from_chars(begin, end, percent);
  if (read.ec != std::errc() || read.ptr != end || !(percent > 0))
    return bad(item, "is no share in percent above 0");
  if (percent > 100 * sim::kMostJitter)
    return bad(item, "is above " + fixed(100 * sim::kMostJitter, 0) + "%");
  if (out.*name->second != 0) return bad(item, "says a second time what varies");
  out.*name->second = percent / 100;
  return Status::ok();
}

TrialsForecast::Quantiles quantiles(const std::vector<sim::Picos>& values) {
  double sum = 0;
  for (const sim::Picos value : values) sum += static_cast<double>(value.value);
  const auto mean = static_cast<std::int64_t>(sum / static_cast<double>(values.size()));
  return {sim::quantile(values, .05), sim::quantile(values, .5), sim::quantile(values, .95),
          sim::Picos{mean}};
}

std::string milliseconds(sim::Picos time) { return pad_left(fixed(time.seconds() * 1e3, 3), 13); }

std::string row(const std::string& name, const TrialsForecast::Quantiles& q) {
  return "  " + pad_right(name, 22) + milliseconds(q.p5) + milliseconds(q.p50) +
         milliseconds(q.p95) + milliseconds(q.mean) + "\n";
}

nlohmann::ordered_json quantiles_json(const TrialsForecast::Quantiles& q) {
  return {{"p5_ps", q.p5.value},
          {"p50_ps", q.p50.value},
          {"p95_ps", q.p95.value},
          {"mean_ps", q.mean.value}};
}

}  // namespace

void add_trials(CLI::App& command, TrialsCommand& options) {
  command.add_option("--trials", options.trials, "Simulate it so often, with what varies below")
      ->type_name("N")
      ->check(CLI::Range(1, 1'000'000));
  // CLI11 would take -1 for a large number.
  command.add_option("--seed", options.seed, "Of the trials; default 1")
      ->type_name("S")
      ->check(CLI::Range(std::int64_t{0}, INT64_MAX).description(""));
  command
      .add_option("--jitter", options.jitter,
                  "How much durations vary: compute=5%,\ncommunication=10%, image=20%, text=3%")
      ->type_name("LIST");
  command.add_flag("--redraw-batches", options.redraw_batches,
                   "Deal the ranks' batches anew in each trial, where the\n"
                   "calls do not depend on them");
  command.add_option("-j,--jobs", options.jobs, "Trials at a time; default: one a processor")
      ->type_name("N")
      ->check(CLI::Range(1, 1024));
}

Result<sim::Jitter> parse_jitter(const std::string& text) {
  sim::Jitter out;
  for (std::size_t begin = 0; begin < text.size() || (begin > 0 && begin == text.size());) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    if (const Status ok = read_item(text.substr(begin, end - begin), out); !ok) return ok.error();
    begin = end + 1;
  }
  return out;
}

Result<sim::TrialOptions> trial_options(const TrialsCommand& command) {
  const Result<sim::Jitter> jitter = parse_jitter(command.jitter);
  if (!jitter) return jitter.error();
  const bool varies = !command.jitter.empty() || command.redraw_batches;
  if (command.trials > 0 && !varies)
    return Error{"nothing varies between the trials", {}, "add --jitter compute=5%"};
  if (command.trials == 0 && varies)
    return with_option(command.jitter.empty() ? "--redraw-batches" : "--jitter",
                       {"is of trials", {}, "add --trials 100"});
  sim::TrialOptions out;
  out.trials = static_cast<std::size_t>(command.trials);
  out.seed = command.seed;
  out.threads = command.jobs > 0 ? static_cast<std::size_t>(command.jobs)
                                 : std::max(1U, std::thread::hardware_concurrency());
  out.jitter = *jitter;
  out.redraw_batches = command.redraw_batches;
  return out;
}

TrialsForecast trials_forecast(const sim::Trials& trials, const sim::TrialOptions& options) {
  std::vector<sim::Picos> steps, means;
  for (const std::vector<sim::Picos>& one : trials.steps) {
    LOCKSTEP_CHECK(!one.empty(), "a trial without steps");
    double sum = 0;
    for (const sim::Picos step : one) sum += static_cast<double>(step.value);
    means.push_back(sim::Picos{static_cast<std::int64_t>(sum / static_cast<double>(one.size()))});
    steps.insert(steps.end(), one.begin(), one.end());
  }
  return {options, quantiles(steps), quantiles(means)};
}

std::string trials_text(const TrialsForecast& t) {
  const std::string out = "  " + plural(t.options.trials, "trial") + ", seed " +
                          std::to_string(t.options.seed) + ", ms";
  return pad_right(out, 24) + "           5 %         50 %         95 %         mean\n" +
         row("single steps", t.steps) + row("mean step of a trial", t.trials);
}

nlohmann::ordered_json trials_json(const TrialsForecast& t) {
  nlohmann::ordered_json out = {{"trials", t.options.trials}, {"seed", t.options.seed}};
  for (const auto& [name, share] : kShareNames)
    out["jitter"][std::string(name)] = t.options.jitter.*share;
  out["redraw_batches"] = t.options.redraw_batches;
  out["steps"] = quantiles_json(t.steps);
  out["trial_means"] = quantiles_json(t.trials);
  return out;
}

std::string trials_assumption(const TrialsForecast& t) {
  std::string varied;
  for (const auto& [name, share] : kShareNames) {
    const double percent = 100 * (t.options.jitter.*share);
    if (percent == 0) continue;
    varied += (varied.empty() ? "" : ", ") + std::string(name) + " by " +
              fixed(percent, percent < 1 ? 2 : 1) + " %";
  }
  std::string out;
  if (!varied.empty())
    out =
        "log-normal factors with the mean 1, independent for each rank and step (communication: "
        "for each call), vary " +
        varied + "; ";
  return out + (t.options.redraw_batches
                    ? "what a rank works in a step is drawn from what ranks that make the same "
                      "calls worked in the steps that are measured"
                    : "batches are those that were derived");
}

}  // namespace lockstep
