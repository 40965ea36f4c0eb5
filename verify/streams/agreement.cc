#include "verify/streams/agreement.h"

#include <algorithm>
#include <optional>

#include "trace/groups.h"

namespace lockstep::verify {

namespace {

bool known_and_different(std::int64_t a, std::int64_t b) {
  return a != trace::kNone && b != trace::kNone && a != b;
}

bool known_and_different(trace::StringId a, trace::StringId b) {
  return a.value != 0 && b.value != 0 && a != b;
}

// A list with one type means that all tensors have this type; other lists must agree entry by
// entry. ["float"] and ["float","float"] agree, ["float"] and ["float","half"] do not.
bool dtypes_differ(const trace::Tables& tables, trace::NameListId a, trace::NameListId b) {
  if (a == b || a.value == 0 || b.value == 0) return false;
  const auto& x = tables.name_lists[a];
  const auto& y = tables.name_lists[b];
  if (x.empty() || y.empty()) return false;
  if (x.size() == y.size()) return x != y;
  const auto& one = x.size() == 1 ? x : y;
  const auto& many = x.size() == 1 ? y : x;
  if (one.size() != 1) return true;
  return std::any_of(many.begin(), many.end(),
                     [&](trace::StringId name) { return name != one[0]; });
}

// Whether ranks exchange different amounts in this all-to-all: it has splits, or lists of tensors,
// or splits that were not recorded. A tensor that is split evenly comes back as large as it went.
bool is_uneven(const trace::Signature& s) {
  return s.op == trace::Op::all_to_all || s.splits_in.value != 0 || s.splits_out.value != 0 ||
         known_and_different(s.in_elements, s.out_elements);
}

// What of `s` decides whether it and `other` belong to one collective, where both record it. The
// other fields mean different things in different operations: comparing them says nothing.
trace::Signature compared_part(const trace::Signature& s, const trace::Signature& other) {
  trace::Signature out;
  out.op = s.op;
  if (s.op == trace::Op::other) out.other_op = s.other_op;
  // A barrier's tensor is the backend's own; recorders show it or not.
  if (s.op != trace::Op::barrier) out.dtypes = s.dtypes;
  if (trace::is_reduction(s.op)) out.redop = s.redop;
  out.root = s.root;

  const auto in_both = [](std::int64_t mine, std::int64_t theirs) {
    return theirs == trace::kNone ? trace::kNone : mine;
  };
  const std::int64_t in_elements = in_both(s.in_elements, other.in_elements);
  const std::int64_t out_elements = in_both(s.out_elements, other.out_elements);
  const std::int64_t count = in_both(s.count, other.count);
  switch (s.op) {
    case trace::Op::all_reduce:
    case trace::Op::reduce:
    case trace::Op::broadcast:
    case trace::Op::scan:
    case trace::Op::exscan:
      // The output has the input's size, or exists on the root alone. It decides only where no
      // input was recorded.
      out.in_elements = in_elements;
      if (in_elements == trace::kNone) out.out_elements = out_elements;
      out.count = count;
      break;
    case trace::Op::all_gather:
      // Uneven inputs are legal if every rank's list of outputs has the matching sizes. So the
      // inputs decide only where an output is unknown.
      out.out_elements = out_elements;
      if (out_elements == trace::kNone) out.in_elements = in_elements;
      break;
    case trace::Op::gather:
      out.in_elements = in_elements;
      out.count = count;
      break;
    case trace::Op::scatter:
      out.out_elements = out_elements;
      out.count = count;
      break;
    case trace::Op::all_to_all:
    case trace::Op::all_to_all_single:
      // Split evenly, all sizes must be equal.
      if (is_uneven(s)) break;
      [[fallthrough]];
    case trace::Op::all_gather_into_tensor:
    case trace::Op::reduce_scatter_tensor:
    case trace::Op::reduce_scatter:
      out.in_elements = in_elements;
      out.out_elements = out_elements;
      out.count = count;
      break;
    case trace::Op::other:
    case trace::Op::barrier:
    case trace::Op::finalize:
    case trace::Op::send:
    case trace::Op::recv:
    case trace::Op::recv_any:
    case trace::Op::probe:
      break;
  }
  return out;
}

unsigned compare(const trace::Tables& tables, const trace::Signature& a,
                 const trace::Signature& b) {
  const trace::Signature x = compared_part(a, b);
  const trace::Signature y = compared_part(b, a);
  if (x.op != y.op || x.other_op != y.other_op) return kDifferentOp;
  unsigned out = kSame;
  if (known_and_different(x.in_elements, y.in_elements) ||
      known_and_different(x.out_elements, y.out_elements) || known_and_different(x.count, y.count))
    out |= kDifferentSize;
  if (dtypes_differ(tables, x.dtypes, y.dtypes)) out |= kDifferentDtype;
  if (known_and_different(x.redop, y.redop)) out |= kDifferentRedop;
  if (known_and_different(x.root, y.root)) out |= kDifferentRoot;
  return out;
}

}  // namespace

Agreement::Form Agreement::make_form(trace::SignatureId id) {
  const trace::Signature& whole = tables_.signatures[id];
  trace::Signature part = compared_part(whole, whole);
  Form out;
  // Lists of types are compared entry by entry where both have as many.
  const std::size_t dtypes = tables_.name_lists[part.dtypes].size();
  if (dtypes == 0) part.dtypes = {};
  out.recorded = static_cast<std::uint32_t>(dtypes) << 5U;
  if (part.in_elements != trace::kNone) out.recorded |= 1U;
  if (part.out_elements != trace::kNone) out.recorded |= 2U;
  if (part.count != trace::kNone) out.recorded |= 4U;
  if (part.redop.value != 0) out.recorded |= 8U;
  if (part.root != trace::kNone) out.recorded |= 16U;
  out.value =
      values_
          .intern({static_cast<std::int64_t>(part.op), part.other_op.value, part.in_elements,
                   part.out_elements, part.count, part.dtypes.value, part.redop.value, part.root})
          .value;
  return out;
}

unsigned Agreement::differences(trace::SignatureId a, trace::SignatureId b) {
  if (a == b || a.value == 0 || b.value == 0) return kSame;
  // The relation is symmetric: one entry per pair.
  const auto [low, high] = std::minmax(a.value, b.value);
  const std::uint64_t key = (std::uint64_t{low} << 32U) | high;
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  const unsigned result = compare(tables_, tables_.signatures[a], tables_.signatures[b]);
  known_.emplace(key, result);
  return result;
}

bool agree_across_groups(Agreement& agreement, const trace::RankTrace& a, const trace::Call& x,
                         const trace::RankTrace& b, const trace::Call& y) {
  const unsigned different = agreement.differences(x.signature, y.signature);
  if (different != kDifferentRoot || x.group == y.group) return different == kSame;
  const auto index_of_root = [&](const trace::RankTrace& trace, const trace::Call& call) {
    const trace::RankTrace::Membership* const group = trace::membership(trace, call.group);
    const std::int32_t root = agreement.tables().signatures[call.signature].root;
    return group == nullptr ? std::nullopt : group->ranks.index_of(trace::Rank{root});
  };
  return index_of_root(a, x) == index_of_root(b, y);
}

}  // namespace lockstep::verify
