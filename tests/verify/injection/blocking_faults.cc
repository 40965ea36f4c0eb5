// Faults by which ranks do not come, wait for each other, or do not wait at all.
#include <algorithm>
#include <utility>

#include "tests/verify/injection/injector.h"

namespace lockstep::verify::injection {

Injector::Found Injector::length(bool longer) {
  if (job_.steps < 3) return std::nullopt;
  const int rank = pick(random_, 0, job_.world() - 1);
  Actions& list = actions(rank);
  int step = pick(random_, 2, job_.steps - 1);
  if (longer) {
    step = job_.steps;
    const std::size_t last = start_of_step(rank, job_.steps - 1);
    const Actions again(list.begin() + static_cast<std::ptrdiff_t>(last), list.end());
    for (Action a : again) {
      a.call.step = a.n = step;
      if (a.handle != kUnset) a.handle += 50000;
      list.push_back(std::move(a));
    }
  } else {
    list.resize(start_of_step(rank, step));
  }
  Expectation e;
  e.rules = {"unequal-iterations"};
  if (!recording_.step) e.rules.insert({"missing-collective", "extra-collective"});
  // A dump does not say why its rank calls nothing any more.
  if (recording_.snapshot) e.rules.insert({"host-stall", "missing-collective"});
  if (job_.shape == "pipeline" || job_.shape == "ring") {
    // The first to be missed may be a send or a receive.
    e.rules.insert({"p2p-unmatched"});
    e.culprits_needed = false;
  }
  e.culprits = std::vector{rank};
  if (job_.shape == "dp x tp") e.culprits_needed = false;
  // Either of two ranks may have run the wrong number of steps; so may either side of sends and
  // receives whose steps are not recorded.
  if (job_.world() == 2 || (job_.shape != "ddp" && !recording_.step)) e.culprits.reset();
  // Nor whether one rank goes on, or all the others stand still.
  if (recording_.snapshot && longer) e.culprits.reset();
  e.may_be_open = recording_.snapshot && longer;
  if (recording_.step) e.steps = {step};
  return e;
}

Injector::Found Injector::ended(Fault fault) {
  const auto site = find_site([&](const CallSpec& c) { return c.step >= 1; });
  if (!site) return std::nullopt;
  const CallSpec missed = call(*site);
  Expectation e;
  e.culprits = std::vector{site->rank};
  // Several calls may be missed, in each of the rank's groups the next one.
  for (const auto& [group, members] : job_.groups) {
    e.groups.insert(group);
    const Actions& list = actions(site->rank);
    const auto all = collectives(list, group);
    e.seqs.insert(
        std::count_if(all.begin(), all.end(), [&](std::size_t i) { return i < site->at; }));
  }
  e.only_if_hung = true;  // a rank that nobody misses any more is just a file that was cut off
  // A peer may miss a message only some steps later, when it has used up what was sent before.
  const bool messages = job_.shape == "pipeline" || job_.shape == "ring";
  if (messages) e.seqs.clear();
  if (recording_.step && !messages) e.steps = {missed.step};
  switch (fault) {
    case Fault::killed:
      end_with(*site, Action::Kind::die);
      e.rules = {"host-stall"};
      if (recording_.snapshot) {  // and is not there to write a dump
        e = Expectation{};
        e.rules = {"missing-rank"};
        e.may_be_open = e.only_if_hung = true;
      }
      break;
    case Fault::host_hang:
      end_with(*site, Action::Kind::stall);
      e.rules = {"host-stall"};
      break;
    default:
      end_with(*site, Action::Kind::raise, "CUDA out of memory. Tried to allocate 2.00 GiB");
      e.rules = {recording_.snapshot ? "host-stall" : "rank-exception"};
      break;
  }
  return e;
}

// Two blocking calls in different groups the other way round on one rank.
Injector::Found Injector::inverted() {
  for (int attempt = 0; attempt < 50; ++attempt) {
    const auto site = find_collective([](const CallSpec& c) { return !c.async; });
    if (!site) return std::nullopt;
    Actions& list = actions(site->rank);
    if (site->at + 1 >= list.size()) continue;
    const CallSpec a = call(*site);
    const CallSpec b = list[site->at + 1].call;
    if (list[site->at + 1].kind != Action::Kind::issue || b.async || a.group == b.group) continue;
    const std::int64_t seq = seq_of(*site);
    const std::int64_t other = seq_of({site->rank, site->at + 1});
    std::swap(list[site->at], list[site->at + 1]);
    Expectation e;
    e.rules = {"cross-group-deadlock", "deadlock"};
    e.culprits = std::vector{site->rank};
    e.culprits_needed = false;
    e.seqs = {seq, other};
    // A dump shows this run's end, not that no schedule has another; nor, of a host that blocks,
    // that it would have made the other call later.
    if (recording_.snapshot) {
      e.rules.insert(e.rules.end(), "missing-collective");
    } else {
      e.certainty = "proven";
    }
    e.only_if_hung = true;
    if (recording_.step) e.steps = {a.step};
    return e;
  }
  return std::nullopt;
}

Injector::Found Injector::p2p(Fault fault) {
  behaviour_.buffered_sends = false;
  const auto site = find_site([&](const CallSpec& c) {
    return is_point_to_point(c) && c.step >= 1 && (fault != Fault::p2p_size || !c.in.empty());
  });
  if (!site) return std::nullopt;
  const CallSpec chosen = call(*site);
  Expectation e;
  e.culprits_needed = false;
  if (recording_.step) e.steps = {chosen.step};
  if (fault == Fault::p2p_size) {
    call(*site).in = {65};
    e.rules = {"p2p-size"};
    return e;
  }
  e.culprits = std::vector{site->rank};
  Actions& list = actions(site->rank);
  if (fault == Fault::p2p_unmatched) {
    remove(site->rank, site->at);
    e.rules = {"p2p-unmatched", "p2p-cycle", "deadlock"};
    if (recording_.snapshot) e.rules.insert("host-stall");  // a rank that calls nothing any more
    e.steps.clear();
    return e;
  }
  if (site->at + 1 >= list.size() || list[site->at + 1].kind != Action::Kind::issue) {
    return std::nullopt;
  }
  std::swap(list[site->at], list[site->at + 1]);
  e.rules = {"p2p-cycle", "deadlock"};
  // In a dump, who stands at the wrong end just never posted the other.
  if (recording_.snapshot) e.rules.insert("p2p-unmatched");
  if (!recording_.snapshot) e.certainty = "proven";
  e.only_if_hung = true;
  e.steps.clear();
  return e;
}

// The device never finishes one call, which its peers finish; they wait in the group's next one.
Injector::Found Injector::device_stall() {
  if (!recording_.snapshot) return std::nullopt;
  const auto site = find_collective([](const CallSpec& c) { return c.step >= 1; });
  if (!site) return std::nullopt;
  const auto all = collectives(actions(site->rank), call(*site).group);
  if (all.back() == site->at) return std::nullopt;
  call(*site).stall = Stall::never_completes;
  Expectation e;
  e.rules = {"device-stall"};
  e.culprits = std::vector{site->rank};
  e.groups = {call(*site).group};
  e.seqs = {seq_of(*site)};
  return e;
}

Injector::Found Injector::never_waited() {
  // In MPI it is the wait that completes a request, which the executor does not act out.
  if (recording_.snapshot || job_.mpi) return std::nullopt;
  behaviour_.records_completion = true;
  const auto site = find_collective([](const CallSpec& c) { return c.async; });
  if (!site) return std::nullopt;
  Expectation e;
  e.rules = {"never-waited"};
  e.culprits = std::vector{site->rank};
  e.groups = {call(*site).group};
  e.seqs = {seq_of(*site)};
  if (recording_.step) e.steps = {call(*site).step};
  Actions& list = actions(site->rank);
  erase_waits(list, list[site->at].handle);
  return e;
}

}  // namespace lockstep::verify::injection
