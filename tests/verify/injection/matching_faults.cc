// Faults in the calls themselves: left out, added, exchanged, changed.
#include <algorithm>
#include <utility>

#include "tests/verify/injection/injector.h"

namespace lockstep::verify::injection {

Injector::Found Injector::skip(bool from_then_on) {
  const auto site = find_collective();
  if (!site) return std::nullopt;
  const CallSpec gone = call(*site);
  const std::int64_t seq = seq_of(*site);
  Actions& list = actions(site->rank);
  for (std::size_t i = list.size(); i-- > site->at;) {
    const CallSpec& c = list[i].call;
    const bool same = list[i].kind == Action::Kind::issue && c.group == gone.group &&
                      c.op == gone.op && c.what == gone.what;
    if (i == site->at || (from_then_on && same)) remove(site->rank, i);
  }
  Rules rules = {"missing-collective"};
  // The last call left out looks like an iteration less.
  if (!recording_.step) rules.insert("unequal-iterations");
  if (recording_.what) rules.insert("identity-mismatch");
  // Without names, leaving out every second call is as good as changing every second one.
  if (from_then_on && !recording_.what) rules.insert({"size-mismatch", "op-mismatch"});
  return deviation(rules, site->rank, gone.group, seq, gone.step);
}

Injector::Found Injector::modality() {
  const auto is_image = [](const CallSpec& c) {
    return !c.what.empty() && c.what[0].starts_with("image.");
  };
  const auto site = find_collective(is_image);
  if (!site) return std::nullopt;
  const CallSpec gone = call(*site);
  const bool from_then_on = flip();
  for (int r = 0; r < job_.world(); ++r) {
    for (Action& a : actions(r)) {
      if (a.kind == Action::Kind::modality) a.names = {"image", "text"};
    }
  }
  Actions& list = actions(site->rank);
  std::int64_t seq = -1;
  const std::size_t start = start_of_step(site->rank, gone.step);
  for (std::size_t i = list.size(); i-- > start;) {
    Action& a = list[i];
    if (a.kind == Action::Kind::modality && (from_then_on || a.n == gone.step)) a.names = {"text"};
    if (a.kind != Action::Kind::issue || !is_image(a.call)) continue;
    if (!from_then_on && a.call.step != gone.step) continue;
    if (a.call.group == gone.group) seq = seq_of({site->rank, i});
    remove(site->rank, i);
  }
  auto e = deviation({"missing-collective"}, site->rank, gone.group, seq, gone.step);
  if (!e) return e;
  if (recording_.modality && recording_.step && e->seqs.size() == 1) {
    e->rules = {"modality-divergence"};
  } else {
    e->rules.insert({"modality-divergence", "identity-mismatch"});
    if (!recording_.step) e->rules.insert("unequal-iterations");
    if (!recording_.what) e->rules.insert({"size-mismatch", "op-mismatch"});
  }
  return e;
}

Injector::Found Injector::extra() {
  const auto site = find_collective();
  if (!site) return std::nullopt;
  const std::int64_t seq = seq_of(*site);
  Action added;
  added.handle = 100000;
  added.call.group = call(*site).group;
  // Where barriers are usual, one more looks as if something before it was left out.
  const Actions& own = actions(site->rank);
  const bool usual = std::any_of(own.begin(), own.end(), [&](const Action& a) {
    return a.kind == Action::Kind::issue && a.call.op == "barrier";
  });
  added.call.op = job_.shape != "mixed" && flip() && !usual ? "barrier" : "all_reduce";
  added.call.step = call(*site).step;
  added.call.at = "log.py:7";
  if (added.call.op == "all_reduce") {
    added.call.in = added.call.out = {7};
    added.call.redop = "sum";
    added.call.what = {"accuracy"};
  }
  const int step = call(*site).step;
  const std::string group = added.call.group;
  Actions& list = actions(site->rank);
  list.insert(list.begin() + static_cast<std::ptrdiff_t>(site->at), std::move(added));
  return deviation({"extra-collective", "op-mismatch", "size-mismatch"}, site->rank, group, seq,
                   step);
}

Injector::Found Injector::swapped() {
  const auto neighbour = [&](const Site& s) {
    const Actions& list = actions(s.rank);
    return s.at + 1 < list.size() && list[s.at + 1].kind == Action::Kind::issue &&
           list[s.at + 1].call.group == call(s).group && list[s.at + 1].call.step == call(s).step &&
           visible(list[s.at + 1].call, recording_) != visible(call(s), recording_);
  };
  for (int attempt = 0; attempt < 20; ++attempt) {
    const auto site = find_collective();
    if (!site || !neighbour(*site)) continue;
    const std::int64_t seq = seq_of(*site);
    const CallSpec first = call(*site);
    Actions& list = actions(site->rank);
    std::swap(list[site->at], list[site->at + 1]);
    Rules rules = {"order-swap"};
    // Blocked in the first of the two, or dead, the rank never shows the second.
    const bool blocks = behaviour_.mismatch == Behaviour::Mismatch::aborts ||
                        (!first.async && behaviour_.mismatch == Behaviour::Mismatch::hangs);
    if (blocks) rules.insert({"missing-collective", "size-mismatch", "op-mismatch"});
    return deviation(rules, site->rank, first.group, seq, first.step);
  }
  return std::nullopt;
}

Injector::Found Injector::changed(Fault fault) {
  const auto site = find_collective([&](const CallSpec& c) {
    switch (fault) {
      case Fault::wrong_size:
        return !c.in.empty() && c.splits_in.empty() && c.splits_out.empty();
      case Fault::wrong_dtype:
        return recording_.dtype && !c.in.empty();
      case Fault::wrong_redop:
        return recording_.redop && !c.redop.empty();
      case Fault::wrong_root:
        return recording_.root && c.root != kUnset;
      case Fault::wrong_op:
        return c.op == "all_reduce";
      default:
        return recording_.what && !c.what.empty();
    }
  });
  if (!site) return std::nullopt;
  const std::int64_t seq = seq_of(*site);
  CallSpec& c = call(*site);
  const auto grow = [](std::vector<std::int64_t>& shape) {
    if (!shape.empty()) shape[0] = shape[0] * 2 + 1;
  };
  Rules rules;
  switch (fault) {
    case Fault::wrong_size:
      grow(c.in);
      grow(c.out);
      rules = {"size-mismatch"};
      break;
    case Fault::wrong_dtype:
      c.dtype = "bfloat16";
      rules = {"dtype-mismatch"};
      break;
    case Fault::wrong_redop:
      c.redop = "max";
      rules = {"redop-mismatch"};
      break;
    case Fault::wrong_root:
      c.root = (c.root + 1) % job_.world();
      rules = {"root-mismatch"};
      break;
    case Fault::wrong_op:
      c.op = "broadcast";
      c.redop.clear();
      c.root = 0;
      rules = {"op-mismatch"};
      break;
    default:
      c.what = {"decoder.rare.weight"};
      rules = {"identity-mismatch"};
      break;
  }
  return deviation(rules, site->rank, c.group, seq, c.step);
}
Injector::Found Injector::group_members() {
  const auto site =
      find_collective([&](const CallSpec& c) { return job_.groups.at(c.group).size() > 2; });
  if (!site) return std::nullopt;
  const std::string group = call(*site).group;
  Members members = job_.groups.at(group);
  if (flip()) {
    std::reverse(members.begin(), members.end());
  } else {
    members.erase(std::find(members.begin(), members.end(), site->rank) == members.begin()
                      ? members.begin() + 1
                      : members.begin());
  }
  job_.beliefs[{site->rank, group}] = members;
  Expectation e;
  e.rules = {"group-divergence"};
  e.groups = {group};
  e.culprits = std::vector{site->rank};
  return e;
}

Injector::Found Injector::splits() {
  const auto site =
      find_collective([&](const CallSpec& c) { return recording_.splits && !c.splits_in.empty(); });
  if (!site) return std::nullopt;
  CallSpec& c = call(*site);
  auto& sent = c.splits_in;
  const auto from = static_cast<std::size_t>(pick(random_, 0, job_.world() - 1));
  const std::size_t to = (from + 1) % sent.size();
  // The total stays as it is: only the matrix shows it.
  if (sent[from] == 0) return std::nullopt;
  --sent[from];
  ++sent[to];
  Expectation e;
  e.rules = {"splits-mismatch"};
  e.groups = {c.group};
  e.seqs = {seq_of(*site)};
  if (recording_.step) e.steps = {c.step};
  e.culprits = std::vector{site->rank};
  e.culprits_needed = false;
  return e;
}

}  // namespace lockstep::verify::injection
