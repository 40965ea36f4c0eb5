// Transformers whose shapes are published, by name: "llama3-70b", "gpt3-175b", …
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/transformer/transformer.h"

namespace lockstep::sim {

// Llama 3.1 (arXiv 2407.21783, table 3) with 8 key-value heads and 128,256 words, FlashAttention;
// GPT-3 (arXiv 2005.14165, table 2.1) and the GPTs of Megatron-LM (arXiv 2104.04473, table 1) with
// 51,200 words and the scores in memory, as their published steps ran. Nothing: no such name.
std::optional<Transformer> published_model(std::string_view name);

// All names, by family and size.
std::vector<std::string> published_model_names();

}  // namespace lockstep::sim
