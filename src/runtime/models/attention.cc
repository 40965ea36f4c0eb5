#include "runtime/models/attention.h"

#include <limits>

#include <ATen/ATen.h>

namespace lockstep {
namespace {

// [n, t, width] to [n, heads, t, width / heads]
at::Tensor split_heads(const at::Tensor& x, std::int64_t heads) {
  return x.unflatten(2, {heads, x.size(2) / heads}).transpose(1, 2);
}

double lowest(at::ScalarType type) {
  switch (type) {
    case at::kHalf:
      return std::numeric_limits<c10::Half>::lowest();
    case at::kBFloat16:
      return std::numeric_limits<c10::BFloat16>::lowest();
    case at::kDouble:
      return std::numeric_limits<double>::lowest();
    default:
      return std::numeric_limits<float>::lowest();
  }
}

// [n, k] to [n, 1, 1, k]. Of the scores' own type: cast to a narrower one, as autocast would, the
// lowest number becomes -inf.
at::Tensor padding_bias(const at::Tensor& mask, const at::Tensor& query) {
  const at::Tensor padding = mask.eq(0).unsqueeze(1).unsqueeze(1);
  return at::zeros(padding.sizes(), query.options())
      .masked_fill(padding, lowest(query.scalar_type()));
}

}  // namespace

at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                  std::int64_t heads, const at::Tensor& mask, double dropout) {
  const at::Tensor seen = at::scaled_dot_product_attention(
      split_heads(query, heads), split_heads(key, heads), split_heads(value, heads),
      padding_bias(mask, query), dropout);
  return seen.transpose(1, 2).flatten(2);
}

}  // namespace lockstep
