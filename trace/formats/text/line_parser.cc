#include "trace/formats/text/line_parser.h"

#include <algorithm>
#include <cstdint>

#include "trace/formats/text/text_trace.h"

namespace lockstep {

namespace {

constexpr std::size_t kLongestLine = std::size_t{64} << 20U;
constexpr std::size_t kDeepest = 64;  // nesting of lists and objects; the format itself needs 3

}  // namespace

LineParser::LineParser(std::string_view text) : rest_(text) {
  if (rest_.starts_with("\xEF\xBB\xBF")) rest_.remove_prefix(3);
}

bool LineParser::next() {
  while (!rest_.empty()) {
    const std::size_t length = std::min(rest_.find('\n'), rest_.size());
    line_ = rest_.substr(0, length);
    terminated_ = length < rest_.size();
    rest_.remove_prefix(std::min(length + 1, rest_.size()));
    if (number_ < INT32_MAX) ++number_;
    if (line_.find_first_not_of(" \t\r") != std::string_view::npos) return true;
  }
  return false;
}

bool LineParser::parse(simdjson::dom::object& object, std::string& problem) {
  if (line_.size() > kLongestLine) {
    problem = "the line is longer than 64 MiB";
    return false;
  }
  if (!make_room()) {
    problem = "no memory for a line of this length";
    return false;
  }
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(with_padding());
  simdjson::error_code status = simdjson::SUCCESS;
  simdjson::dom::element element;
  parser_.parse(bytes, line_.size(), false).tie(element, status);
  if (status == simdjson::SUCCESS) status = element.get(object);
  if (status == simdjson::SUCCESS) return true;
  problem = why(status);
  return false;
}

bool LineParser::make_room() {
  if (line_.size() <= parser_.capacity()) return true;
  const std::size_t room = std::max<std::size_t>(4096, 2 * line_.size());
  return parser_.allocate(room, kDeepest) == simdjson::SUCCESS;
}

const char* LineParser::with_padding() {
  if (rest_.size() >= simdjson::SIMDJSON_PADDING) return line_.data();
  last_lines_.assign(line_);
  last_lines_.append(simdjson::SIMDJSON_PADDING, ' ');
  return last_lines_.data();
}

std::string LineParser::why(simdjson::error_code status) const {
  if (!terminated_) return std::string(kCutOffLine);
  switch (status) {
    case simdjson::UTF8_ERROR:
      return "the line is not valid UTF-8";
    case simdjson::DEPTH_ERROR:
      return "the line nests too deeply";
    case simdjson::NUMBER_ERROR:
      return "the line holds a number out of range";
    case simdjson::INCORRECT_TYPE:
      return "the line is not a JSON object";
    default:
      return "the line is not valid JSON";
  }
}

}  // namespace lockstep
