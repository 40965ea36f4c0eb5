#include "tests/verify/injection/injector.h"

#include <algorithm>
#include <utility>

namespace lockstep::verify::injection {

std::optional<Injector::Site> Injector::find_site(const Test& test) {
  std::vector<Site> sites;
  for (int r = 0; r < job_.world(); ++r) {
    for (std::size_t i = 0; i < actions(r).size(); ++i) {
      const Action& a = actions(r)[i];
      if (a.kind == Action::Kind::issue && test(a.call)) sites.push_back({r, i});
    }
  }
  if (sites.empty()) return std::nullopt;
  return sites[static_cast<std::size_t>(pick(random_, 0, static_cast<int>(sites.size()) - 1))];
}

std::optional<Injector::Site> Injector::find_collective(const Test& test) {
  const int earliest = chance(random_, 0.2) ? 0 : 2;
  return find_site([&](const CallSpec& c) {
    return !is_point_to_point(c) && c.step >= earliest && job_.groups.at(c.group).size() > 1 &&
           test(c);
  });
}

void Injector::remove(int rank, std::size_t at) {
  Actions& list = actions(rank);
  const int handle = list[at].handle;
  list.erase(list.begin() + static_cast<std::ptrdiff_t>(at));
  erase_waits(list, handle);
}

void Injector::end_with(const Site& s, Action::Kind kind, const std::string& text) {
  Actions& list = actions(s.rank);
  list.resize(s.at);
  Action last;
  last.kind = kind;
  last.text = text;
  list.push_back(std::move(last));
}

std::size_t Injector::start_of_step(int rank, int step) {
  const Actions& list = actions(rank);
  const auto it = std::find_if(list.begin(), list.end(), [&](const Action& a) {
    return a.kind == Action::Kind::modality && a.n == step;
  });
  return static_cast<std::size_t>(it - list.begin());
}

std::int64_t Injector::seq_of(const Site& s) {
  const auto all = collectives(actions(s.rank), call(s).group);
  return std::find(all.begin(), all.end(), s.at) - all.begin();
}

std::optional<Injector::Seen> Injector::first_seen(int rank, const std::string& group) {
  const Actions& before = healthy_.ranks[static_cast<std::size_t>(rank)];
  const Actions& after = actions(rank);
  const auto x = collectives(before, group);
  const auto y = collectives(after, group);
  for (std::size_t i = 0; i < std::max(x.size(), y.size()); ++i) {
    const bool both = i < x.size() && i < y.size();
    if (both && visible(before[x[i]].call, recording_) == visible(after[y[i]].call, recording_)) {
      continue;
    }
    const Action& there = i < x.size() ? before[x[i]] : after[y[i]];
    return Seen{static_cast<std::int64_t>(i), there.call.step};
  }
  return std::nullopt;
}

Injector::Found Injector::deviation(Rules rules, int rank, const std::string& group,
                                    std::int64_t seq, int step) {
  const auto seen = first_seen(rank, group);
  if (!seen) return std::nullopt;
  Expectation e;
  e.rules = std::move(rules);
  e.groups = {group};
  e.seqs = {seq, seen->seq};
  if (recording_.step) e.steps = {step, seen->step};
  e.culprits = std::vector{rank};
  // Seen only later, or without a past to go by, it may look like anything.
  if (seen->seq != seq || step < 2) {
    lose_sight(e);
  }
  if (job_.groups.at(group).size() == 2) e.culprits_needed = false;
  // Neither names nor steps: where other calls come between, only who waits for whom is left.
  if (!recording_.step) e.vague = {"deadlock", "cross-group-deadlock"};
  // A rank that waits in the second of two groups left out the first, or will come to it later.
  if (job_.shape == "two groups") e.vague.insert("cross-group-deadlock");
  return e;
}

Injector::Found Injector::inject(Fault fault) {
  switch (fault) {
    case Fault::skip_call:
      return skip(false);
    case Fault::skip_from_a_step_on:
      return skip(true);
    case Fault::modality_branch:
      return modality();
    case Fault::extra_call:
      return extra();
    case Fault::swapped_calls:
      return swapped();
    case Fault::wrong_size:
    case Fault::wrong_dtype:
    case Fault::wrong_redop:
    case Fault::wrong_root:
    case Fault::wrong_op:
    case Fault::other_parameter:
      return changed(fault);
    case Fault::stops_early:
      return length(false);
    case Fault::runs_longer:
      return length(true);
    case Fault::killed:
    case Fault::host_hang:
    case Fault::exception:
      return ended(fault);
    case Fault::groups_inverted:
      return inverted();
    case Fault::p2p_cycle:
    case Fault::p2p_unmatched:
    case Fault::p2p_size:
      return p2p(fault);
    case Fault::group_members:
      return group_members();
    case Fault::uneven_splits:
      return splits();
    case Fault::never_waited:
      return never_waited();
    case Fault::device_stall:
      return device_stall();
  }
  return std::nullopt;
}

}  // namespace lockstep::verify::injection
