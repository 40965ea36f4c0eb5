#include "runtime/launch/run_progress.h"

#include "base/text.h"

namespace lockstep {

namespace {

constexpr double kPlainIntervalS = 5;

}  // namespace

std::string RunProgress::line(const JobProgress& progress, double elapsed_s) {
  const std::string ranks = plural(static_cast<std::uint64_t>(options_.ranks), "rank");
  if (progress.started < options_.ranks)
    return "starting  " + std::to_string(progress.started) + " of " + ranks;
  std::string out = "step " + std::to_string(progress.steps);
  if (options_.steps > 0) out += "/" + std::to_string(options_.steps);
  if (progress.loss) out += "  loss " + fixed(*progress.loss, 3);
  out += "  " + ranks;
  if (progress.steps > first_steps_ && first_steps_ > 0)
    out += "  " +
           fixed(static_cast<double>(progress.steps - first_steps_) / (elapsed_s - first_s_), 1) +
           " steps/s";
  return out;
}

void RunProgress::update(const JobProgress& progress, double elapsed_s) {
  if (options_.silent) return;
  if (first_steps_ == 0 && progress.steps > 0) {
    first_steps_ = progress.steps;
    first_s_ = elapsed_s;
  }
  if (!options_.terminal && elapsed_s - shown_at_s_ < kPlainIntervalS) return;
  const std::string now = line(progress, elapsed_s);
  if (options_.terminal && now == shown_) return;
  shown_ = now;
  shown_at_s_ = elapsed_s;
  if (options_.terminal)
    out_ << "\r" << now << "\x1b[K" << std::flush;
  else
    out_ << now << "  (" << fixed(elapsed_s, 0) << " s)\n" << std::flush;
}

void RunProgress::finish() {
  if (options_.terminal && !shown_.empty()) out_ << "\r\x1b[K" << std::flush;
  shown_.clear();
}

}  // namespace lockstep
