#include "runtime/models/bert_options.h"

#include <initializer_list>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/files/read_file.h"
#include "base/text.h"

namespace lockstep::runtime {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kLargestConfig = std::size_t{1} << 20U;
constexpr std::int64_t kLargestSize = 10'000'000;
constexpr std::int64_t kMaxLayers = 1000;  // each is some dozen objects, however narrow
constexpr double kMaxParameters = 1e11;
constexpr const char* kConfigFix =
    "give the config.json that came with the weights of a BERT encoder";

Status read_size(const Json& config, const char* key, std::int64_t& size) {
  const auto found = config.find(key);
  if (found == config.end()) return Status::ok();
  if (found->is_number_unsigned() && *found <= kLargestSize) {
    size = found->get<std::int64_t>();
    return Status::ok();
  }
  return Error{fmt::format("'{}' is not a whole number up to ten million", key), {}, kConfigFix};
}

Status read_share(const Json& config, const char* key, double& share) {
  const auto found = config.find(key);
  if (found == config.end()) return Status::ok();
  if (found->is_number()) {
    share = found->get<double>();
    return Status::ok();
  }
  return Error{fmt::format("'{}' is not a number", key), {}, kConfigFix};
}

// What would make another network of the same weights.
Status require(const Json& config, const char* key, const Json& wanted) {
  const auto found = config.find(key);
  if (found == config.end() || *found == wanted) return Status::ok();
  const auto text = [](const Json& value) {
    return printable(value.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 60));
  };
  return Error{fmt::format("'{}' is {}; only {} is implemented", key, text(*found), text(wanted)),
               {},
               kConfigFix};
}

}  // namespace

BertOptions BertOptions::bert_base() { return {}; }

BertOptions BertOptions::bert_tiny() {
  BertOptions options;
  options.layers = 2;
  options.width = 64;
  options.heads = 4;
  options.feed_forward = 256;
  options.positions = 128;
  return options;
}

BertOptions BertOptions::minilm() {
  BertOptions options;
  options.layers = 6;
  options.width = 384;
  options.feed_forward = 1536;
  return options;
}

double weights_in(const BertOptions& o) {
  const auto width = static_cast<double>(o.width);
  const double each = 4 * width * width + 2 * width * static_cast<double>(o.feed_forward);
  return static_cast<double>(o.layers) * each +
         width * static_cast<double>(o.vocabulary + o.positions + o.segments);
}

Status check_bert_options(const BertOptions& o) {
  const std::pair<const char*, std::int64_t> sizes[] = {
      {"layers", o.layers},         {"width", o.width},
      {"heads", o.heads},           {"feed-forward width", o.feed_forward},
      {"vocabulary", o.vocabulary}, {"positions", o.positions},
      {"token types", o.segments}};
  for (const auto& [name, size] : sizes) {
    if (size < 1 || size > kLargestSize) {
      return Error{
          fmt::format("a text encoder cannot have {} {}", size, name), {}, "use 1 to ten million"};
    }
  }
  if (o.width % o.heads != 0) {
    return Error{fmt::format("a width of {} cannot be shared by {} heads", o.width, o.heads),
                 {},
                 "choose a width that is a multiple of the heads"};
  }
  for (const double share : {o.dropout, o.attention_dropout}) {
    if (!(share >= 0 && share < 1)) {
      return Error{fmt::format("dropout is {}, not a share from 0 to below 1", fixed(share, 2)),
                   {},
                   "0.1 is usual, 0 turns it off"};
    }
  }
  if (!(o.norm_epsilon > 0 && o.norm_epsilon < 1)) {
    return Error{"LayerNorm's epsilon is not between 0 and 1", {}, "1e-12 is BERT's"};
  }
  if (const double all = weights_in(o); all > kMaxParameters) {
    return Error{fmt::format("a text encoder of {} billion parameters", fixed(all / 1e9, 0)),
                 {},
                 "check layers, width and vocabulary"};
  }
  if (o.layers > kMaxLayers) {
    return Error{
        fmt::format("a text encoder cannot have {} layers", o.layers), {}, "use 1 to a thousand"};
  }
  return Status::ok();
}

Result<BertOptions> parse_bert_config(std::string_view json) {
  const Json config = Json::parse(json, nullptr, false);
  if (!config.is_object()) return Error{"not a JSON object", {}, kConfigFix};
  for (const auto& [key, wanted] :
       std::initializer_list<std::pair<const char*, Json>>{{"model_type", "bert"},
                                                           {"hidden_act", "gelu"},
                                                           {"position_embedding_type", "absolute"},
                                                           {"is_decoder", false}}) {
    if (const Status same = require(config, key, wanted); !same) return same.error();
  }
  BertOptions o;
  const std::pair<const char*, std::int64_t*> sizes[] = {
      {"num_hidden_layers", &o.layers},  {"hidden_size", &o.width},
      {"num_attention_heads", &o.heads}, {"intermediate_size", &o.feed_forward},
      {"vocab_size", &o.vocabulary},     {"max_position_embeddings", &o.positions},
      {"type_vocab_size", &o.segments}};
  for (const auto& [key, size] : sizes) {
    if (const Status read = read_size(config, key, *size); !read) return read.error();
  }
  const std::pair<const char*, double*> shares[] = {
      {"layer_norm_eps", &o.norm_epsilon},
      {"hidden_dropout_prob", &o.dropout},
      {"attention_probs_dropout_prob", &o.attention_dropout}};
  for (const auto& [key, share] : shares) {
    if (const Status read = read_share(config, key, *share); !read) return read.error();
  }
  if (const Status sound = check_bert_options(o); !sound) return sound.error();
  return o;
}

Result<BertOptions> load_bert_config(const std::string& path) {
  const auto text = read_file(path, kLargestConfig);
  if (!text) return text.error();
  auto options = parse_bert_config(*text);
  if (!options) return Error{options.error().message, {path}, options.error().fix};
  return options;
}

}  // namespace lockstep::runtime
