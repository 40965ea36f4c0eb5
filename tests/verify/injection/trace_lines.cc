#include "tests/verify/injection/trace_lines.h"

#include <algorithm>

namespace lockstep::verify::injection {

namespace {

// Names and messages of this harness need no escapes, apart from quotes and line ends.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    c == '\n' ? out += "\\n" : out += c;
  }
  return out += '"';
}
std::string element(const std::string& text) { return quoted(text); }
std::string element(std::int64_t number) { return std::to_string(number); }
template <class List>
std::string list(const List& values) {
  std::string out = "[";
  for (const auto& v : values) {
    if (out.size() > 1) out += ',';
    out += element(v);
  }
  return out += ']';
}

}  // namespace

TraceLines::TraceLines(const Job& job, int rank, const Recording& recording, Random& random)
    : recording_(recording), random_(random), mpi_(job.mpi) {
  text_ = R"({"header":1,"rank":)" + std::to_string(rank) + R"(,"world_size":)" +
          std::to_string(job.world()) + R"(,"backend":)" + quoted(recording.backend) +
          R"(,"clock":"ns","dropped":0)" + (mpi_ ? R"(,"semantics":"mpi"})" : "}") + "\n";
  for (const auto& [name, members] : job.groups) {
    const Members& mine = job.members(rank, name);
    const bool member = std::find(members.begin(), members.end(), rank) != members.end();
    if (!member) continue;
    text_ += R"({"group":)" + quoted(name) + R"(,"ranks":)" + list(mine) + "}\n";
  }
}

void TraceLines::add(std::string line) {
  time_ = clock_ ? *clock_ : time_ + pick(random_, 50, 900);
  if (recording_.times) line += R"(,"t":)" + std::to_string(time_);
  text_ += line + "}\n";
}

void TraceLines::issue(int id, const CallSpec& c) {
  std::string line = R"({"ev":"issue","id":)" + std::to_string(id) + R"(,"g":)" + quoted(c.group) +
                     R"(,"op":)" + quoted(c.op);
  const auto number = [&](const char* key, int value) {
    if (value != kUnset) line += ",\"" + std::string(key) + "\":" + std::to_string(value);
  };
  if (mpi_) {
    const auto& count = c.in.empty() ? c.out : c.in;
    if (!count.empty()) line += R"(,"count":)" + std::to_string(count[0]);
    if (!c.mode.empty()) line += R"(,"mode":)" + quoted(c.mode);
  } else {
    if (!c.in.empty()) line += R"(,"in":[)" + list(c.in) + "]";
    if (!c.out.empty()) line += R"(,"out":[)" + list(c.out) + "]";
  }
  if (recording_.dtype && !(c.in.empty() && c.out.empty())) {
    line += R"(,"dtype":)" + quoted(c.dtype);
  }
  if (recording_.redop && !c.redop.empty()) line += R"(,"redop":)" + quoted(c.redop);
  number("root", c.root);
  number("peer", c.peer);
  number("ptag", c.ptag);
  number("coalesced", c.coalesced);
  if (!c.splits_in.empty()) line += R"(,"splits_in":)" + list(c.splits_in);
  if (!c.splits_out.empty()) line += R"(,"splits_out":)" + list(c.splits_out);
  if (recording_.what && !c.what.empty()) line += R"(,"what":)" + list(c.what);
  if (recording_.at && !c.at.empty()) line += R"(,"at":)" + quoted(c.at);
  number("step", step_of(c, recording_));
  line += std::string(R"(,"async":)") + (c.async ? "true" : "false");
  add(std::move(line));
}

void TraceLines::call_event(const char* kind, int id) {
  add(R"({"ev":")" + std::string(kind) + R"(","id":)" + std::to_string(id));
}

void TraceLines::modality(const Action& action) {
  if (!recording_.modality) return;
  add(R"({"ev":"modality","n":)" + std::to_string(action.n) + R"(,"has":)" + list(action.names));
}

void TraceLines::step(int n) {
  if (recording_.step_marks) add(R"({"ev":"step","n":)" + std::to_string(n));
}

void TraceLines::exception(const std::string& text, int id) {
  std::string line = R"({"ev":"exception","what":)" + quoted(text);
  if (id != kUnset) line += R"(,"id":)" + std::to_string(id);
  add(std::move(line));
}

void TraceLines::end(const char* how) { text_ += R"({"end":")" + std::string(how) + "\"}\n"; }

}  // namespace lockstep::verify::injection
