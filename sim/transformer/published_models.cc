#include "sim/transformer/published_models.h"

#include <array>

namespace lockstep::sim {
namespace {

enum class Family { llama, gpt };

struct Shape {
  std::string_view name;
  Family family;
  std::int64_t layers, hidden, heads, ffn;
};

constexpr std::array<Shape, 9> kShapes = {{
    {"llama3-8b", Family::llama, 32, 4096, 32, 14336},
    {"llama3-70b", Family::llama, 80, 8192, 64, 28672},
    {"llama3-405b", Family::llama, 126, 16384, 128, 53248},
    {"gpt-1.7b", Family::gpt, 24, 2304, 24, std::int64_t{4} * 2304},
    {"gpt-7.5b", Family::gpt, 36, 4096, 32, std::int64_t{4} * 4096},
    {"gpt-18.4b", Family::gpt, 40, 6144, 48, std::int64_t{4} * 6144},
    {"gpt-39.1b", Family::gpt, 48, 8192, 64, std::int64_t{4} * 8192},
    {"gpt-76.1b", Family::gpt, 60, 10240, 80, std::int64_t{4} * 10240},
    {"gpt3-175b", Family::gpt, 96, 12288, 96, std::int64_t{4} * 12288},
}};

Transformer model_of(const Shape& shape) {
  Transformer out;
  out.layers = shape.layers;
  out.hidden = shape.hidden;
  out.heads = out.kv_heads = shape.heads;
  out.ffn = shape.ffn;
  out.vocabulary = 51200;
  if (shape.family == Family::gpt) return out;
  out.kv_heads = 8;
  out.vocabulary = 128256;
  out.gated = out.fused_attention = out.causal = true;
  out.tied_embeddings = false;
  return out;
}

}  // namespace

std::optional<Transformer> published_model(std::string_view name) {
  for (const Shape& shape : kShapes)
    if (shape.name == name) return model_of(shape);
  return std::nullopt;
}

std::vector<std::string> published_model_names() {
  std::vector<std::string> out;
  out.reserve(kShapes.size());
  for (const Shape& shape : kShapes) out.emplace_back(shape.name);
  return out;
}

}  // namespace lockstep::sim
