#include "runtime/launch/live_verifier.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/clock.h"
#include "runtime/launch/run_folder.h"
#include "trace/load.h"
#include "verify/verify.h"

namespace lockstep::runtime {

namespace {

constexpr trace::Nanos kMillisecond = 1'000'000;
// The silence before a poll: 0.2 s at first, doubled after each poll, at most 6.4 s.
constexpr trace::Nanos kFirstQuiet = 200 * kMillisecond;
// When a worker ends, ranks that waited for it usually fail by themselves, because its connections
// close. Wait for that: their own error messages are useful.
constexpr trace::Nanos kQuietAfterEnd = 500 * kMillisecond;
constexpr trace::Nanos kMaxQuiet = 6400 * kMillisecond;
// A poll that took 1 s is not repeated within 20 s.
constexpr trace::Nanos kCostFactor = 20;

}  // namespace

LiveVerifier::LiveVerifier(std::string folder, int ranks)
    : folder_(std::move(folder)),
      tails_(static_cast<std::size_t>(ranks)),
      quiet_before_poll_(kFirstQuiet),
      ended_(static_cast<std::size_t>(ranks), false) {}

const JobProgress& LiveVerifier::follow(trace::Nanos now) {
  JobProgress next;
  std::optional<std::int64_t> fewest_steps;
  for (std::size_t rank = 0; rank < tails_.size(); ++rank) {
    std::optional<trace::RingTail>& tail = tails_[rank];
    if (!tail) {
      if (Result<trace::RingTail> opened =
              trace::RingTail::open(ring_file(folder_, static_cast<int>(rank))))
        tail.emplace(std::move(*opened));
    }
    if (!tail) {
      fewest_steps = 0;
      continue;
    }
    const trace::RingTail::Progress rank_progress = tail->poll();
    ++next.started;
    next.records += tail->written();
    next.last_event = std::max(next.last_event, rank_progress.last_event);
    fewest_steps = std::min(fewest_steps.value_or(rank_progress.steps), rank_progress.steps);
    if (!next.loss && !std::isnan(rank_progress.loss)) next.loss = rank_progress.loss;
  }
  next.steps = fewest_steps.value_or(0);
  // Something moved: the silence ends and the first poll is near again.
  if (next.records != progress_.records || next.started != progress_.started) {
    quiet_since_ = now;
    quiet_before_poll_ = kFirstQuiet;
  }
  progress_ = next;
  return progress_;
}

bool LiveVerifier::due(trace::Nanos now, const std::vector<bool>& ended) {
  if (ended != ended_) {
    ended_ = ended;
    quiet_since_ = now;
    quiet_before_poll_ = kQuietAfterEnd;
  }
  return progress_.started > 0 && now - quiet_since_ >= quiet_before_poll_;
}

std::optional<LiveVerifier::Proof> LiveVerifier::poll(trace::Nanos now,
                                                      const std::vector<bool>& ended) {
  return due(now, ended) ? judge(now) : std::nullopt;
}

std::optional<LiveVerifier::Proof> LiveVerifier::judge(trace::Nanos now) {
  const trace::Nanos begin = monotonic_nanos();
  const Result<trace::Run> run = trace::load_run({folder_});
  if (!run) return std::nullopt;
  verify::Report report = verify::verify(*run, {.live = true});
  const trace::Nanos end = monotonic_nanos();
  quiet_before_poll_ = std::min(kMaxQuiet, quiet_before_poll_ * 2);
  quiet_before_poll_ =
      std::max(quiet_before_poll_, now - quiet_since_ + kCostFactor * (end - begin));
  if (!verify::proves_stuck(report)) return std::nullopt;
  const trace::Nanos silence =
      progress_.last_event == trace::kNoTime ? 0 : end - progress_.last_event;
  return Proof{static_cast<double>(std::max<trace::Nanos>(silence, 0)) / 1e9, std::move(report)};
}

}  // namespace lockstep::runtime
