#include "verify/product/checked_parts.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <unordered_map>

#include "base/sha256.h"

namespace lockstep::checked {

std::string word(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 && static_cast<unsigned char>(c) < 128) {
      out += c;
    } else if (std::string("_-.+:@/#[]=()").find(c) != std::string::npos && c != '\0') {
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
std::string sizes(const Signature& s) {
  const std::int64_t in = s.in_elements;
  const std::int64_t out = s.out_elements;
  const bool cut = s.splits_in.value != 0 || s.splits_out.value != 0;
  if (s.op == Op::all_reduce || s.op == Op::reduce || s.op == Op::broadcast || s.op == Op::send)
    return count(in >= 0 ? in : out);
  if (s.op == Op::recv) return count(out >= 0 ? out : in);
  if (s.op == Op::all_to_all_single && cut) return "cut";
  if (s.op == Op::all_gather) return out >= 0 ? ">" + count(out) : count(in) + ">";
  if (s.op == Op::gather) return count(in) + ">";
  if (s.op == Op::scatter) return ">" + count(out);
  const bool both = s.op == Op::all_gather_into_tensor || s.op == Op::reduce_scatter ||
                    s.op == Op::reduce_scatter_tensor || s.op == Op::all_to_all_single;
  return both ? count(in) + ">" + count(out) : "";
}

std::string call_text(const Tables& t, const Call& call, bool message) {
  const Signature& s = t.signatures[call.signature];
  std::string out = message             ? "message"
                    : s.op == Op::other ? "other:" + t.str(s.other_op)
                                        : std::string(op_name(s.op));
  out += "\n" + sizes(s) + "\n";
  for (const std::string& type : t.names(s.dtypes)) out += s.op == Op::barrier ? "" : type + ",";
  out += "\n" + (is_reduction(s.op) ? t.str(s.redop) : "") + "\n" + count(s.root) + "\n";
  for (const std::string& name : t.names(call.what)) out += message ? "" : name + "\n";
  return word(out);
}

std::string cut_text(const Tables& t, const Call& call) {
  const Signature& s = t.signatures[call.signature];
  if (s.op == Op::all_to_all_single)
    return list(t.int_lists[s.splits_in]) + " " + list(t.int_lists[s.splits_out]);
  if (s.op != Op::all_to_all) return "- -";
  std::string both[2];
  for (const int side : {0, 1}) {
    std::vector<std::int64_t> elements;
    for (const auto& shape : unflatten_shapes(t.int_lists[side == 0 ? s.in : s.out]))
      elements.push_back(total_elements(flatten_shapes({shape})));
    both[side] = list(elements);
  }
  return both[0] + " " + both[1];
}

class PartReader {
 public:
  explicit PartReader(const Derivation& derivation) : d_(derivation) {}

  Result<Parts> read() {
    for (const Run& run : d_.runs) {
      for (const RankTrace& trace : run.ranks) {
        for (const RankTrace::Membership& group : trace.groups) declare(run, trace, group);
        out_.nccl = out_.nccl || trace.backend.find("nccl") != std::string::npos;
        if (trace.semantics != Semantics::c10d) refuse(trace, "it is of an MPI program");
      }
    }
    for (const Run& run : d_.runs) {
      out_.of.emplace_back();
      for (const RankTrace& trace : run.ranks) out_.of.back().push_back(cut(run, trace));
    }
    if (error_) return *error_;
    return std::move(out_);
  }

 private:
  void refuse(const RankTrace& trace, const std::string& why) {
    if (error_) return;
    error_ = Error{"rank " + std::to_string(trace.rank.value) + ": " + why,
                   {trace.source},
                   "derive the program again and write the certificate anew"};
  }

  void declare(const Run& run, const RankTrace& trace, const RankTrace::Membership& group) {
    std::vector<std::int32_t> members;
    for (const Rank r : group.ranks) members.push_back(r.value);
    const auto [known, fresh] = out_.groups.emplace(run.tables.str(group.group), members);
    if (!fresh && known->second != members)
      refuse(trace, "it gives a group other members than another rank does");
  }

  std::uint32_t channel(const Run& run, const RankTrace& trace, const Call& call, Op op) {
    Channel out;
    const std::string& group = run.tables.str(call.group);
    if (is_point_to_point(op)) {
      const std::int32_t peer = call.peer.value;
      if (op == Op::recv_any || op == Op::probe || peer < 0 || peer >= d_.spec.world_size ||
          peer == trace.rank.value)
        refuse(trace, "a message has no other side that is known");
      out.message = true;
      out.members = {trace.rank.value, peer};
      if (op != Op::send) std::swap(out.members[0], out.members[1]);
      out.name = "message:" + std::to_string(out.members[0]) + ">" +
                 std::to_string(out.members[1]) + ":" +
                 (call.ptag == kNoPeerTag ? "-" : std::to_string(call.ptag)) + ":" + word(group);
    } else {
      out.name = word(group);
      const auto declared = out_.groups.find(group);
      if (declared != out_.groups.end()) {
        out.members = declared->second;
      } else {
        if (group != "world" && !group.empty()) refuse(trace, "a group was never declared");
        for (std::int32_t r = 0; r < d_.spec.world_size; ++r) out.members.push_back(r);
      }
      if (!std::count(out.members.begin(), out.members.end(), trace.rank.value))
        refuse(trace, "it calls a group that it is not in");
    }
    const auto [known, fresh] =
        channels_.emplace(out.name, static_cast<std::uint32_t>(out_.channels.size()));
    if (fresh) out_.channels.push_back(std::move(out));
    return known->second;
  }

  // Which part a call belongs to: 0 the start, 1 step 0, 2 the end, 3 and up a later step.
  std::vector<std::uint32_t> cut(const Run& run, const RankTrace& trace) {
    const std::size_t steps = d_.spec.steps.size();
    std::vector<std::vector<Line>> lines(steps + 3);
    std::vector<std::size_t> slot_of(trace.calls.size()), line_of(trace.calls.size());
    std::vector<std::unordered_map<std::uint32_t, std::uint32_t>> places(steps + 3);
    std::unordered_map<std::uint32_t, std::uint32_t> groups;  // channels, by group
    std::size_t slot = 0;  // start, step 0, later steps, end: by time
    std::int32_t batch = kNone;
    if (trace.end != End::clean || !trace.exceptions.empty())
      refuse(trace, "its trace does not end well");
    for (const Event& event : trace.events) {
      if (event.kind == EventKind::issue) {
        const Call& call = trace.calls[event.index];
        std::size_t to = call.step != kNone ? static_cast<std::size_t>(call.step) + 1
                         : slot == 0        ? 0
                                            : steps + 2;
        if (call.step != kNone && to > steps + 1) refuse(trace, "it has too many steps");
        if (to < slot || to > steps + 2) refuse(trace, "its calls are in no order of steps");
        if (error_) return {};
        const Op op = run.tables.signatures[call.signature].op;
        if (to != slot) batch = kNone;
        slot = to;
        Line line;
        if (is_point_to_point(op)) {
          line.channel = channel(run, trace, call, op);
        } else if (const auto known = groups.find(call.group.value); known != groups.end()) {
          line.channel = known->second;
        } else {
          line.channel = groups[call.group.value] = channel(run, trace, call, op);
        }
        line.place = places[slot][line.channel]++;
        line.kind = call.has(kAsync) ? 'i' : 'b';
        line.call = call_text(run.tables, call, is_point_to_point(op));
        line.cut = cut_text(run.tables, call);
        if (batch != kNone && batch == call.coalesced && lines[slot].back().kind == 'b')
          lines[slot].back().kind = 'g';
        batch = call.coalesced;
        slot_of[event.index] = slot;
        line_of[event.index] = lines[slot].size();
        lines[slot].push_back(std::move(line));
      } else if (event.kind == EventKind::wait && slot_of[event.index] == slot &&
                 !lines[slot].empty()) {
        Line line = lines[slot][line_of[event.index]];
        line.kind = 'w';
        lines[slot].push_back(std::move(line));
        batch = kNone;
      }
    }
    std::vector<std::uint32_t> out(3 + d_.spec.conditions.size(), Parts::kMissing);
    for (std::size_t s = 0; s < lines.size(); ++s) {
      const std::size_t part = s == 0           ? 0
                               : s == 1         ? 1
                               : s == steps + 2 ? 2
                                                : 3 + std::size_t{d_.spec.steps[s - 2]};
      const std::uint32_t body = intern(std::move(lines[s]));
      if (out[part] != Parts::kMissing && out[part] != body)
        refuse(trace, "step " + std::to_string(s - 1) + " is not what it was before");
      out[part] = body;
    }
    return out;
  }

  std::uint32_t intern(std::vector<Line> lines) {
    std::string text;
    for (const Line& line : lines) {
      const std::string& name = out_.channels[line.channel].name;
      if (line.kind == 'w') {
        text += "wait " + name + " " + std::to_string(line.place) + "\n";
      } else {
        text += std::string(line.kind == 'i'   ? "issue"
                            : line.kind == 'b' ? "block"
                                               : "batch") +
                " " + name + " " + line.call + " " + line.cut + "\n";
      }
    }
    std::string digest = sha256(text);
    const auto [known, fresh] = parts_.emplace(digest, static_cast<std::uint32_t>(out_.all.size()));
    if (!fresh) return known->second;
    Part part;
    part.digest = std::move(digest);
    std::map<std::uint32_t, std::string> calls;
    for (const Line& line : lines) {
      if (line.kind == 'w') continue;
      calls[line.channel] += line.call + "\n";
      part.projections[line.channel].cuts.push_back(line.cut);
    }
    for (auto& [id, projection] : part.projections) {
      projection.size = static_cast<std::uint32_t>(projection.cuts.size());
      projection.digest = sha256(calls[id]);
    }
    part.lines = std::move(lines);
    out_.all.push_back(std::move(part));
    return known->second;
  }

  const Derivation& d_;
  Parts out_;
  std::optional<Error> error_;
  std::unordered_map<std::string, std::uint32_t> channels_, parts_;
};

}  // namespace

Result<Parts> read_parts(const Derivation& derivation) { return PartReader(derivation).read(); }

}  // namespace lockstep::checked
