#include "tests/verify/injection/recorded_programs.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

#include "trace/load.h"

namespace lockstep::verify::injection {

namespace {

namespace fs = std::filesystem;

std::vector<std::int64_t> shape_of(const trace::Tables& tables, trace::IntListId id,
                                   std::int64_t elements) {
  if (elements < 0) return {};
  const auto shapes = trace::unflatten_shapes(tables.int_lists[id]);
  // Several tensors count by their elements, as one.
  return shapes.size() == 1 && !shapes[0].empty() ? shapes[0] : std::vector{elements};
}

// Reads one rank's part of the run.
class Reader {
 public:
  Reader(const trace::Run& run, Job& job, Recording& seen) : run_(run), job_(job), seen_(seen) {}

  // False: it does something that the executors do not know.
  bool read(const trace::RankTrace& trace) {
    Actions& out = job_.ranks[static_cast<std::size_t>(trace.rank.value)];
    std::map<std::string, int> times;  // how often a call like this one came before
    for (const trace::Event& e : trace.events) {
      Action a;
      switch (e.kind) {
        case trace::EventKind::issue:
          if (!read_call(trace.calls[e.index], a.call)) return false;
          a.handle = static_cast<int>(e.index);
          // Without recorded steps, repetition tells what is late enough to have a past.
          if (a.call.step == kUnset) a.call.step = times[visible(a.call, Recording{})]++;
          break;
        case trace::EventKind::wait:
          a.kind = Action::Kind::wait;
          a.handle = static_cast<int>(e.index);
          if (!trace.calls[e.index].has(trace::kAsync)) continue;
          break;
        case trace::EventKind::modality:
          a.kind = Action::Kind::modality;
          a.n = static_cast<int>(trace.modalities[e.index].n);
          a.names = run_.tables.names(trace.modalities[e.index].has);
          seen_.modality = true;
          break;
        case trace::EventKind::step:
          a.kind = Action::Kind::step;
          a.n = static_cast<int>(trace.steps[e.index].n);
          job_.steps = std::max(job_.steps, a.n + 1);
          seen_.step_marks = true;
          break;
        default:
          continue;
      }
      out.push_back(std::move(a));
    }
    return true;
  }

 private:
  bool read_call(const trace::Call& call, CallSpec& c) {
    const trace::Tables& tables = run_.tables;
    const trace::Signature& s = tables.signatures[call.signature];
    if (s.op == trace::Op::other || s.op == trace::Op::recv_any || s.op == trace::Op::probe)
      return false;
    if (call.coalesced != trace::kNone || call.stream.value != 0) return false;
    c.op = std::string(trace::op_name(s.op));
    c.group = tables.str(call.group);
    c.in = shape_of(tables, s.in, s.in_elements);
    c.out = shape_of(tables, s.out, s.out_elements);
    if (s.count != trace::kNone) (s.op == trace::Op::recv ? c.out : c.in) = {s.count};
    if (s.op == trace::Op::send) c.out.clear();
    if (s.op == trace::Op::recv && !c.out.empty()) c.in.clear();
    const std::vector<std::string> dtypes = tables.names(s.dtypes);
    if (!dtypes.empty()) c.dtype = dtypes[0];
    seen_.dtype |= !dtypes.empty();
    c.redop = tables.str(s.redop);
    seen_.redop |= !c.redop.empty();
    c.root = s.root;
    c.splits_in = splits(s.splits_in);
    c.splits_out = splits(s.splits_out);
    c.mode = tables.str(s.mode);
    c.async = call.has(trace::kAsync);
    c.what = tables.names(call.what);
    seen_.what |= !c.what.empty();
    c.at = tables.str(call.at);
    seen_.at |= !c.at.empty();
    c.step = call.step;
    seen_.step |= call.step != trace::kNone;
    if (is_point_to_point(c)) {
      if (call.peer.value < 0 || (job_.mpi && call.ptag < 0)) return false;
      c.peer = call.peer.value;
      c.ptag = call.ptag == trace::kNoPeerTag ? kUnset : call.ptag;
    }
    return true;
  }

  std::vector<std::int64_t> splits(trace::IntListId id) const {
    std::vector<std::int64_t> out = run_.tables.int_lists[id];
    std::erase(out, -1);
    return out;
  }

  const trace::Run& run_;
  Job& job_;
  Recording& seen_;
};

// Leaves of every group and of every pair's messages what all of them have.
void cut_to_common(const trace::Run& run, Job& job) {
  std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> common;  // first, after the last
  using Channel = std::tuple<std::string, int, int, int>;
  std::map<Channel, std::pair<int, int>> messages;  // sends and receives
  const auto channel_of = [](int rank, const CallSpec& c) {
    return c.op == "send" ? Channel{c.group, rank, c.peer, c.ptag}
                          : Channel{c.group, c.peer, rank, c.ptag};
  };
  const auto seq_of = [&](int rank, const Action& a) {
    return std::uint64_t{
        run.find(trace::Rank(rank))->calls[static_cast<std::size_t>(a.handle)].seq};
  };
  for (int r = 0; r < job.world(); ++r) {
    std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> mine;
    for (const Action& a : job.ranks[static_cast<std::size_t>(r)]) {
      if (a.kind != Action::Kind::issue) continue;
      if (is_point_to_point(a.call)) {
        auto& [sends, receives] = messages[channel_of(r, a.call)];
        ++(a.call.op == "send" ? sends : receives);
      } else {
        mine.try_emplace(a.call.group, seq_of(r, a), 0).first->second.second = seq_of(r, a) + 1;
      }
    }
    for (const auto& [group, members] : job.groups) {
      if (std::find(members.begin(), members.end(), r) == members.end()) continue;
      const auto own =
          mine.contains(group) ? mine[group] : std::pair<std::uint64_t, std::uint64_t>{};
      const auto [known, is_new] = common.try_emplace(group, own);
      if (is_new) continue;
      known->second = {std::max(known->second.first, own.first),
                       std::min(known->second.second, own.second)};
    }
  }
  for (int r = 0; r < job.world(); ++r) {
    std::map<Channel, int> seen;
    std::set<int> gone;
    Actions& list = job.ranks[static_cast<std::size_t>(r)];
    for (const Action& a : list) {
      if (a.kind != Action::Kind::issue) continue;
      if (is_point_to_point(a.call)) {
        const auto& [sends, receives] = messages[channel_of(r, a.call)];
        if (seen[channel_of(r, a.call)]++ >= std::min(sends, receives)) gone.insert(a.handle);
      } else {
        const auto& [first, past_last] = common[a.call.group];
        if (seq_of(r, a) < first || seq_of(r, a) >= past_last) gone.insert(a.handle);
      }
    }
    std::erase_if(list, [&](const Action& a) {
      const bool calls = a.kind == Action::Kind::issue || a.kind == Action::Kind::wait;
      return calls && gone.contains(a.handle);
    });
  }
}

std::optional<Program> load_program(const fs::path& folder, const std::string& name) {
  Result<trace::Run> run = trace::load_run({folder.string()});
  if (!run) return std::nullopt;
  std::optional<Program> program = program_of(*run);
  if (!program) return std::nullopt;
  program->job.shape = "recorded " + name;
  program->recorded = true;
  return program;
}

nlohmann::json json_in(const fs::path& file) {
  std::ifstream in(file);
  return in ? nlohmann::json::parse(in, nullptr, false) : nlohmann::json();
}

void add(std::vector<Recorded>& out, const fs::path& folder, const std::string& name) {
  if (auto program = load_program(folder, name)) out.push_back({name, std::move(*program)});
}

}  // namespace

std::optional<Program> program_of(const trace::Run& run) {
  Program out;
  Recording& seen = out.recording;
  seen.what = seen.step = seen.at = seen.modality = seen.dtype = seen.redop = false;
  seen.step_marks = false;
  Job& job = out.job;
  if (static_cast<std::size_t>(run.world_size) != run.ranks.size()) return std::nullopt;
  job.ranks.resize(run.ranks.size());
  for (const trace::RankTrace& trace : run.ranks) {
    job.mpi |= trace.semantics == trace::Semantics::mpi;
    for (const auto& membership : trace.groups) {
      Members members;
      for (const trace::Rank r : membership.ranks) members.push_back(r.value);
      job.groups.emplace(run.tables.str(membership.group), std::move(members));
    }
  }
  if (!job.groups.contains("world") && !job.groups.contains("0")) {
    for (int r = 0; r < job.world(); ++r) job.groups["world"].push_back(r);
  }
  Reader reader(run, job, seen);
  for (const trace::RankTrace& trace : run.ranks) {
    if (!reader.read(trace)) return std::nullopt;
  }
  cut_to_common(run, job);
  return out;
}

std::vector<Recorded> recorded_traces(const std::string& shared) {
  std::vector<Recorded> out;
  const auto labels = json_in(fs::path(shared) / "native" / "labels.json");
  for (const auto& [name, label] : labels.items()) {
    if (label.value("verdict", "") == "clean") add(out, fs::path(shared) / "native" / name, name);
  }
  return out;
}

std::vector<Recorded> recorded_dumps(const std::string& shared) {
  std::vector<Recorded> out;
  std::error_code absent;
  std::set<fs::path> folders;  // in one order everywhere
  for (const auto& entry : fs::directory_iterator(fs::path(shared) / "fr", absent)) {
    folders.insert(entry.path());
  }
  for (const fs::path& folder : folders) {
    const auto expected = json_in(folder / "expected.json");
    if (!expected.is_object() || expected.value("verdict", "") != "clean") continue;
    add(out, folder, folder.filename().string());
  }
  return out;
}

std::vector<Recorded> recorded_mpi(const std::string& shared) {
  std::vector<Recorded> out;
  const auto labels = json_in(fs::path(shared) / "mpi" / "labels.json");
  if (!labels.is_object()) return out;
  for (const auto& test : labels.at("tests")) {
    const std::string id = test.at("id");
    if (test.at("label") == "correct") add(out, fs::path(shared) / "mpi" / "traces" / id, id);
  }
  return out;
}

Programs any_of(const std::vector<Recorded>& recorded) {
  return [&recorded](const Recording& wish, Random& random) {
    Program out =
        recorded[static_cast<std::size_t>(pick(random, 0, static_cast<int>(recorded.size()) - 1))]
            .program;
    Recording both = wish;
    const Recording& has = out.recording;
    both.what &= has.what;
    both.step &= has.step;
    both.at &= has.at;
    both.modality &= has.modality;
    both.dtype &= has.dtype;
    both.redop &= has.redop;
    both.step_marks &= has.step_marks;
    out.recording = both;
    return out;
  };
}

std::string shared_data() {
  if (const char* const folder = std::getenv("LOCKSTEP_SHARED_DATA")) return folder;
  return (fs::path(LOCKSTEP_SOURCE_DIR) / ".." / "shared" / "data").lexically_normal().string();
}

}  // namespace lockstep::verify::injection
