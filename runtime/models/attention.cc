#include "runtime/models/attention.h"

#include <limits>
#include <tuple>
#include <variant>

#include <ATen/ATen.h>

namespace lockstep::runtime {
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

// [n, k] to [n, 1, 1, k]. It has the type of the scores: if autocast cast it to a narrower one, the
// lowest number would become -inf.
at::Tensor padding_bias(const at::Tensor& mask, const at::Tensor& query) {
  const at::Tensor padding = mask.eq(0).unsqueeze(1).unsqueeze(1);
  return at::zeros(padding.sizes(), query.options())
      .masked_fill(padding, lowest(query.scalar_type()));
}

}  // namespace

at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                  std::int64_t heads, const at::Tensor& mask, double dropout) {
  const at::Tensor seen =
      attend_heads(split_heads(query, heads), split_heads(key, heads), split_heads(value, heads),
                   padding_bias(mask, query), dropout, /*causal=*/false);
  return seen.transpose(1, 2).flatten(2);
}

at::Tensor attend_heads(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                        const std::optional<at::Tensor>& bias, double dropout, bool causal) {
  if (query.is_meta() && dropout == 0) {
    return std::get<0>(
        at::_scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout, causal, bias));
  }
  return at::scaled_dot_product_attention(query, key, value, bias, dropout, causal);
}

}  // namespace lockstep::runtime
