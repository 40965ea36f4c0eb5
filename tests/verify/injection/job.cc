#include "tests/verify/injection/job.h"

#include <algorithm>

namespace lockstep::verify::injection {

const Members& Job::members(int rank, const std::string& group) const {
  const auto belief = beliefs.find({rank, group});
  return belief != beliefs.end() ? belief->second : groups.at(group);
}

bool is_point_to_point(const CallSpec& call) { return call.op == "send" || call.op == "recv"; }

std::int64_t elements(const std::vector<std::int64_t>& shape) {
  std::int64_t product = 1;
  for (const std::int64_t d : shape) product *= d;
  return product;
}

std::vector<std::size_t> collectives(const Actions& actions, const std::string& group) {
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const Action& a = actions[i];
    if (a.kind == Action::Kind::issue && a.call.group == group && !is_point_to_point(a.call)) {
      out.push_back(i);
    }
  }
  return out;
}

namespace {

bool fit(const CallSpec& a, const CallSpec& b) {
  const bool uneven = !a.splits_in.empty() && !b.splits_in.empty();
  const bool sizes =
      uneven || (elements(a.in) == elements(b.in) && elements(a.out) == elements(b.out));
  return a.op == b.op && sizes && a.dtype == b.dtype && a.root == b.root;
}

bool splits_fit(const std::vector<const CallSpec*>& calls) {
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (calls[i]->splits_in.size() != calls.size()) continue;
    for (std::size_t j = 0; j < calls.size(); ++j) {
      if (calls[j]->splits_out.size() != calls.size()) continue;
      if (calls[i]->splits_in[j] != calls[j]->splits_out[i]) return false;
    }
  }
  return true;
}

}  // namespace

bool all_fit(const std::vector<const CallSpec*>& calls) {
  return splits_fit(calls) && std::all_of(calls.begin(), calls.end(),
                                          [&](const CallSpec* c) { return fit(*c, *calls[0]); });
}

bool messages_fit(const CallSpec& a, const CallSpec& b) {
  const auto size = [](const CallSpec& c) { return elements(c.op == "send" ? c.in : c.out); };
  return size(a) == size(b) && a.dtype == b.dtype;
}

int step_of(const CallSpec& call, const Recording& recording) {
  const bool shown = recording.step && (recording.world_steps || call.group != "world");
  return shown ? call.step : kUnset;
}

std::string visible(const CallSpec& call, const Recording& recording) {
  // What an all-to-all exchanges differs from rank to rank by design.
  const bool uneven = !call.splits_in.empty();
  std::string out = call.op + "/" + std::to_string(uneven ? 0 : elements(call.in)) + "/" +
                    std::to_string(uneven ? 0 : elements(call.out)) + "/";
  if (recording.root) out += std::to_string(call.root);
  if (recording.dtype) out += "/" + call.dtype;
  if (recording.redop) out += "/" + call.redop;
  if (recording.step) out += "/" + std::to_string(step_of(call, recording));
  if (recording.what) {
    for (const std::string& name : call.what) out += "/" + name;
  }
  return out;
}

void erase_waits(Actions& actions, int handle) {
  std::erase_if(
      actions, [&](const Action& a) { return a.kind == Action::Kind::wait && a.handle == handle; });
}

}  // namespace lockstep::verify::injection
