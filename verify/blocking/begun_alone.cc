#include "verify/blocking/begun_alone.h"

#include <algorithm>

#include "verify/blocking/unanswered.h"
#include "verify/blocking/witnesses.h"
#include "verify/matching/matching.h"
#include "verify/streams/past.h"
#include "verify/streams/programs.h"
#include "verify/streams/rounds.h"

namespace lockstep::verify {

namespace {

constexpr std::size_t kMaxAsked = 64;  // members or points; bounds the cost, larger ones are rare

// Whether fewer than half of the members wait in the collective, all others are known to wait
// elsewhere, and nobody else could be a member.
bool is_of_few(const Context& context, const WaitPoint& point) {
  if (point.group == WaitPoint::kPointToPoint || point.unknown_member || point.any_source)
    return false;
  const std::size_t members = context.groups[point.group].streams.size();
  return 2 * point.waiting.size() < members &&
         point.waiting.size() + point.missing.size() == members;
}

// Whether the rank blocks in its newest call, so that nothing it did later is to be explained.
bool blocks_in_newest(const Context& context, std::uint32_t rank) {
  const std::uint32_t waiting = context.where.positions[rank].waiting_in();
  return waiting != kNoCall && waiting == newest_call(context, rank);
}

// Whether the rank begins another round, or goes on with one, as its past predicts.
bool goes_on(const Context& context, std::uint32_t rank) {
  return blocks_in_newest(context, rank) &&
         is_usual(context.run, context.agreement, {rank, newest_call(context, rank)}) == Usual::yes;
}

// Whether the rank came to a new call after whole rounds.
bool begins_something(const Context& context, std::uint32_t rank) {
  return blocks_in_newest(context, rank) && knows_its_past(context, rank) &&
         may_begin_new_part(context.run, context.agreement, {rank, newest_call(context, rank)});
}

}  // namespace

std::optional<Cause> explain_begun_alone(const Context& context,
                                         const std::vector<std::size_t>& points) {
  for (const std::size_t p : points) {
    const WaitPoint& point = context.where.wait_points[p];
    if (!is_of_few(context, point) || point.missing.size() > kMaxAsked) continue;
    const auto begins = [&](std::uint32_t r) { return begins_something(context, r); };
    const auto goes = [&](std::uint32_t r) { return goes_on(context, r); };
    if (!std::all_of(point.waiting.begin(), point.waiting.end(), begins) ||
        !std::all_of(point.missing.begin(), point.missing.end(), goes)) {
      continue;
    }
    // Had one of them made a call more or less before, the others would rightly be elsewhere.
    const std::uint32_t alone = point.waiting[0];
    const std::uint32_t call = newest_call(context, alone);
    const bool same_until_here =
        std::any_of(point.missing.begin(), point.missing.end(), [&](std::uint32_t r) {
          return call < context.run.ranks[r].calls.size() &&
                 common_start(context.run, context.agreement, alone, r) == call &&
                 is_usual(context.run, context.agreement, {r, call}) == Usual::yes;
        });
    if (!same_until_here) continue;
    Deviation extra = missing_at(context, point, point.missing);
    turn_around(extra);
    return explain_deviation(context, extra);
  }
  return std::nullopt;
}

bool may_have_left_loop(const Context& context, const std::vector<std::size_t>& points) {
  if (points.size() > kMaxAsked) return false;
  bool left = false, went_on = false;
  for (const std::size_t p : points) {
    const WaitPoint& point = context.where.wait_points[p];
    if (point.group == WaitPoint::kPointToPoint) return false;
    const std::uint32_t rank = point.waiting[0];
    left = left || begins_something(context, rank);
    went_on = went_on || goes_on(context, rank);
  }
  return left && went_on;
}

std::vector<std::uint32_t> alone_among_messages(const Context& context,
                                                const std::vector<std::size_t>& points) {
  const WaitPoint* collective = nullptr;
  for (const std::size_t p : points) {
    const WaitPoint& point = context.where.wait_points[p];
    if (point.group == WaitPoint::kPointToPoint) continue;
    if (collective != nullptr || !is_of_few(context, point)) return {};
    collective = &point;
  }
  if (collective == nullptr) return {};
  const bool others_wait_in_messages =
      std::all_of(collective->missing.begin(), collective->missing.end(), [&](std::uint32_t r) {
        const std::uint32_t c = context.where.positions[r].waiting_in();
        return c != kNoCall && trace::is_point_to_point(context.op({r, c}));
      });
  return others_wait_in_messages ? collective->waiting : std::vector<std::uint32_t>{};
}

}  // namespace lockstep::verify
