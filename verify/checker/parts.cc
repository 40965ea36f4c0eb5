#include "verify/checker/parts.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <map>
#include <utility>

#include "base/sha256.h"

namespace lockstep::verify::checked {

std::string word(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 && static_cast<unsigned char>(c) < 128) {
      out += c;
    } else if (c != '\0' && std::strchr("_-.+:@/#[]=()", c) != nullptr) {
      out += c;
    } else {
      const char* const digits = "0123456789ABCDEF";
      out += {'%', digits[(c >> 4) & 15], digits[c & 15]};
    }
  }
  return out.empty() ? "%" : out;
}

namespace {

std::string count(std::int64_t elements) { return elements < 0 ? "?" : std::to_string(elements); }

std::string list(const std::vector<std::int64_t>& numbers) {
  std::string out;
  for (const std::int64_t n : numbers) out += (out.empty() ? "" : ",") + std::to_string(n);
  return out.empty() ? "-" : out;
}

// The sizes that matter, by operation: one side, both, or none.
std::string checked_sizes(const trace::Signature& s) {
  const std::int64_t in = s.in_elements;
  const std::int64_t out = s.out_elements;
  const bool cut = s.splits_in.value != 0 || s.splits_out.value != 0;
  if (s.op == trace::Op::all_reduce || s.op == trace::Op::reduce || s.op == trace::Op::broadcast ||
      s.op == trace::Op::send)
    return count(in >= 0 ? in : out);
  if (s.op == trace::Op::recv) return count(out >= 0 ? out : in);
  if (s.op == trace::Op::all_to_all_single && cut) return "cut";
  if (s.op == trace::Op::all_gather) return out >= 0 ? ">" + count(out) : count(in) + ">";
  if (s.op == trace::Op::gather) return count(in) + ">";
  if (s.op == trace::Op::scatter) return ">" + count(out);
  const bool both = s.op == trace::Op::all_gather_into_tensor ||
                    s.op == trace::Op::reduce_scatter || s.op == trace::Op::reduce_scatter_tensor ||
                    s.op == trace::Op::all_to_all_single;
  return both ? count(in) + ">" + count(out) : "";
}

std::string words_of(const trace::Tables& t, const trace::Call& call) {
  const trace::Signature& s = t.signatures[call.signature];
  const bool message = trace::is_point_to_point(s.op);
  std::string out = message                    ? "message"
                    : s.op == trace::Op::other ? "other:" + t.str(s.other_op)
                                               : std::string(trace::op_name(s.op));
  out += "\n" + checked_sizes(s) + "\n";
  for (const std::string& type : t.names(s.dtypes))
    out += s.op == trace::Op::barrier ? "" : type + ",";
  out += "\n" + (trace::is_reduction(s.op) ? t.str(s.redop) : "") + "\n" + count(s.root) + "\n";
  for (const std::string& name : t.names(call.what)) out += message ? "" : name + "\n";
  return word(out);
}

constexpr std::string_view kEven = "- -";

std::string splits_of(const trace::Tables& t, const trace::Signature& s) {
  if (s.op == trace::Op::all_to_all_single)
    return list(t.int_lists[s.splits_in]) + " " + list(t.int_lists[s.splits_out]);
  if (s.op != trace::Op::all_to_all) return std::string(kEven);
  std::string both[2];
  for (const int side : {0, 1}) {
    std::vector<std::int64_t> elements;
    for (const auto& shape : trace::unflatten_shapes(t.int_lists[side == 0 ? s.in : s.out]))
      elements.push_back(trace::total_elements(trace::flatten_shapes({shape})));
    both[side] = list(elements);
  }
  return both[0] + " " + both[1];
}

}  // namespace

void PartReader::refuse(const trace::RankTrace& trace, const std::string& why) {
  if (error_) return;
  error_ = Error{"rank " + std::to_string(trace.rank.value) + ": " + why,
                 {trace.source},
                 "record or derive again, and write the certificate anew"};
}

void PartReader::declare(const trace::Run& run) {
  for (const trace::RankTrace& trace : run.ranks) {
    for (const trace::RankTrace::Membership& group : trace.groups) {
      const auto [known, fresh] = table_.groups.emplace(run.tables.str(group.group), group.ranks);
      if (!fresh && known->second != group.ranks)
        refuse(trace, "it gives a group other members than another rank does");
      if (fresh && !group.ranks.empty() &&
          (group.ranks.lowest().value < 0 || group.ranks.highest().value >= world_size_))
        refuse(trace, "it gives a group a member that is no rank of the world");
    }
    table_.nccl = table_.nccl || trace.backend.find("nccl") != std::string::npos;
    if (trace.semantics != trace::Semantics::c10d) refuse(trace, "it is of an MPI program");
  }
}

void PartReader::enter(const trace::Run& run) {
  run_ = &run;
  calls_.clear();
  cuts_.clear();
  rank_ = trace::kNone;
}

std::uint32_t PartReader::channel(const trace::RankTrace& trace, const trace::Call& call,
                                  trace::Op op) {
  const bool message = trace::is_point_to_point(op);
  const Where where(call.group.value, message ? call.peer.value : trace::kNone,
                    message ? call.ptag : trace::kNoPeerTag, op == trace::Op::send);
  if (const auto known = where_.find(where); known != where_.end()) return known->second;
  Channel out;
  const std::string& group = run_->tables.str(call.group);
  if (message) {
    const std::int32_t peer = call.peer.value;
    if (op == trace::Op::recv_any || op == trace::Op::probe || peer < 0 || peer >= world_size_ ||
        peer == trace.rank.value)
      refuse(trace, "a message has no other side that is known");
    out.message = true;
    out.members = {trace.rank.value, peer};
    if (op != trace::Op::send) std::swap(out.members[0], out.members[1]);
    out.name = "message:" + std::to_string(out.members[0]) + ">" + std::to_string(out.members[1]) +
               ":" + (call.ptag == trace::kNoPeerTag ? "-" : std::to_string(call.ptag)) + ":" +
               word(group);
  } else {
    out.name = word(group);
    const auto declared = table_.groups.find(group);
    if (declared != table_.groups.end()) {
      for (const trace::Rank r : declared->second) out.members.push_back(r.value);
    } else {
      if (group != "world" && !group.empty()) refuse(trace, "a group was never declared");
      for (std::int32_t r = 0; r < world_size_; ++r) out.members.push_back(r);
    }
    if (std::count(out.members.begin(), out.members.end(), trace.rank.value) == 0)
      refuse(trace, "it calls a group that it is not in");
  }
  const auto [known, fresh] =
      table_.channel_named.emplace(out.name, static_cast<std::uint32_t>(table_.channels.size()));
  if (fresh) table_.channels.push_back(std::move(out));
  where_.emplace(where, known->second);
  return known->second;
}

std::uint32_t PartReader::text(std::string words) {
  const auto [known, fresh] =
      texts_.emplace(std::move(words), static_cast<std::uint32_t>(table_.texts.size()));
  if (fresh) table_.texts.push_back(known->first);
  return known->second;
}

std::uint32_t PartReader::call_text(const trace::Call& call) {
  const std::pair key(call.signature.value, call.what.value);
  const auto known = calls_.find(key);
  if (known != calls_.end()) return known->second;
  return calls_.emplace(key, text(words_of(run_->tables, call))).first->second;
}

std::uint32_t PartReader::cut_text(const trace::Call& call) {
  const auto known = cuts_.find(call.signature.value);
  if (known != cuts_.end()) return known->second;
  const std::uint32_t cut = text(splits_of(run_->tables, run_->tables.signatures[call.signature]));
  return cuts_.emplace(call.signature.value, cut).first->second;
}

std::uint32_t PartReader::read(const trace::RankTrace& trace, const Stretch& stretch) {
  if (trace.rank.value != rank_) where_.clear();
  rank_ = trace.rank.value;
  std::vector<Line> lines;
  std::unordered_map<std::uint32_t, std::size_t> line_of;  // by call
  std::unordered_map<std::uint32_t, std::uint32_t> places;
  std::int32_t batch = trace::kNone;
  for (std::uint32_t e = stretch.begin; e < stretch.end; ++e) {
    const trace::Event& event = trace.events[e];
    if (event.kind == trace::EventKind::issue) {
      const trace::Call& call = trace.calls[event.index];
      if (call.step == stretch.without_step) continue;
      Line line;
      line.channel = channel(trace, call, run_->tables.signatures[call.signature].op);
      line.place = places[line.channel]++;
      line.kind = call.has(trace::kAsync) && !stretch.all_block ? 'i' : 'b';
      line.call = call_text(call);
      line.cut = cut_text(call);
      if (batch != trace::kNone && batch == call.coalesced && lines.back().kind == 'b')
        lines.back().kind = 'g';
      batch = call.coalesced;
      line_of.emplace(event.index, lines.size());
      lines.push_back(line);
    } else if (event.kind == trace::EventKind::wait) {
      const auto waited = line_of.find(event.index);
      if (waited == line_of.end()) continue;  // for a call of an earlier stretch
      Line line = lines[waited->second];
      line.kind = 'w';
      lines.push_back(line);
      batch = trace::kNone;
    }
  }
  return intern(std::move(lines));
}

std::uint32_t PartReader::intern(std::vector<Line> lines) {
  Sha256 whole;
  for (const Line& line : lines) {
    const std::string& name = table_.channels[line.channel].name;
    if (line.kind == 'w') {
      whole.add("wait " + name + " " + std::to_string(line.place) + "\n");
    } else {
      whole.add(std::string(line.kind == 'i'   ? "issue"
                            : line.kind == 'b' ? "block"
                                               : "batch") +
                " " + name + " " + table_.texts[line.call] + " " + table_.texts[line.cut] + "\n");
    }
  }
  std::string digest = whole.finish();
  const auto [known, fresh] = parts_.emplace(digest, static_cast<std::uint32_t>(table_.all.size()));
  if (!fresh) return known->second;
  Part part;
  part.digest = std::move(digest);
  std::map<std::uint32_t, Sha256> calls;
  for (const Line& line : lines) {
    if (line.kind == 'w') continue;
    calls[line.channel].add(table_.texts[line.call] + "\n");
    Part::Projection& projection = part.projections[line.channel];
    projection.cuts.push_back(line.cut);
    projection.even = projection.even && table_.texts[line.cut] == kEven;
  }
  for (auto& [id, projection] : part.projections) {
    projection.size = static_cast<std::uint32_t>(projection.cuts.size());
    projection.digest = calls[id].finish();
    table_.channels[id].longest = std::max(table_.channels[id].longest, projection.size);
  }
  part.lines = std::move(lines);
  table_.all.push_back(std::move(part));
  return known->second;
}

namespace {

class ProgramReader {
 public:
  explicit ProgramReader(const trace::Derivation& derivation)
      : d_(derivation), reader_(derivation.spec.world_size) {}

  Result<ProgramParts> read() {
    for (const trace::Run& run : d_.runs) reader_.declare(run);
    for (const trace::Run& run : d_.runs) {
      reader_.enter(run);
      std::map<std::int32_t, Parts> traces;  // by rank
      for (const trace::RankTrace& trace : run.ranks) {
        if (reader_.error()) return *reader_.error();
        traces.emplace(trace.rank.value, parts_of(trace));
      }
      out_.of.emplace_back();
      for (const std::int32_t rank : trace::traced_ranks(d_.spec))
        out_.of.back().push_back(traces.at(rank));
    }
    if (reader_.error()) return *reader_.error();
    out_.table = std::move(reader_).take();
    return std::move(out_);
  }

 private:
  using Parts = std::vector<std::uint32_t>;

  // Slots are the start, step 0, the later steps and the end, by time; each is a stretch of events.
  struct Slots {
    std::vector<Stretch> stretches;
    bool late = false;  // calls of step 0 among those of step 1
  };

  std::size_t steps() const { return d_.spec.steps.size(); }

  Slots slots_of(const trace::RankTrace& trace) {
    Slots out;
    out.stretches.resize(steps() + 3);
    std::size_t slot = 0;
    for (std::uint32_t e = 0; e < trace.events.size(); ++e) {
      if (trace.events[e].kind != trace::EventKind::issue) continue;
      const std::int32_t step = trace.calls[trace.events[e].index].step;
      std::size_t to = slot == 0 ? 0 : steps() + 2;
      if (step != trace::kNone) {
        if (step < 0 || static_cast<std::size_t>(step) > steps()) {
          reader_.refuse(trace, "it has too many steps");
          return out;
        }
        to = static_cast<std::size_t>(step) + 1;
      }
      if (to == 1 && slot == 2) {
        out.late = true;
      } else if (to < slot) {
        reader_.refuse(trace, "its calls are in no order of steps");
        return out;
      } else if (to > slot) {
        out.stretches[slot].end = e;
        slot = to;
        out.stretches[slot].begin = e;
      }
    }
    out.stretches[slot].end = static_cast<std::uint32_t>(trace.events.size());
    return out;
  }

  std::size_t part_of(std::size_t slot) const {
    if (slot == 0) return ProgramParts::kStart;
    if (slot == 1) return ProgramParts::kFirst;
    if (slot == steps() + 2) return ProgramParts::kEnd;
    return ProgramParts::kFirstCondition + d_.spec.steps[slot - 2];
  }

  Parts parts_of(const trace::RankTrace& trace) {
    Parts out(ProgramParts::kFirstCondition + d_.spec.conditions.size(), ProgramParts::kMissing);
    if (trace.end != trace::End::clean || !trace.exceptions.empty())
      reader_.refuse(trace, "its trace does not end well");
    const Slots slots = slots_of(trace);
    std::uint32_t rest_of_second = ProgramParts::kMissing;
    for (std::size_t s = 0; s < slots.stretches.size() && !reader_.error(); ++s) {
      Stretch stretch = slots.stretches[s];
      const std::uint32_t body = reader_.read(trace, stretch);
      if (s == 2 && slots.late) {
        out[ProgramParts::kSecond] = body;
        out_.second_alone = true;
        stretch.without_step = 0;
        rest_of_second = reader_.read(trace, stretch);
        continue;
      }
      std::uint32_t& part = out[part_of(s)];
      if (part == ProgramParts::kMissing) part = body;
      if (part != body)
        reader_.refuse(trace, "step " + std::to_string(s - 1) + " is not what it was before");
    }
    if (rest_of_second == ProgramParts::kMissing || reader_.error()) return out;
    const std::uint32_t later = out[part_of(2)];
    if (later != ProgramParts::kMissing && later != rest_of_second)
      reader_.refuse(trace, "but for the late calls, step 1 is not what it is later");
    return out;
  }

  const trace::Derivation& d_;
  PartReader reader_;
  ProgramParts out_;
};

}  // namespace

Result<ProgramParts> read_program(const trace::Derivation& derivation) {
  return ProgramReader(derivation).read();
}

}  // namespace lockstep::verify::checked
