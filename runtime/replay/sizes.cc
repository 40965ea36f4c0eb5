#include "runtime/replay/sizes.h"

#include <algorithm>
#include <functional>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"

namespace lockstep::runtime {

namespace {

using Shapes = std::vector<std::vector<std::int64_t>>;

std::int64_t elements_of_shape(const std::vector<std::int64_t>& shape) {
  return trace::total_elements(trace::flatten_shapes({shape}));
}

// A tensor as `times` parts of `elements` each. A gathered tensor of 4 ranks with 4096 elements is
// 4 times 1024. The size of a part is what is replaced, so that tensors that match still do.
// `rows`: the parts are the rows that an all-to-all splits.
struct Part {
  std::int64_t times = 1;
  std::int64_t elements = 0;
  bool rows = false;
};

class Shrinker {
 public:
  Shrinker(trace::Run& program, std::int64_t limit)
      : program_(program), limit_(limit), flat_(limit), rows_(limit) {}

  Status shrink() {
    each_call([&](const trace::Call& call, std::size_t members) { note(call, members); });
    if (too_many_rows_) {
      return Error{fmt::format("an all-to-all splits {} rows, more elements than tensors may have",
                               too_many_rows_),
                   {},
                   "raise --max-elements"};
    }
    if (!flat_.settle() || !rows_.settle()) {
      return Error{fmt::format("there are more different sizes than fit below {} elements", limit_),
                   {},
                   "raise --max-elements, or keep fewer calls: --last"};
    }
    each_call([&](trace::Call& call, std::size_t members) { rewrite(call, members); });
    return Status::ok();
  }

 private:
  void each_call(const std::function<void(trace::Call&, std::size_t)>& visit) {
    for (trace::RankTrace& trace : program_.ranks) {
      std::map<trace::GroupId, std::size_t> members;
      for (const auto& group : trace.groups) members[group.group] = group.ranks.size();
      for (trace::Call& call : trace.calls.own()) visit(call, members[call.group]);
    }
  }

  static bool has_splits(const trace::Signature& s) {
    return s.op == trace::Op::all_to_all_single &&
           (s.splits_in != trace::IntListId{} || s.splits_out != trace::IntListId{});
  }

  // True if the inputs (`out`: the outputs) of the operation hold the parts of all ranks.
  static bool is_whole(trace::Op op, bool out) {
    const bool gathers = op == trace::Op::all_gather_into_tensor || op == trace::Op::all_gather ||
                         op == trace::Op::gather;
    const bool scatters = op == trace::Op::reduce_scatter_tensor ||
                          op == trace::Op::reduce_scatter || op == trace::Op::scatter;
    return (gathers && out) || (scatters && !out) || op == trace::Op::all_to_all_single;
  }

  Part part(const trace::Signature& s, const std::vector<std::int64_t>& shape, bool out,
            std::size_t tensors, std::size_t members) const {
    const std::int64_t n = elements_of_shape(shape);
    if (has_splits(s) && !shape.empty()) {
      const std::int64_t rows = std::max<std::int64_t>(1, shape.front());
      return {shape.front(), n / rows, true};
    }
    const auto count = static_cast<std::int64_t>(members);
    if (tensors == 1 && is_whole(s.op, out) && count > 1 && n % count == 0)
      return {count, n / count};
    return {1, n};
  }

  template <class Visit>
  void each_part(const trace::Signature& s, trace::IntListId side, bool out, std::size_t members,
                 Visit visit) const {
    if (side == trace::IntListId{}) return;
    const Shapes shapes = trace::unflatten_shapes(program_.tables.int_lists[side]);
    for (const auto& shape : shapes) visit(part(s, shape, out, shapes.size(), members));
  }

  void note(const trace::Call& call, std::size_t members) {
    const trace::Signature& s = program_.tables.signatures[call.signature];
    const auto add = [&](const Part& p) {
      (p.rows ? rows_ : flat_).add(p.elements);
      if (p.rows && p.times > limit_) too_many_rows_ = p.times;
    };
    each_part(s, s.in, false, members, add);
    each_part(s, s.out, true, members, add);
  }

  trace::IntListId smaller(const trace::Signature& s, trace::IntListId side, bool out,
                           std::size_t members) {
    if (side == trace::IntListId{}) return side;
    Shapes shapes;
    each_part(s, side, out, members, [&](const Part& p) {
      if (p.rows) {
        shapes.push_back({p.times, rows_.small(p.elements)});
      } else {
        shapes.push_back({p.times * flat_.small(p.elements)});
      }
    });
    return program_.tables.int_lists.intern(trace::flatten_shapes(shapes));
  }

  void rewrite(trace::Call& call, std::size_t members) {
    trace::Signature s = program_.tables.signatures[call.signature];
    const trace::IntListId in = smaller(s, s.in, false, members);
    s.out = smaller(s, s.out, true, members);
    s.in = in;
    call.signature = program_.tables.make_signature(s);
  }

  trace::Run& program_;
  std::int64_t limit_;
  SizeClasses flat_, rows_;
  std::int64_t too_many_rows_ = 0;
};

}  // namespace

bool SizeClasses::settle() {
  const std::int64_t half = limit_ / 2;
  std::int64_t next = half;
  for (const std::int64_t size : sizes_) {
    if (size > half) small_[size] = ++next;
  }
  return next <= limit_;
}

std::int64_t SizeClasses::small(std::int64_t elements) const {
  const auto found = small_.find(elements);
  return found == small_.end() ? elements : found->second;
}

Status shrink_sizes(trace::Run& program, std::int64_t max_elements) {
  return Shrinker(program, max_elements).shrink();
}

}  // namespace lockstep::runtime
