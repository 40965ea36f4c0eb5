// Attention of several heads, as the text encoder and the fusion share it: Vaswani et al.,
// "Attention Is All You Need" (arXiv:1706.03762), softmax(q k^T / sqrt(width / heads)) v.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

namespace lockstep::runtime {

// query [n, q, width], key and value [n, k, width], mask [n, k] of any type (0: padding, which no
// query sees), to [n, q, width]. `heads` divides the width. `dropout`: the share of weights
// dropped; 0 in evaluation.
//
// The mask is added to the scores, 0 or the lowest finite number of the query's type, as in Hugging
// Face's BERT: an item of nothing but padding sees all of it alike, where -inf would give NaN.
at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                  std::int64_t heads, const at::Tensor& mask, double dropout);

// scaled_dot_product_attention for [n, heads, length, width]. LibTorch has no fused kernel for the
// meta device, and would count a matrix of weights there that no other device keeps. So there it
// uses the CPU's fused operation, in the cases in which the CPU would.
at::Tensor attend_heads(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                        const std::optional<at::Tensor>& bias, double dropout, bool causal);

}  // namespace lockstep::runtime
