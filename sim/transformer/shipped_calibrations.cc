#include "sim/transformer/shipped_calibrations.h"

#include "base/check.h"
#include "base/text.h"
#include "sim/transformer/shipped_texts.h"

namespace lockstep::sim {
namespace {

constexpr std::string_view kPrefix = "calibration-", kSuffix = ".yaml", kNccl = "nccl";

// "a100-node" of "calibration-a100-node.yaml".
std::string_view type_of(std::string_view file) {
  LOCKSTEP_CHECK(file.starts_with(kPrefix) && file.ends_with(kSuffix), "a calibration's file name");
  return file.substr(kPrefix.size(), file.size() - kPrefix.size() - kSuffix.size());
}

}  // namespace

std::vector<std::string> shipped_calibration_names() {
  std::vector<std::string> names;
  for (const ShippedText& shipped : shipped_texts())
    if (type_of(shipped.file) != kNccl) names.emplace_back(type_of(shipped.file));
  return names;
}

std::optional<std::string_view> shipped_calibration_text(std::string_view name) {
  for (const ShippedText& shipped : shipped_texts())
    if (type_of(shipped.file) == name && name != kNccl) return shipped.text;
  return std::nullopt;
}

Result<Calibration> shipped_calibration(std::string_view name) {
  if (const auto text = shipped_calibration_text(name))
    return parse_calibration(std::string(*text),
                             "sim/machines/calibration-" + std::string(name) + ".yaml");
  return Error{"there is no calibration for machine type \"" + printable(name) + "\"",
               {},
               "shipped are " + join_and(shipped_calibration_names()) +
                   "; a file of your own goes with --calibration"};
}

std::string_view shipped_nccl_curves() {
  for (const ShippedText& shipped : shipped_texts())
    if (type_of(shipped.file) == kNccl) return shipped.text;
  return {};
}

}  // namespace lockstep::sim
