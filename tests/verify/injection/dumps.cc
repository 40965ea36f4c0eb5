#include "tests/verify/injection/dumps.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "tests/trace/formats/pickle_writer.h"

namespace lockstep::verify::injection {

DumpStyle any_style(Random& random) {
  static constexpr std::size_t kRings[] = {12, 30, 80, 2000, 2000};
  DumpStyle style;
  style.timing = chance(random, 0.5);
  style.frames = chance(random, 0.7);
  style.only_active = chance(random, 0.1);
  style.ring = kRings[pick(random, 0, 4)];
  return style;
}

void forget(DeviceOutcome& outcome, const DumpStyle& style) {
  for (RankOutcome& rank : outcome.ranks) {
    auto& entries = rank.entries;
    if (entries.size() > style.ring) {
      entries.erase(entries.begin(), entries.end() - static_cast<std::ptrdiff_t>(style.ring));
    }
  }
}

void skew(const Job& job, DeviceOutcome& outcome, int most, Random& random) {
  std::vector<bool> late(outcome.ranks.size());
  for (std::size_t r = 0; r < late.size(); ++r) {
    late[r] = chance(random, 0.5);
    const bool unseen = std::any_of(job.groups.begin(), job.groups.end(), [&](const auto& group) {
      const Members& members = group.second;
      return std::all_of(members.begin(), members.end(),
                         [&](int m) { return late[static_cast<std::size_t>(m)]; });
    });
    if (unseen) late[r] = false;
  }
  for (std::size_t r = 0; r < late.size(); ++r) {
    if (!late[r]) continue;
    auto& entries = outcome.ranks[r].entries;
    auto left = static_cast<std::size_t>(pick(random, 1, most));
    for (auto e = entries.rbegin(); e != entries.rend() && left > 0; ++e, --left) {
      e->state = left == 1 ? Entry::State::started : Entry::State::scheduled;
    }
  }
}

std::int64_t time_in_dumps(std::int64_t clock) {
  constexpr std::int64_t kStart = 1795247719749931269;
  return kStart + clock;
}

namespace {

std::string name_in_torch(const CallSpec& call, const Members& members, int rank) {
  const auto in_group = [&](int global) {
    return std::find(members.begin(), members.end(), global) - members.begin();
  };
  const auto message = [&](const char* arrow) {
    return fmt::format("nccl:{} {}{}{}", call.op, in_group(rank), arrow, in_group(call.peer));
  };
  if (call.op == "send") return message("->");
  if (call.op == "recv") return message("<-");
  static const std::map<std::string, std::string> kNames = {
      {"barrier", "all_reduce_barrier"},
      {"all_gather_into_tensor", "_all_gather_base"},
      {"reduce_scatter_tensor", "_reduce_scatter_base"},
      {"all_to_all_single", "all_to_all"}};
  const auto known = kNames.find(call.op);
  return "nccl:" + (known == kNames.end() ? call.op : known->second);
}

std::string type_in_torch(const std::string& dtype) {
  if (dtype == "float32") return "Float";
  if (dtype == "bfloat16") return "BFloat16";
  if (dtype == "int64") return "Long";
  return dtype;
}

std::string list(const Members& members) { return fmt::format("[{}]", fmt::join(members, ", ")); }

// Writes the JSON twin with the same calls: what is missing is 0 there.
class JsonWriter {
 public:
  JsonWriter& begin_dict() { return open('{'); }
  JsonWriter& end_dict() { return close('}'); }
  JsonWriter& begin_list() { return open('['); }
  JsonWriter& end_list() { return close(']'); }
  JsonWriter& pair(std::string_view a, std::string_view b) {
    return begin_list().text(a).text(b).end_list();
  }
  JsonWriter& none() { return value("0"); }
  JsonWriter& boolean(bool b) { return value(b ? "true" : "false"); }
  JsonWriter& integer(std::int64_t i) { return value(fmt::to_string(i)); }
  JsonWriter& text(std::string_view s) { return value('"' + std::string(s) + '"'); }
  std::string finish() { return nlohmann::json::parse(out_).dump(); }  // the keys sorted

 private:
  struct Level {
    char bracket = '{';
    int values = 0;
  };
  JsonWriter& value(const std::string& text) {
    separate();
    out_ += text;
    return *this;
  }
  void separate() {
    if (levels_.empty()) return;
    Level& l = levels_.back();
    if (l.values > 0) out_ += l.bracket == '{' && l.values % 2 == 1 ? ':' : ',';
    ++l.values;
  }
  JsonWriter& open(char bracket) {
    separate();
    levels_.push_back({bracket, 0});
    out_ += bracket;
    return *this;
  }
  JsonWriter& close(char bracket) {
    levels_.pop_back();
    out_ += bracket;
    return *this;
  }

  std::vector<Level> levels_;
  std::string out_;
};

template <class Writer>
class DumpWriter {
 public:
  DumpWriter(const Job& job, int rank, const DumpStyle& style)
      : job_(job), rank_(rank), style_(style) {
    for (const auto& [name, members] : job.groups) {
      if (std::find(members.begin(), members.end(), rank) == members.end()) continue;
      // Numbers are the process's own: the same group has another one elsewhere.
      numbers_.emplace(name, static_cast<int>(numbers_.size()));
    }
  }

  std::string write(const std::vector<Entry>& entries) {
    w_.begin_dict().text("version").text("2.10").text("pg_config").begin_dict();
    for (const auto& [name, number] : numbers_) {
      w_.text(name).begin_dict().text("name").text(name).text("desc").text(desc(name));
      w_.text("ranks").text(list(job_.members(rank_, name))).end_dict();
    }
    w_.end_dict().text("comm_lib_version").text("2.28.9").text("pg_status").begin_dict();
    for (const auto& [name, number] : numbers_) write_status(name, number, entries);
    w_.end_dict();
    const auto is_kept = [&](const Entry& e) {
      return !style_.only_active || e.state != Entry::State::completed;
    };
    if (!style_.json || std::any_of(entries.begin(), entries.end(), is_kept)) {
      w_.text("entries").begin_list();
      for (const Entry& e : entries) {
        if (is_kept(e)) write_entry(e);
      }
      w_.end_list();
    }
    w_.end_dict();
    return w_.finish();
  }

 private:
  static std::string desc(const std::string& name) { return name == "0" ? "default_pg" : name; }

  void write_status(const std::string& name, int number, const std::vector<Entry>& entries) {
    std::int64_t enqueued = -1;
    std::int64_t started = -1;
    std::int64_t completed = -1;
    for (const Entry& e : entries) {
      if (e.call.group != name) continue;
      const std::int64_t seq = e.point_to_point ? e.p2p_seq : e.collective_seq;
      enqueued = seq;
      if (e.state != Entry::State::scheduled && style_.timing) started = seq;
      if (e.state == Entry::State::completed) completed = seq;
    }
    w_.text(fmt::to_string(number)).begin_dict();
    const auto put = [&](const char* key, std::int64_t value) {
      w_.text(key);
      style_.json ? w_.text(fmt::to_string(value)) : w_.integer(value);
    };
    put("last_enqueued_collective", enqueued);
    put("last_started_collective", started);
    put("last_completed_collective", completed);
    w_.end_dict();
  }

  // No message of a batch gets further than scheduled: only the entry that closes the batch shows
  // how far all of them got.
  void write_entry(const Entry& e) {
    if (e.call.coalesced == kUnset) return write_entry(e, e.state, profiling_name(e), false);
    write_entry(e, Entry::State::scheduled, profiling_name(e), false);
    if (e.ends_batch) write_entry(e, e.state, "nccl:coalesced", true);
  }

  std::string profiling_name(const Entry& e) const {
    return name_in_torch(e.call, job_.members(rank_, e.call.group), rank_);
  }

  void write_entry(const Entry& e, Entry::State state, const std::string& name, bool closes) {
    const bool completed = state == Entry::State::completed;
    const bool started = style_.timing && state != Entry::State::scheduled;
    w_.begin_dict();
    if (style_.frames && !style_.json) write_frames(e.call);
    w_.text("record_id").integer(e.record).text("pg_id").integer(numbers_.at(e.call.group));
    w_.text("process_group").pair(e.call.group, desc(e.call.group));
    w_.text("collective_seq_id").integer(e.collective_seq);
    w_.text("p2p_seq_id").integer(e.p2p_seq);
    w_.text("op_id").integer(e.record + 1).text("profiling_name").text(name);
    w_.text("time_created_ns").integer(time_in_dumps(e.created_at));
    write_tensors(closes ? CallSpec{} : e.call);
    w_.text("state").text(completed ? "completed" : started ? "started" : "scheduled");
    w_.text("time_discovered_started_ns");
    started ? w_.integer(time_in_dumps(e.started_at)) : w_.none();
    w_.text("time_discovered_completed_ns");
    completed ? w_.integer(time_in_dumps(e.completed_at)) : w_.none();
    w_.text("retired").boolean(completed).text("timeout_ms").integer(600000);
    w_.text("is_p2p").boolean(e.point_to_point).end_dict();
  }

  void write_frames(const CallSpec& call) {
    const std::size_t colon = call.at.find(':');
    w_.text("frames").begin_list();
    write_frame("/x/torch/distributed/distributed_c10d.py", 3015);
    if (colon != std::string::npos) {
      write_frame(call.at.substr(0, colon), std::stoi(call.at.substr(colon + 1)));
    }
    w_.end_list();
  }

  void write_frame(const std::string& file, std::int64_t line) {
    w_.begin_dict().text("name").text("f").text("filename").text(file);
    w_.text("line").integer(line).end_dict();
  }

  // A message shows its tensor on both sides, a barrier one element.
  void write_tensors(const CallSpec& call) {
    std::vector<std::int64_t> in = call.in;
    std::vector<std::int64_t> out = call.out;
    if (is_point_to_point(call)) in = out = in.empty() ? out : in;
    if (call.op == "barrier") in = out = {1};
    for (const bool given : {true, false}) {
      w_.text(given ? "input_sizes" : "output_sizes").begin_list();
      const auto& shape = given ? in : out;
      if (!shape.empty()) {
        w_.begin_list();
        for (const std::int64_t d : shape) w_.integer(d);
        w_.end_list();
      }
      w_.end_list().text(given ? "input_dtypes" : "output_dtypes").begin_list();
      if (!shape.empty()) w_.text(type_in_torch(call.dtype));
      w_.end_list();
    }
  }

  const Job& job_;
  const int rank_;
  const DumpStyle& style_;
  std::map<std::string, int> numbers_;
  Writer w_;
};

}  // namespace

void name_as_torch(Job& job) {
  const auto world = job.groups.find("world");
  if (world == job.groups.end()) return;
  job.groups.emplace("0", world->second);
  job.groups.erase("world");
  for (Actions& actions : job.ranks) {
    for (Action& a : actions) {
      if (a.call.group == "world") a.call.group = "0";
    }
  }
}

Files dump_files(const Job& job, const DeviceOutcome& outcome, const DumpStyle& style) {
  Files out;
  for (int r = 0; r < job.world(); ++r) {
    const auto rank = static_cast<std::size_t>(r);
    if (!outcome.ranks[rank].dumped) continue;
    const auto& entries = outcome.ranks[rank].entries;
    std::string& file = out[fmt::format("nccl_trace_rank_{}", r)];
    if (style.json) {
      file = DumpWriter<JsonWriter>(job, r, style).write(entries);
    } else {
      file = DumpWriter<trace::PickleWriter>(job, r, style).write(entries);
    }
  }
  return out;
}

}  // namespace lockstep::verify::injection
