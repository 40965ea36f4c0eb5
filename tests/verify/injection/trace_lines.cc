#include "tests/verify/injection/trace_lines.h"

#include <algorithm>
#include <utility>

namespace lockstep::verify::injection {

TraceLines::TraceLines(const Job& job, int rank, const Recording& recording, Random& random)
    : recording_(recording), random_(random), mpi_(job.mpi) {
  Line header = {
      {"header", 1},   {"rank", rank}, {"world_size", job.world()}, {"backend", recording.backend},
      {"clock", "ns"}, {"dropped", 0}};
  if (mpi_) header["semantics"] = "mpi";
  append(header);
  for (const auto& [name, members] : job.groups) {
    if (std::find(members.begin(), members.end(), rank) == members.end()) continue;
    append({{"group", name}, {"ranks", job.members(rank, name)}});
  }
}

void TraceLines::append(const Line& line) { text_ += line.dump() + "\n"; }

void TraceLines::add_event(Line line) {
  time_ = clock_ ? *clock_ : time_ + pick(random_, 50, 900);
  if (recording_.times) line["t"] = time_;
  append(line);
}

void TraceLines::issue(int id, const CallSpec& c) {
  Line line = {{"ev", "issue"}, {"id", id}, {"g", c.group}, {"op", c.op}};
  const auto add_number = [&](const char* key, int value) {
    if (value != kUnset) line[key] = value;
  };
  const auto add_known = [&](const char* key, const auto& value) {
    if (!value.empty()) line[key] = value;
  };
  const auto add_shape = [&](const char* key, const auto& shape) {
    if (!shape.empty()) line[key] = Line::array({shape});  // a list of tensors: one here
  };
  if (mpi_) {
    const auto& count = c.in.empty() ? c.out : c.in;
    if (!count.empty()) line["count"] = count[0];
    add_known("mode", c.mode);
  } else {
    add_shape("in", c.in);
    add_shape("out", c.out);
  }
  if (recording_.dtype && !(c.in.empty() && c.out.empty())) line["dtype"] = c.dtype;
  if (recording_.redop) add_known("redop", c.redop);
  add_number("root", c.root);
  add_number("peer", c.peer);
  add_number("ptag", c.ptag);
  add_number("coalesced", c.coalesced);
  add_known("splits_in", c.splits_in);
  add_known("splits_out", c.splits_out);
  if (recording_.what) add_known("what", c.what);
  if (recording_.at) add_known("at", c.at);
  add_number("step", step_of(c, recording_));
  line["async"] = c.async;
  add_event(std::move(line));
}

void TraceLines::call_event(const char* kind, int id) { add_event({{"ev", kind}, {"id", id}}); }

void TraceLines::modality(const Action& action) {
  if (!recording_.modality) return;
  add_event({{"ev", "modality"}, {"n", action.n}, {"has", action.names}});
}

void TraceLines::step(int n) {
  if (recording_.step_marks) add_event({{"ev", "step"}, {"n", n}});
}

void TraceLines::exception(const std::string& text, int id) {
  Line line = {{"ev", "exception"}, {"what", text}};
  if (id != kUnset) line["id"] = id;
  add_event(std::move(line));
}

void TraceLines::end(const char* how) { append({{"end", how}}); }

}  // namespace lockstep::verify::injection
