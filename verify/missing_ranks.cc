#include "verify/missing_ranks.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "verify/wait_words.h"

namespace lockstep {

namespace {

constexpr std::size_t kRanksTold = 8;

// The wait points that lack a missing rank.
struct Lack {
  std::vector<std::size_t> alone;  // … and nobody else
  std::vector<std::size_t> among;  // … and other ranks, with a trace or without
};

std::map<Rank, Lack> lacks_of(const Context& context) {
  std::map<Rank, Lack> out;
  const std::vector<WaitPoint>& points = context.where.wait_points;
  for (std::size_t p = 0; p < points.size(); ++p) {
    const WaitPoint& point = points[p];
    if (point.any_source) continue;
    if (point.group == WaitPoint::kPointToPoint) {
      const Rank peer = context.call(waiting_call(context, point.waiting[0])).peer;
      if (context.run.find(peer) == nullptr) out[peer].alone.push_back(p);
      continue;
    }
    const std::vector<Rank>& absent = context.groups[point.group].absent;
    const bool others = !point.missing.empty() || !point.behind.empty() || absent.size() > 1;
    for (const Rank rank : absent) {
      (others ? out[rank].among : out[rank].alone).push_back(p);
    }
  }
  return out;
}

bool waits_for_more(const Context& context, const Lack& a, const Lack& b) {
  const auto waiting = [&](const std::vector<std::size_t>& points) {
    std::size_t ranks = 0;
    for (const std::size_t p : points) ranks += context.where.wait_points[p].waiting.size();
    return ranks;
  };
  return std::pair(waiting(a.alone), waiting(a.among)) >
         std::pair(waiting(b.alone), waiting(b.among));
}

}  // namespace

void tell_who_waits_for_the_missing(const Context& context, const std::vector<Rank>& missing,
                                    Finding& note) {
  std::map<Rank, Lack> lacks = lacks_of(context);
  std::vector<std::pair<Rank, Lack>> waited_for;
  std::vector<Rank> not_waited_for;
  for (const Rank rank : missing) {
    const auto found = lacks.find(rank);
    if (found == lacks.end()) {
      not_waited_for.push_back(rank);
    } else {
      waited_for.emplace_back(rank, std::move(found->second));
    }
  }
  std::stable_sort(waited_for.begin(), waited_for.end(), [&](const auto& a, const auto& b) {
    return waits_for_more(context, a.second, b.second);
  });
  std::size_t told = 0;
  for (const auto& [rank, lack] : waited_for) {
    if (told++ == kRanksTold) break;
    const bool alone = !lack.alone.empty();
    const WaitPoint& point = context.where.wait_points[alone ? lack.alone[0] : lack.among[0]];
    const std::string words = waiting_words(context, point);
    note.message += "; " + words + (alone ? ", and only " : ", and beside others ") +
                    rank_words({rank}) + " has not come as far as the traces tell";
    note.evidence.push_back(context.evidence(waiting_call(context, point.waiting[0]), words));
  }
  if (!not_waited_for.empty()) {
    note.message += "; nobody waits for " + rank_words(not_waited_for);
  }
}

}  // namespace lockstep
