// Keys of earlier releases: an error that says how the same is written now.
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "runtime/job/scenario_decode.h"

namespace lockstep::runtime {

namespace {

using Json = nlohmann::json;

// Keys and values of earlier releases that are now written differently. The error says how:
//
//   strategy: {kind: ddp, reduction: sum}   write "fault: gradients-summed"
//   train: {zero_grad: true}                remove it: the correct behaviour is the only one
struct Moved {
  const char* pointer;  // JSON pointer of the key
  const char* value;    // the value that moved; null: any value without a row above
  const char* now;      // the replacement; null: none, the correct behaviour is the only one
};

// Rows for single values of a key come before the row for all others. The message puts the
// replacement in quotes; where it is two keys, `" and "` closes and reopens them.
constexpr Moved kMoved[] = {
    {"/model/negatives", "global-detached", "negatives: global\" and \"fault: detached-negatives"},
    {"/data/sharding", "false", "fault: unsharded-data"},
    {"/data/sharding", nullptr, nullptr},
    {"/data/reshuffle", "false", "fault: no-reshuffle"},
    {"/data/reshuffle", nullptr, nullptr},
    {"/strategy/reduction", "sum", "fault: gradients-summed"},
    {"/strategy/reduction", "none", "fault: gradients-not-reduced"},
    {"/strategy/reduction", nullptr, nullptr},
    {"/strategy/order", "crossed", "fault: crossed-stages"},
    {"/strategy/order", nullptr, nullptr},
    {"/strategy/kind", "replay", "replay: FOLDER"},
    {"/strategy", "replay", "replay: FOLDER"},
    {"/train/clip/when", "before-sync", "fault: clip-before-sync"},
    {"/train/clip/when", nullptr, nullptr},
    {"/train/clip/norm", "local", "fault: clip-local-norm"},
    {"/train/clip/norm", nullptr, nullptr},
    {"/train/loss_scale/found_inf", "local", "fault: local-overflow"},
    {"/train/loss_scale/found_inf", nullptr, nullptr},
    {"/train/checkpoint/barrier", "rank-0", "barrier: all\" and \"fault: barrier-on-rank-0"},
    {"/train/zero_grad", "false", "fault: zero-grad-forgotten"},
    {"/train/zero_grad", nullptr, nullptr},
    {"/remedy/average", "contributors-diluted",
     "average: contributors\" and \"fault: diluted-average"},
};

// Remedies of earlier releases with a deliberate mistake. Each is now a remedy and a fault.
struct MovedRemedy {
  const char* kind;
  const char* now;
};

constexpr MovedRemedy kMovedRemedies[] = {
    {"dummy-image-outside-graph", "dummy-image\" and \"fault: dummy-outside-graph"},
    {"dummy-image-in-batchnorm", "dummy-image\" and \"fault: dummy-in-batchnorm"},
    {"alternating-per-rank", "alternating\" and \"fault: alternating-per-rank"},
    {"gradient-mask-decayed", "gradient-mask\" and \"fault: mask-decayed"},
};

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string name_of(const std::string& pointer) { return pointer.substr(pointer.rfind('/') + 1); }

Error no_longer(const YamlDocument& document, const std::string& pointer, const std::string& value,
                const std::string& now) {
  return {fmt::format("\"{}: {}\" is no longer accepted", name_of(pointer), value),
          document.key_location(pointer), fmt::format("write \"{}\"", now)};
}

}  // namespace

std::optional<Error> find_moved_key(const YamlDocument& document) {
  for (const Moved& moved : kMoved) {
    const std::string pointer = moved.pointer;
    const Json::json_pointer where(pointer);
    if (!document.value.contains(where)) continue;
    const std::string value = text_of(document.value[where]);
    if (moved.value != nullptr && value != moved.value) continue;
    if (moved.now != nullptr) return no_longer(document, pointer, value, moved.now);
    return Error{fmt::format("\"{}\" is no longer a key: the correct behaviour is the only one",
                             name_of(pointer)),
                 document.key_location(pointer),
                 "remove it; \"fault\" asks for a deliberate mistake"};
  }
  for (const std::string pointer : {"/remedy", "/remedy/kind"}) {
    const Json::json_pointer where(pointer);
    if (!document.value.contains(where) || !document.value[where].is_string()) continue;
    const std::string value = text_of(document.value[where]);
    for (const MovedRemedy& moved : kMovedRemedies)
      if (value == moved.kind)
        return no_longer(document, pointer, value,
                         fmt::format("{}: {}", name_of(pointer), moved.now));
  }
  return std::nullopt;
}

}  // namespace lockstep::runtime
