#include "trace/evidence/horovod_stalls.h"

#include <cstddef>
#include <cstdint>

#include "base/text.h"
#include "trace/evidence/line_labels.h"
#include "trace/formats/log_lines.h"
#include "trace/trace_builder.h"

namespace lockstep::trace {

namespace {

// "2: [a, b ...]", with a launcher's label or without: "[1,0]<stderr>:2: [a]", "[0] 2: [a]".
std::optional<HorovodStalls::Stall> parse_list(std::string_view line) {
  const std::size_t open = line.find(": [");
  const std::size_t close = line.rfind(']');
  if (open == kNpos || close == kNpos || close < open + 3) return std::nullopt;
  std::string_view number = line.substr(0, open);
  if (number.ends_with('!')) number.remove_suffix(1);
  const std::size_t before = number.find_last_not_of("0123456789");
  const std::string_view label = trimmed(number.substr(0, before + 1));
  if (!label.empty() && !contains_text(":]>|", label.substr(label.size() - 1))) return std::nullopt;
  if (before != kNpos) number.remove_prefix(before + 1);
  const auto rank = number_after(number, "");
  if (!rank || !is_possible_rank(*rank, kMaxWorldSize)) return std::nullopt;
  return HorovodStalls::Stall{{Rank(static_cast<std::int32_t>(*rank))},
                              line.substr(open + 3, close - open - 3)};
}

// "… operations.cc:588] HorovodAllreduce_image_fc_0 [missing ranks: 1, 2]"
std::optional<HorovodStalls::Stall> parse_tensor(std::string_view line, std::size_t at) {
  const std::string_view before = line.substr(0, at);
  const std::size_t name = before.rfind(' ');
  HorovodStalls::Stall out{listed_ranks(line.substr(at + HorovodStalls::kMissing.size())),
                           before.substr(name == kNpos ? 0 : name + 1)};
  if (out.missing.empty() || out.tensors.empty()) return std::nullopt;
  return out;
}

}  // namespace

std::optional<HorovodStalls::Stall> HorovodStalls::take(std::string_view line) {
  if (contains_text(line, kSign)) {
    in_list_ = true;
    return std::nullopt;
  }
  if (const std::size_t at = line.find(kMissing); at != kNpos) return parse_tensor(line, at);
  if (!in_list_ || contains_text(line, "Missing ranks:")) return std::nullopt;
  const auto stall = parse_list(line);
  in_list_ = stall.has_value();
  return stall;
}

}  // namespace lockstep::trace
