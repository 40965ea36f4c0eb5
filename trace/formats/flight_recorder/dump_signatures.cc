#include "trace/formats/flight_recorder/dump_signatures.h"

#include <algorithm>
#include <string>

namespace lockstep::trace {

SignatureId DumpSignatures::of(const DumpEntry& entry, const DumpOperation& operation) {
  const SaidParts parts = {entry[DumpKey::profiling_name], entry[DumpKey::input_sizes],
                           entry[DumpKey::output_sizes], entry[DumpKey::input_dtypes],
                           entry[DumpKey::output_dtypes]};
  auto& [known_parts, known_signature] = by_parts_[parts[1].number() % by_parts_.size()];
  const bool named = !tree_.text(entry[DumpKey::profiling_name]).empty();
  if (named && known_signature != SignatureId{} && known_parts == parts) return known_signature;
  const SaidId id = said_.intern(said_of(entry, operation));
  if (id.value >= signatures_.size()) signatures_.resize(said_.size());
  SignatureId& known = signatures_[id.value];
  if (known == SignatureId{}) known = make(entry, operation);
  if (!named) return known;
  known_parts = parts;
  known_signature = known;
  return known;
}

// What a signature is made of, as one list: the name, the dimensions and the types, by their
// numbers in the tree. Without a name, the operation that the frames tell.
const IntList& DumpSignatures::said_of(const DumpEntry& entry, const DumpOperation& operation) {
  // Below any number of a string; a dimension below 0 is no dimension, whatever it is.
  constexpr std::int64_t kNothing = -1, kEndOfTensor = -2, kEndOfSide = -3, kOperations = -4;
  const auto number_of = [](const DataTree::Value& v) {
    return v.is(DataTree::Kind::string) ? std::int64_t{v.number()} : kNothing;
  };
  IntList& out = scratch_said_;
  const bool named = !tree_.text(entry[DumpKey::profiling_name]).empty();
  out.assign(1, named ? number_of(entry[DumpKey::profiling_name])
                      : kOperations - static_cast<std::int64_t>(operation.op));
  for (const DumpKey side : {DumpKey::input_sizes, DumpKey::output_sizes}) {
    for (const DataTree::Value& tensor : tree_.items(entry[side])) {
      const auto dims = tree_.items(tensor);
      if (!visits_.spend(dims.size() + 1)) break;
      for (const DataTree::Value& dim : dims)
        out.push_back(std::max(dim.integer(kNothing), kNothing));
      out.push_back(kEndOfTensor);
    }
    out.push_back(kEndOfSide);
  }
  for (const DumpKey side : {DumpKey::input_dtypes, DumpKey::output_dtypes}) {
    const auto types = tree_.items(entry[side]);
    if (!visits_.spend(types.size())) break;
    for (const DataTree::Value& type : types) out.push_back(number_of(type));
    out.push_back(kEndOfSide);
  }
  return out;
}

SignatureId DumpSignatures::make(const DumpEntry& entry, const DumpOperation& operation) {
  Signature s;
  s.op = operation.op;
  if (s.op == Op::other) s.other_op = tables_.strings.intern(std::string(operation.name));
  if (operation.op == Op::barrier) return tables_.make_signature(s);
  s.in = shapes(entry[DumpKey::input_sizes]);
  s.out = shapes(entry[DumpKey::output_sizes]);
  if (operation.op == Op::gather || operation.op == Op::scatter) {
    // The root alone has both sides, so one side is left out for all: otherwise the root's
    // signature would differ from the others'.
    if (operation.op == Op::gather) s.out = {};
    if (operation.op == Op::scatter) s.in = {};
  }
  s.dtypes = types(entry[DumpKey::input_dtypes]);
  if (s.dtypes == NameListId{}) s.dtypes = types(entry[DumpKey::output_dtypes]);
  return tables_.make_signature(s);
}

// The types of one side.
NameListId DumpSignatures::types(const DataTree::Value& dtypes) {
  const auto items = tree_.items(dtypes);
  if (items.empty() || !visits_.spend(items.size())) return {};
  scratch_types_.clear();
  for (const DataTree::Value& v : items) scratch_types_.push_back(names_.dtype(v));
  return tables_.name_lists.intern(scratch_types_);
}

// The tensors' dimensions, each tensor ended by -1: [[4, 8], [32]] becomes 4 8 -1 32 -1.
IntListId DumpSignatures::shapes(const DataTree::Value& sizes) {
  IntList& flat = scratch_sizes_;
  flat.clear();
  for (const DataTree::Value& tensor : tree_.items(sizes)) {
    if (!visits_.spend(tree_.items(tensor).size() + 1)) return {};
    for (const DataTree::Value& dim : tree_.items(tensor)) {
      const std::int64_t d = dim.integer(-1);
      if (d < 0) return {};
      flat.push_back(d);
    }
    flat.push_back(-1);
  }
  return flat.empty() ? IntListId{} : tables_.int_lists.intern(flat);
}

}  // namespace lockstep::trace
