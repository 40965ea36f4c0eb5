#include "verify/compare_calls.h"

#include <algorithm>

#include "base/text.h"

namespace lockstep {

namespace {

std::string list_text(const Tables& tables, IntListId id) {
  std::string out;
  for (const std::int64_t n : tables.int_lists[id]) out += std::to_string(n) + ",";
  return out;
}

std::string number_text(const char* key, std::int64_t value) {
  return value == kNone ? std::string() : " " + std::string(key) + "=" + std::to_string(value);
}

// All that is compared, so that equal texts are equal calls.
std::string call_text(const Run& run, const Call& call) {
  const Tables& tables = run.tables;
  const Signature& s = tables.signatures[call.signature];
  std::string out = s.op == Op::other ? tables.str(s.other_op) : std::string(op_name(s.op));
  out += " in " + tables.str(call.group) + " #" + std::to_string(call.seq);
  out += " step=" + std::to_string(call.step) + " in=" + list_text(tables, s.in) +
         " out=" + list_text(tables, s.out);
  for (const std::string& dtype : tables.names(s.dtypes)) out += " " + dtype;
  if (s.redop.value != 0) out += " " + tables.str(s.redop);
  out += number_text("root", s.root) + number_text("peer", call.peer.value) +
         number_text("tag", call.ptag);
  out += " splits=" + list_text(tables, s.splits_in) + "/" + list_text(tables, s.splits_out);
  for (const std::string& name : tables.names(call.what)) out += " " + printable(name);
  return out;
}

}  // namespace

CallComparison compare_calls(const Run& a, std::uint32_t rank_a, const Run& b,
                             std::uint32_t rank_b) {
  const std::vector<Call>& of_a = a.ranks[rank_a].calls;
  const std::vector<Call>& of_b = b.ranks[rank_b].calls;
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

}  // namespace lockstep
