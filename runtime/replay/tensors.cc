#include "runtime/replay/tensors.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/quantities.h"
#include "base/text.h"
#include "runtime/replay/program.h"
#include "runtime/replay/refusals.h"
#include "trace/run.h"

namespace lockstep::runtime {

namespace {

using Shape = CallTensors::Shape;
using Shapes = std::vector<Shape>;

// Limit for one tensor, so that sums of them stay far from overflow.
constexpr std::int64_t kMaxElements = std::int64_t{1} << 40U;

std::int64_t elements_of(const Shape& shape) {
  return trace::total_elements(trace::flatten_shapes({shape}));
}

std::int64_t elements_of(const Shapes& shapes) {
  return trace::total_elements(trace::flatten_shapes(shapes));
}

// One rank's part of the tensors of all members, and the whole for one rank's part.
Shape part_of(const Shapes& whole, std::size_t members) {
  if (whole.size() == members && !whole.empty()) return whole.front();
  return {elements_of(whole) / static_cast<std::int64_t>(std::max<std::size_t>(1, members))};
}
Shape whole_of(const Shape& part, std::size_t members) {
  // Sizes above the limit stay above it, and are refused later (tensor_bytes).
  return {std::min(elements_of(part), kMaxElements + 1) * static_cast<std::int64_t>(members)};
}

// A list with one tensor for each member.
Shapes list_of(const Shapes& recorded, const Shape& part, std::size_t members) {
  if (recorded.size() == members) return recorded;
  return Shapes(members, part);
}

}  // namespace

CallTensors tensors_of(const trace::Tables& tables, const trace::Call& call, std::size_t members,
                       bool is_root) {
  const trace::Signature& s = tables.signatures[call.signature];
  const auto shapes = [&](trace::IntListId id) {
    return trace::unflatten_shapes(tables.int_lists[id]);
  };
  CallTensors out;
  for (const trace::StringId name : tables.name_lists[s.dtypes])
    out.types.push_back(tables.str(name));
  const Shapes in = shapes(s.in), filled = shapes(s.out);
  const bool has_in = s.in != trace::IntListId{}, has_out = s.out != trace::IntListId{};
  switch (s.op) {
    case trace::Op::all_reduce:
    case trace::Op::reduce:
    case trace::Op::broadcast:
    case trace::Op::send:
      out.in = has_in ? in : filled;
      break;
    case trace::Op::recv:
    case trace::Op::recv_any:
      out.out = has_out ? filled : in;
      break;
    case trace::Op::all_gather_into_tensor:
      out.in = has_in ? in : Shapes{part_of(filled, members)};
      out.out = has_out ? filled : Shapes{whole_of(in.front(), members)};
      break;
    case trace::Op::all_gather:
      out.in = has_in ? in : Shapes{part_of(filled, members)};
      out.out = list_of(filled, out.in.front(), members);
      break;
    case trace::Op::gather:
      out.in = has_in ? in : Shapes{part_of(filled, members)};
      if (is_root) out.out = list_of(filled, out.in.front(), members);
      break;
    case trace::Op::reduce_scatter_tensor:
      out.out = has_out ? filled : Shapes{part_of(in, members)};
      out.in = has_in ? in : Shapes{whole_of(filled.front(), members)};
      break;
    case trace::Op::reduce_scatter:
      out.out = has_out ? filled : Shapes{part_of(in, members)};
      out.in = list_of(in, out.out.front(), members);
      break;
    case trace::Op::scatter:
      out.out = has_out ? filled : Shapes{part_of(in, members)};
      if (is_root) out.in = list_of(in, out.out.front(), members);
      break;
    case trace::Op::all_to_all:
    case trace::Op::all_to_all_single:
      out.in = has_in ? in : filled;
      out.out = has_out ? filled : in;
      break;
    default:  // a barrier; all else was refused (refusals.h)
      break;
  }
  return out;
}

std::optional<std::int64_t> tensor_bytes(const Shape& shape, const std::string& type) {
  const std::optional<std::int64_t> each = trace::element_bytes(type);
  const std::int64_t elements = elements_of(shape);
  if (!each || elements > kMaxElements) return std::nullopt;
  return elements * *each;
}

namespace {

class Tensors {
 public:
  explicit Tensors(const trace::Run& program) : program_(program) {}

  Status check() {
    std::int64_t together = 0;
    for (const trace::RankTrace& trace : program_.ranks) {
      const Result<std::int64_t> peak = peak_of(trace);
      if (!peak) return peak.error();
      together += *peak;
      if (together > kMaxReplayBytes) {
        return Error{fmt::format("the ranks' tensors would take more than {} at a time",
                                 bytes_text(kMaxReplayBytes)),
                     {trace.source},
                     "make them smaller: `lockstep convert --to scenario --max-elements 4096`"};
      }
    }
    return Status::ok();
  }

 private:
  // The largest number of bytes that the rank's unfinished calls hold at one time. An asynchronous
  // call holds its tensors from issue to wait.
  Result<std::int64_t> peak_of(const trace::RankTrace& trace) {
    std::vector<std::int64_t> bytes(trace.calls.size(), 0);
    std::int64_t now = 0, peak = 0;
    for (const trace::Event& event : trace.events) {
      if (event.kind == trace::EventKind::wait) now -= std::exchange(bytes[event.index], 0);
      if (event.kind != trace::EventKind::issue) continue;
      const trace::Call& call = trace.calls[event.index];
      const Result<std::int64_t> needed = bytes_of(trace, call);
      if (!needed) return needed.error();
      peak = std::max(peak, now + *needed);
      if (!call.has(trace::kAsync)) continue;
      bytes[event.index] = *needed;
      now = std::min(now + *needed, kMaxReplayBytes + 1);
    }
    return peak;
  }

  Error refuse(const trace::RankTrace& trace, const trace::Call& call, const std::string& why,
               std::string fix) const {
    return {
        fmt::format("rank {}, {}: {}", trace.rank.value, call_in_words(program_.tables, call), why),
        {trace.source},
        std::move(fix)};
  }

  Error no_bytes(const trace::RankTrace& trace, const trace::Call& call,
                 const std::string& type) const {
    if (trace::element_bytes(type))
      return refuse(trace, call, "a tensor has more than 2^40 elements",
                    "make them smaller: `lockstep convert --to scenario --max-elements 4096`");
    return refuse(trace, call,
                  fmt::format("how large elements of type {} are is not known", printable(type)),
                  "docs/trace-format.md lists the types");
  }

  Result<std::int64_t> bytes_of(const trace::RankTrace& trace, const trace::Call& call) {
    const trace::Signature& s = program_.tables.signatures[call.signature];
    const std::size_t members = members_of(trace, call.group).size();
    // The length of a tensor list comes from the trace; it is bounded by the number of members.
    const CallTensors tensors =
        tensors_of(program_.tables, call, members, s.root == trace.rank.value);
    std::int64_t sum = 0;
    for (const auto* side : {&tensors.in, &tensors.out}) {
      for (std::size_t i = 0; i < side->size(); ++i) {
        const std::optional<std::int64_t> bytes = tensor_bytes((*side)[i], tensors.type(i));
        if (!bytes) return no_bytes(trace, call, tensors.type(i));
        sum = std::min(sum + *bytes, kMaxReplayBytes + 1);
      }
    }
    if (s.op == trace::Op::all_to_all_single) {
      if (const auto why = why_not_split(s, tensors, members)) {
        return refuse(trace, call, *why, "record splits_in and splits_out");
      }
    }
    const bool lists = s.op == trace::Op::all_to_all;
    if (lists && (tensors.in.size() != members || tensors.out.size() != members)) {
      return refuse(trace, call, "it does not have one tensor for each member",
                    "record the shapes of all tensors");
    }
    return sum;
  }

  std::optional<std::string> why_not_split(const trace::Signature& s, const CallTensors& tensors,
                                           std::size_t members) const {
    const auto side = [&](trace::IntListId splits,
                          const Shapes& shapes) -> std::optional<std::string> {
      if (shapes.size() != 1) return "it does not have one tensor";
      const std::int64_t rows = shapes.front().empty() ? 1 : shapes.front().front();
      const trace::IntList& list = program_.tables.int_lists[splits];
      if (list.empty()) {
        if (rows % static_cast<std::int64_t>(members) == 0) return std::nullopt;
        return "its splits were not recorded, and its rows cannot be distributed evenly";
      }
      std::int64_t sum = 0;
      for (const std::int64_t split : list) {
        if (split < 0 || split > kMaxElements) return "a split is not a number of rows";
        sum = std::min(sum + split, kMaxElements);
      }
      if (list.size() != members || sum != rows) return "its splits are not those of its rows";
      return std::nullopt;
    };
    if (const auto why = side(s.splits_in, tensors.in)) return why;
    return side(s.splits_out, tensors.out);
  }

  const trace::Run& program_;
};

}  // namespace

Status check_tensors(const trace::Run& program) { return Tensors(program).check(); }

}  // namespace lockstep::runtime
