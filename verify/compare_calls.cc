#include "verify/compare_calls.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"

namespace lockstep::verify {

namespace {

std::string list_text(const trace::Tables& tables, trace::IntListId id) {
  std::string out;
  for (const std::int64_t n : tables.int_lists[id]) out += fmt::format("{},", n);
  return out;
}

std::string field_text(const char* key, std::int64_t value) {
  return value == trace::kNone ? "" : fmt::format(" {}={}", key, value);
}

// All that is compared, so that equal texts are equal calls.
std::string call_text(const trace::Run& run, const trace::Call& call) {
  const trace::Tables& tables = run.tables;
  const trace::Signature& s = tables.signatures[call.signature];
  std::string out =
      s.op == trace::Op::other ? tables.str(s.other_op) : std::string(trace::op_name(s.op));
  out += fmt::format(" in {} #{} step={} in={} out={}", tables.str(call.group), call.seq, call.step,
                     list_text(tables, s.in), list_text(tables, s.out));
  for (const std::string& dtype : tables.names(s.dtypes)) out += fmt::format(" {}", dtype);
  if (s.redop.value != 0) out += fmt::format(" {}", tables.str(s.redop));
  out += fmt::format("{}{}{} splits={}/{}", field_text("root", s.root),
                     field_text("peer", call.peer.value), field_text("tag", call.ptag),
                     list_text(tables, s.splits_in), list_text(tables, s.splits_out));
  for (const std::string& name : tables.names(call.what))
    out += fmt::format(" {}", printable(name));
  return out;
}

}  // namespace

CallComparison compare_calls(const trace::Run& a, std::uint32_t rank_a, const trace::Run& b,
                             std::uint32_t rank_b) {
  const std::vector<trace::Call>& of_a = a.ranks[rank_a].calls;
  const std::vector<trace::Call>& of_b = b.ranks[rank_b].calls;
  CallComparison out;
  out.calls_a = of_a.size();
  out.calls_b = of_b.size();
  const std::size_t common = std::min(of_a.size(), of_b.size());
  while (out.equal < common && call_text(a, of_a[out.equal]) == call_text(b, of_b[out.equal])) {
    ++out.equal;
  }
  if (out.equal < of_a.size()) out.a = call_text(a, of_a[out.equal]);
  if (out.equal < of_b.size()) out.b = call_text(b, of_b[out.equal]);
  return out;
}

}  // namespace lockstep::verify
