// Options of `lockstep simulate SCENARIO --trials N`: what varies from trial to trial, and by how
// much.
#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "base/numbers.h"
#include "base/text.h"
#include "base/threads.h"
#include "cli/cmd_simulate.h"

namespace lockstep::cli {
namespace {

Error bad(std::string_view item, const std::string& why) {
  return {fmt::format("--jitter: \"{}\" {}", printable(item), why),
          {},
          "write compute=5%,image=20%: any of compute, communication, image and text"};
}

// Reads an item such as "image=20%" into `out`. A member of 0 does not vary.
Status read_item(std::string_view item, sim::Jitter& out) {
  const std::size_t equals = item.find('=');
  const auto* const name =
      std::find_if(sim::kJitterNames.begin(), sim::kJitterNames.end(),
                   [&](const auto& one) { return one.first == item.substr(0, equals); });
  if (equals == std::string::npos || name == sim::kJitterNames.end())
    return bad(item, "is not NAME=PERCENTAGE of something that can vary");
  std::string_view number = item.substr(equals + 1);
  if (!number.ends_with('%')) return bad(item, "is not a percentage");
  number.remove_suffix(1);
  const double percent = parse_number<double>(number).value_or(-1);
  if (!(percent > 0)) return bad(item, "is not a percentage above 0");
  if (percent > 100 * sim::kMaxJitter)
    return bad(item, fmt::format("is above {}%", 100 * sim::kMaxJitter));
  if (out.*name->second != 0) return bad(item, "is given twice");
  out.*name->second = percent / 100;
  return Status::ok();
}

}  // namespace

void add_trials(CLI::App& command, TrialsCommand& options) {
  command.add_option("--trials", options.trials, "Number of simulations, with the variation below")
      ->type_name("N")
      ->check(CLI::Range(1, 1'000'000));
  // CLI11 would take -1 for a large number.
  command.add_option("--seed", options.seed, "Seed of the trials; default: 1")
      ->type_name("S")
      ->check(CLI::Range(std::int64_t{0}, INT64_MAX).description(""));
  command
      .add_option("--jitter", options.jitter,
                  "How much durations vary: compute=5%,\ncommunication=10%, image=20%, text=3%")
      ->type_name("LIST");
  command.add_flag("--redraw-batches", options.redraw_batches,
                   "Draw the ranks' batches again in each trial, if the\n"
                   "calls do not depend on them");
  command.add_option("-j,--jobs", options.jobs, "Trials at a time; default: one per processor")
      ->type_name("N")
      ->check(CLI::Range(1, 1024));
}

Result<sim::Jitter> parse_jitter(const std::string& text) {
  sim::Jitter out;
  if (text.empty()) return out;
  for (const std::string_view item : split(text, ','))
    if (const Status ok = read_item(item, out); !ok) return ok.error();
  return out;
}

Result<sim::TrialOptions> trial_options(const TrialsCommand& command) {
  const Result<sim::Jitter> jitter = parse_jitter(command.jitter);
  if (!jitter) return jitter.error();
  // A thousand equal trials would look like certainty.
  const bool varies = !command.jitter.empty() || command.redraw_batches;
  if (command.trials > 0 && !varies)
    return Error{"nothing varies between the trials", {}, "add --jitter compute=5%"};
  if (command.trials == 0 && varies)
    return with_option(command.jitter.empty() ? "--redraw-batches" : "--jitter",
                       {"needs trials", {}, "add --trials 100"});
  if (command.trials == 0 && command.seed)
    return with_option("--seed", {"needs trials", {}, "add --trials 100 --jitter compute=5%"});
  sim::TrialOptions out;
  out.trials = static_cast<std::size_t>(command.trials);
  out.seed = command.seed.value_or(1);
  out.threads = command.jobs > 0 ? static_cast<std::size_t>(command.jobs) : processors();
  out.jitter = *jitter;
  out.redraw_batches = command.redraw_batches;
  return out;
}

}  // namespace lockstep::cli
