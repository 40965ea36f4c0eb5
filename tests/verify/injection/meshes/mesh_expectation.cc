#include "tests/verify/injection/meshes/mesh_expectation.h"

#include <algorithm>
#include <map>
#include <set>

namespace lockstep::verify::injection {

std::vector<const CallSpec*> Calls::collectives(int r, const std::string& group) const {
  std::vector<const CallSpec*> out;
  for (const CallSpec* c : ranks[static_cast<std::size_t>(r)]) {
    if (c->group == group && !is_point_to_point(*c)) out.push_back(c);
  }
  return out;
}

Calls calls_of(const DeviceOutcome& outcome) {
  Calls out;
  for (const RankOutcome& rank : outcome.ranks) {
    out.ranks.emplace_back();
    out.raised.push_back(rank.end == "exception");
    out.open.push_back(nullptr);
    out.oldest.push_back(nullptr);
    out.waits.push_back(false);
    for (const Entry& e : rank.entries) {
      out.ranks.back().push_back(&e.call);
      if (e.state != Entry::State::completed) out.waits.back() = true;
      if (e.state == Entry::State::completed) continue;
      if (out.oldest.back() == nullptr) out.oldest.back() = &e.call;
      if (!e.point_to_point && out.open.back() == nullptr) out.open.back() = &e.call;
    }
  }
  out.hung = outcome.hung;
  return out;
}

Calls calls_of(const Job& job, const Outcome& outcome) {
  Calls out;
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    out.ranks.emplace_back();
    out.raised.push_back(false);
    out.open.push_back(nullptr);
    out.oldest.push_back(nullptr);
    for (std::size_t i = 0; i < outcome.reached[r]; ++i) {
      const Action& a = job.ranks[r][i];
      if (a.kind == Action::Kind::raise) out.raised.back() = true;
      if (a.kind == Action::Kind::issue) out.ranks.back().push_back(&a.call);
    }
  }
  out.hung = outcome.hung;
  return out;
}

bool shows(const Job& job, const Calls& calls, const Recording& recording, const Knowledge& known) {
  if (calls.hung) return true;
  if (!known.past) return false;
  for (const auto& [group, members] : job.groups) {
    std::vector<std::string> first;
    for (std::size_t i = 0; i < members.size(); ++i) {
      std::vector<std::string> seen;
      for (const CallSpec* c : calls.collectives(members[i], group)) {
        seen.push_back(visible(*c, recording));
      }
      if (i == 0) first = seen;
      if (seen != first) return true;
    }
  }
  std::map<int, std::vector<std::string>> batches;
  for (const Actions& actions : job.ranks) {
    for (const Action& a : actions) {
      if (!recording.modality || a.kind != Action::Kind::modality) continue;
      if (batches.emplace(a.n, a.names).first->second != a.names) return true;
    }
  }
  return false;
}

namespace {

bool contains(const std::vector<int>& ranks, int r) {
  return std::find(ranks.begin(), ranks.end(), r) != ranks.end();
}

class Expecting {
 public:
  Expecting(MeshFault fault, const Deviation& deviation, const Job& healthy, const Job& job,
            const Calls& calls, const Recording& recording, const Knowledge& known)
      : fault_(fault),
        deviation_(deviation),
        healthy_(healthy),
        job_(job),
        calls_(calls),
        recording_(recording),
        known_(known) {}

  Expectation expectation() {
    Expectation e;
    e.rules = rules();
    e.culprits = deviation_.culprits;
    e.culprits_needed = deviation_.has_reference || history_decides();
    e.groups = deviation_.groups;
    if (deviation_.seq != kUnset) e.seqs = {deviation_.seq};
    if (recording_.step && deviation_.step != kUnset) e.steps = {deviation_.step};
    see_location(e);
    // It raises when the next step begins.
    if (fault_ == MeshFault::ddp_unused && recording_.step) e.steps.insert(deviation_.step + 1);
    // Who knows of a call without its step may tell it by the batches, or by the calls around it.
    if (!recording_.world_steps) e.steps.clear();
    e.may_be_open = !known_.ends || !known_.past || !known_.complete;
    if (!known_.past || !known_.complete) e.culprits_needed = false;
    weaken_stalls(e);
    if (recording_.snapshot) weaken_looks(e);
    // If nothing tells two sides apart, one has too few calls or the other too many.
    if (!e.culprits_needed && e.rules.contains("missing-collective")) {
      e.rules.insert("extra-collective");
    }
    if (!e.culprits_needed && e.rules.contains("extra-collective")) {
      e.rules.insert("missing-collective");
    }
    return e;
  }

 private:
  std::set<std::string> rules() const {
    switch (fault_) {
      case MeshFault::left_out:
      case MeshFault::left_out_by_several:
      case MeshFault::left_out_by_subgroup:
      case MeshFault::left_out_all_to_all:
      case MeshFault::bystander_missing:
      case MeshFault::left_out_by_most:
        return with_ends({"missing-collective", "cross-group-deadlock"});
      case MeshFault::one_too_many:
        return at_last({"extra-collective", "op-mismatch", "size-mismatch"});
      case MeshFault::modality_skip:
      case MeshFault::modality_skip_by_most:
        if (recording_.modality && recording_.step) return {"modality-divergence"};
        return with_ends({"modality-divergence", "missing-collective", "cross-group-deadlock"});
      case MeshFault::ddp_unused:
        if (known_.exceptions && any_raised()) return {"unused-parameter", "modality-divergence"};
        return with_ends({"unused-parameter", "modality-divergence", "missing-collective",
                          "cross-group-deadlock", "host-stall"});
      case MeshFault::swapped:
        return {"order-swap", "missing-collective", "size-mismatch", "op-mismatch"};
      case MeshFault::groups_swapped:
        return {"cross-group-deadlock", "deadlock", "order-swap"};
      case MeshFault::wrong_size:
        return {"size-mismatch"};
      case MeshFault::wrong_op:
        return {"op-mismatch"};
      case MeshFault::wrong_dtype:
        return {"dtype-mismatch"};
      case MeshFault::wrong_root:
        return {"root-mismatch"};
      case MeshFault::wrong_redop:
        return {"redop-mismatch"};
      case MeshFault::realigned:
        return with_ends({"modality-divergence", "step-mismatch", "missing-collective",
                          "identity-mismatch", "order-swap", "cross-group-deadlock"});
      case MeshFault::host_stall:
      case MeshFault::killed:
      case MeshFault::culprit_missing:
        return {"host-stall", "missing-collective"};
      case MeshFault::exception:
        if (known_.exceptions) return {"rank-exception"};
        return {"host-stall", "missing-collective", "rank-exception"};
      case MeshFault::never_starts:
      case MeshFault::link_stall:
        return {"device-stall", "host-stall"};
      case MeshFault::never_completes:
        return lags() ? std::set<std::string>{"device-stall", "host-stall", "missing-collective"}
                      : std::set<std::string>{"device-stall"};
      case MeshFault::lone_send:
        return {"p2p-unmatched", "deadlock", "missing-collective"};
      case MeshFault::left_out_message:
        return {"p2p-unmatched", "deadlock", "missing-collective", "p2p-cycle"};
      case MeshFault::lone_barrier:
        return at_last(
            {"extra-collective", "cross-group-deadlock", "missing-collective", "op-mismatch"});
      default:
        return {};
    }
  }

  // What went before, or comes later, shows what a step looks like.
  bool history_decides() const {
    if (deviation_.culprits.empty()) return false;
    const int r = deviation_.culprits[0];
    std::set<std::string> kinds;
    bool later = false;
    Recording stepless = recording_;
    stepless.step = false;
    for (const CallSpec* c : calls_.ranks[static_cast<std::size_t>(r)]) {
      kinds.insert(c->group + visible(*c, stepless));
      later |= c->step > deviation_.step;
    }
    // The broadcast at the beginning and one kind of call repeat nothing that could be missed.
    return deviation_.is_regular && kinds.size() > 2 &&
           (deviation_.step >= 1 || (recording_.step && later));
  }

  bool any_raised() const {
    return std::any_of(deviation_.culprits.begin(), deviation_.culprits.end(),
                       [&](int r) { return calls_.raised[static_cast<std::size_t>(r)]; });
  }

  // In the last step, the others are through.
  std::set<std::string> at_last(std::set<std::string> rules) const {
    if (deviation_.step == job_.steps - 1) rules.insert("unequal-iterations");
    return rules;
  }

  // A rank that left out the last call that it would have made just stops.
  std::set<std::string> with_ends(std::set<std::string> rules) const {
    const auto just_stops = [&](int r) {
      const auto& own = calls_.ranks[static_cast<std::size_t>(r)];
      std::size_t i = 0;
      for (const Action& a : healthy_.ranks[static_cast<std::size_t>(r)]) {
        if (i == own.size()) return true;
        if (a.kind != Action::Kind::issue) continue;
        if (visible(a.call, recording_) != visible(*own[i], recording_)) return false;
        if (a.call.group != own[i]->group) return false;
        ++i;
      }
      return true;
    };
    if (std::any_of(deviation_.culprits.begin(), deviation_.culprits.end(), just_stops)) {
      rules.insert({"host-stall", "unequal-iterations"});
    }
    return rules;
  }

  // Whether a culprit never issued what others of its groups did.
  bool lags() const {
    for (const int r : deviation_.culprits) {
      for (const auto& [group, members] : job_.groups) {
        if (!contains(members, r)) continue;
        const std::size_t own = calls_.collectives(r, group).size();
        for (const int m : members) {
          if (calls_.collectives(m, group).size() > own) return true;
        }
      }
    }
    return false;
  }

  // Where names and steps are not recorded, a shift shows only later.
  void see_location(Expectation& e) const {
    const bool is_device = fault_ == MeshFault::never_starts ||
                           fault_ == MeshFault::never_completes || fault_ == MeshFault::link_stall;
    if (e.seqs.empty() || deviation_.culprits.empty() || is_device) return;
    if (fault_ == MeshFault::killed) see_open_call(e);
    for (const int r : deviation_.culprits) {
      for (const std::string& group : deviation_.groups) {
        const Members& members = job_.groups.at(group);
        if (!contains(members, r)) continue;
        std::vector<const CallSpec*> usual;
        for (const Action& a : healthy_.ranks[static_cast<std::size_t>(r)]) {
          const bool collective = a.kind == Action::Kind::issue && !is_point_to_point(a.call);
          if (collective && a.call.group == group) usual.push_back(&a.call);
        }
        const auto own = calls_.collectives(r, group);
        std::size_t i = 0;
        while (i < std::min(usual.size(), own.size()) &&
               visible(*usual[i], recording_) == visible(*own[i], recording_)) {
          ++i;
        }
        e.seqs.insert(static_cast<std::int64_t>(i));
        const CallSpec* there = i < usual.size() ? usual[i] : i < own.size() ? own[i] : nullptr;
        if (recording_.step && there != nullptr) e.steps.insert(there->step);
      }
    }
  }

  // Whoever dies takes along what its device had not done; which of its open calls that was, is not
  // in its trace.
  void see_open_call(Expectation& e) const {
    const auto r = static_cast<std::size_t>(deviation_.culprits[0]);
    for (const CallSpec* const open : {calls_.open[r], calls_.oldest[r]}) {
      if (open == nullptr) continue;
      std::vector<const CallSpec*> own;  // of its kind in its group, which are counted apart
      for (const CallSpec* c : calls_.ranks[r])
        if (c->group == open->group && is_point_to_point(*c) == is_point_to_point(*open))
          own.push_back(c);
      e.groups.insert(open->group);
      for (auto i = std::find(own.begin(), own.end(), open) - own.begin();
           i < static_cast<std::ptrdiff_t>(own.size()); ++i)
        e.seqs.insert(i);
      if (recording_.step) e.steps.insert(open->step);
    }
  }

  void weaken_stalls(Expectation& e) const {
    switch (fault_) {
      case MeshFault::never_starts:
      case MeshFault::link_stall:
        // Everybody issued the call, nobody completed it: that is all.
        if (known_.starts) return;
        e.may_be_open = true;
        e.culprits_needed = false;
        return;
      case MeshFault::never_completes:
      case MeshFault::groups_swapped:  // streams of their own let both orders through
        if (known_.completions) return;
        e.may_be_open = true;
        e.culprits_needed = false;
        return;
      case MeshFault::wrong_root:
        if (recording_.root) return;
        e.rules.insert("device-stall");
        e.may_be_open = true;
        e.culprits_needed = false;
        return;
      default:
        return;
    }
  }

  // A dump does not tell that its job hangs: the few who wait may be ahead of the others, and a
  // call that its peers completed may complete at the next moment.
  void weaken_looks(Expectation& e) const {
    int waiting = 0;
    bool victims = false;
    for (int r = 0; r < job_.world(); ++r) {
      if (!calls_.waits[static_cast<std::size_t>(r)]) continue;
      ++waiting;
      victims |= !contains(deviation_.culprits, r);
    }
    if (2 * waiting <= job_.world()) e.may_be_open = true;
    if (!victims) e.culprits_needed = false;
    if (fault_ == MeshFault::never_completes && !lags()) e.may_be_open = true;
    if (fault_ != MeshFault::never_starts && stands_in_all_to_all()) {
      e.may_be_open = true;
      e.culprits_needed = false;
    }
  }

  // Whether a whole group stands in the same all-to-all. A dump does not hold its splits: such that
  // do not fit let it begin everywhere and end nowhere, as a link that stalls does.
  bool stands_in_all_to_all() const {
    return std::any_of(deviation_.groups.begin(), deviation_.groups.end(), [&](const auto& group) {
      const Members& members = job_.groups.at(group);
      std::set<std::ptrdiff_t> indexes;
      for (const int m : members) {
        const CallSpec* const open = calls_.open[static_cast<std::size_t>(m)];
        if (open == nullptr || open->group != group || open->splits_in.empty()) return false;
        const auto own = calls_.collectives(m, group);
        indexes.insert(std::find(own.begin(), own.end(), open) - own.begin());
      }
      return indexes.size() == 1;
    });
  }

  const MeshFault fault_;
  const Deviation& deviation_;
  const Job& healthy_;
  const Job& job_;
  const Calls& calls_;
  const Recording& recording_;
  const Knowledge& known_;
};

}  // namespace

Expectation expectation_of(MeshFault fault, const Deviation& deviation, const Job& healthy,
                           const Job& job, const Calls& calls, const Recording& recording,
                           const Knowledge& known) {
  return Expecting(fault, deviation, healthy, job, calls, recording, known).expectation();
}

}  // namespace lockstep::verify::injection
