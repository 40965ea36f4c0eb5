#include "trace/formats/text/lines.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <system_error>

#include "trace/formats/text/text_trace.h"

namespace lockstep::trace {

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

namespace {

using simdjson::dom::element;
using simdjson::dom::element_type;

// In the order of Key.
constexpr std::array<std::string_view, kKeys> kKeyNames = {"header",
                                                           "group",
                                                           "ev",
                                                           "end",
                                                           "rank",
                                                           "world_size",
                                                           "backend",
                                                           "host",
                                                           "gpu",
                                                           "pid",
                                                           "program",
                                                           "dropped",
                                                           "semantics",
                                                           "ranks",
                                                           "desc",
                                                           "id",
                                                           "g",
                                                           "op",
                                                           "t",
                                                           "in",
                                                           "out",
                                                           "dtype",
                                                           "redop",
                                                           "root",
                                                           "peer",
                                                           "ptag",
                                                           "splits_in",
                                                           "splits_out",
                                                           "async",
                                                           "coalesced",
                                                           "stream",
                                                           "what",
                                                           "at",
                                                           "step",
                                                           "tag",
                                                           "hash",
                                                           "sketch",
                                                           "count",
                                                           "mode",
                                                           "from",
                                                           "fromtag",
                                                           "n",
                                                           "loss",
                                                           "samples",
                                                           "name",
                                                           "norm",
                                                           "shape",
                                                           "kind",
                                                           "when",
                                                           "sharded",
                                                           "indices",
                                                           "has",
                                                           "dur",
                                                           "modality",
                                                           "after",
                                                           "thread",
                                                           "converted",
                                                           "snapshot",
                                                           "sized",
                                                           "created",
                                                           "first_number",
                                                           "conflicts",
                                                           "damaged",
                                                           "damage",
                                                           "progress",
                                                           "enqueued",
                                                           "started",
                                                           "completed",
                                                           "seq",
                                                           "open_ended",
                                                           "damaged_at_end",
                                                           "inconclusive",
                                                           "ends_of_waits",
                                                           "longest_open",
                                                           "longest_completed",
                                                           "unrecorded"};

// Finds a key by its spelling: a table with open addressing, made by the compiler.
class KeyIndex {
 public:
  constexpr KeyIndex() {
    for (std::size_t i = 0; i < kKeys; ++i) {
      std::size_t slot = slot_of(kKeyNames[i]);
      while (slots_[slot] != kEmpty) slot = (slot + 1) % kSlots;
      slots_[slot] = static_cast<std::uint8_t>(i);
    }
  }

  std::optional<Key> find(std::string_view name) const {
    if (name.empty()) return std::nullopt;
    for (std::size_t slot = slot_of(name); slots_[slot] != kEmpty; slot = (slot + 1) % kSlots) {
      if (kKeyNames[slots_[slot]] == name) return static_cast<Key>(slots_[slot]);
    }
    return std::nullopt;
  }

 private:
  static constexpr std::size_t kSlots = 256;  // four times the keys, so that few collide
  static constexpr std::uint8_t kEmpty = 255;

  static constexpr std::size_t slot_of(std::string_view name) {
    const auto at = [&](std::size_t i) { return static_cast<std::size_t>(name[i] & 0x7F); };
    return (name.size() * 67 + at(0) * 31 + at(name.size() / 2) * 13 + at(name.size() - 1)) %
           kSlots;
  }

  std::array<std::uint8_t, kSlots> slots_ = [] {
    std::array<std::uint8_t, kSlots> empty{};
    empty.fill(kEmpty);
    return empty;
  }();
};
constexpr KeyIndex kKeyIndex;

std::optional<std::int64_t> as_integer(element value) {
  std::int64_t integer = 0;
  if (value.get(integer) == simdjson::SUCCESS) return integer;
  double number = 0;
  constexpr double kExact = 9007199254740992.0;  // 2^53: doubles up to here are exact integers
  if (value.get(number) == simdjson::SUCCESS && std::abs(number) <= kExact &&
      number == std::floor(number)) {
    return static_cast<std::int64_t>(number);
  }
  return std::nullopt;
}

std::string_view key_name(Key key) { return kKeyNames[static_cast<std::size_t>(key)]; }

}  // namespace

void TextFields::load(simdjson::dom::object object) {
  present_.reset();
  line_kind_.reset();
  problem_.clear();
  for (const auto field : object) {
    const std::optional<Key> key = kKeyIndex.find(field.key);
    if (!key || field.value.is_null()) continue;
    if (!line_kind_ && *key <= Key::end) line_kind_ = key;
    values_[static_cast<std::size_t>(*key)] = field.value;
    present_.set(static_cast<std::size_t>(*key));
  }
}

void TextFields::complain(Key key, std::string_view what) {
  if (!problem_.empty()) return;
  problem_ = "\"";
  problem_.append(key_name(key)).append("\" ").append(what);
}

void TextFields::require(Key key) {
  if (!has(key)) complain(key, "is missing");
}

std::optional<std::int64_t> TextFields::integer(Key key, std::int64_t low, std::int64_t high) {
  const element* value = find(key);
  if (value == nullptr) return std::nullopt;
  const std::optional<std::int64_t> number = as_integer(*value);
  if (!number) {
    complain(key, "is not an integer");
    return std::nullopt;
  }
  if (*number < low || *number > high) {
    complain(key, "is out of range");
    return std::nullopt;
  }
  return number;
}

std::int32_t TextFields::int32(Key key, std::int32_t absent, std::int32_t low, std::int32_t high) {
  const std::optional<std::int64_t> number = integer(key, low, high);
  return number ? static_cast<std::int32_t>(*number) : absent;
}

std::optional<double> TextFields::number(Key key) {
  const element* value = find(key);
  if (value == nullptr) return std::nullopt;
  double number = 0;
  if (value->get(number) == simdjson::SUCCESS) return number;
  complain(key, "is not a number");
  return std::nullopt;
}

bool TextFields::boolean(Key key, bool absent) {
  const element* value = find(key);
  if (value == nullptr) return absent;
  bool flag = absent;
  if (value->get(flag) != simdjson::SUCCESS) complain(key, "is neither true nor false");
  return flag;
}

std::optional<std::string_view> TextFields::text(Key key) {
  const element* value = find(key);
  if (value == nullptr) return std::nullopt;
  std::string_view text;
  if (value->get(text) == simdjson::SUCCESS) return text;
  complain(key, "is not a string");
  return std::nullopt;
}

std::optional<std::uint64_t> TextFields::hex64(Key key) {
  const std::optional<std::string_view> digits = text(key);
  if (!digits) return std::nullopt;
  std::uint64_t number = 0;
  const char* end = digits->data() + digits->size();
  const auto [rest, status] = std::from_chars(digits->data(), end, number, 16);
  if (status == std::errc() && rest == end) return number;
  complain(key, "is not a 64-bit number in hexadecimal");
  return std::nullopt;
}

std::optional<simdjson::dom::array> TextFields::list(Key key) {
  const element* value = find(key);
  if (value == nullptr) return std::nullopt;
  simdjson::dom::array array;
  if (value->get(array) == simdjson::SUCCESS) return array;
  complain(key, "is not a list");
  return std::nullopt;
}

std::vector<std::int64_t> TextFields::integers(Key key, std::int64_t low, std::int64_t high) {
  std::vector<std::int64_t> out;
  const auto array = list(key);
  if (!array) return out;
  for (const element item : *array) {
    const std::optional<std::int64_t> number = as_integer(item);
    if (!number || *number < low || *number > high) {
      complain(key, number ? "holds a number out of range" : "holds what is not an integer");
      return {};
    }
    out.push_back(*number);
  }
  return out;
}

std::optional<std::vector<RankRange>> TextFields::rank_ranges(Key key, std::int32_t high) {
  const auto array = list(key);
  if (!array) return std::nullopt;
  std::vector<RankRange> out;
  for (const element item : *array) {
    constexpr std::size_t kMaxNumbers = 3;  // [first, last, step]
    std::vector<std::int64_t> numbers;
    simdjson::dom::array range;
    const bool is_range = item.get(range) == simdjson::SUCCESS;
    if (!is_range) range = simdjson::dom::array();
    const auto take = [&](const element& number) {
      const std::optional<std::int64_t> rank = as_integer(number);
      if (rank && *rank >= 0 && *rank <= high) numbers.push_back(*rank);
      return rank && *rank >= 0 && *rank <= high && numbers.size() <= kMaxNumbers;
    };
    bool usable = true;
    if (is_range) {
      for (const element number : range) usable = usable && take(number);
      usable = usable && numbers.size() >= 2;
    } else {
      usable = take(item);
      numbers.push_back(usable ? numbers.front() : 0);
    }
    if (numbers.size() < kMaxNumbers) numbers.push_back(1);
    const std::int64_t step = numbers.back();
    usable =
        usable && step > 0 && numbers[0] <= numbers[1] && (numbers[1] - numbers[0]) % step == 0;
    if (!usable) {
      complain(key, "holds what is neither a rank nor a range of ranks");
      return std::nullopt;
    }
    out.push_back({static_cast<std::int32_t>(numbers[0]), static_cast<std::int32_t>(numbers[1]),
                   static_cast<std::int32_t>(step)});
  }
  return out;
}

std::vector<double> TextFields::numbers(Key key) {
  std::vector<double> out;
  const auto array = list(key);
  if (!array) return out;
  for (const element item : *array) {
    double number = 0;
    if (item.get(number) != simdjson::SUCCESS) {
      complain(key, "holds what is not a number");
      return {};
    }
    out.push_back(number);
  }
  return out;
}

StringId TextFields::intern(std::string_view text) {
  scratch_text_.assign(text);
  return tables_.strings.intern(scratch_text_);
}

StringId TextFields::name(Key key) { return intern(text(key).value_or("")); }

StringId TextFields::name_or_number(Key key) {
  const element* value = find(key);
  std::int64_t number = 0;
  if (value != nullptr && value->get(number) == simdjson::SUCCESS) {
    return intern(std::to_string(number));
  }
  return name(key);
}

GroupId TextFields::group_name(Key key) {
  scratch_text_.assign(text(key).value_or(""));
  return tables_.groups.intern(scratch_text_);
}

NameListId TextFields::names(Key key, bool sorted) {
  const element* value = find(key);
  if (value == nullptr) return {};
  scratch_names_.clear();
  std::string_view text;
  if (value->get(text) == simdjson::SUCCESS) {
    if (!text.empty()) scratch_names_.push_back(intern(text));
    return tables_.name_lists.intern(scratch_names_);
  }
  const auto array = list(key);
  if (!array) return {};
  for (const element item : *array) {
    if (item.get(text) != simdjson::SUCCESS) {
      complain(key, "holds what is not a string");
      return {};
    }
    scratch_names_.push_back(intern(text));
  }
  if (sorted) {
    std::sort(scratch_names_.begin(), scratch_names_.end(),
              [&](StringId a, StringId b) { return tables_.str(a) < tables_.str(b); });
  }
  return tables_.name_lists.intern(scratch_names_);
}

bool TextFields::append_sizes(Key key, element value) {
  simdjson::dom::array array;
  if (value.get(array) != simdjson::SUCCESS) {
    complain(key, "holds what is not a shape");
    return false;
  }
  for (const element item : array) {
    const std::optional<std::int64_t> size = as_integer(item);
    if (!size || *size < 0) {
      complain(key, size ? "holds a negative size" : "holds what is not an integer");
      return false;
    }
    scratch_ints_.push_back(*size);
  }
  return true;
}

IntListId TextFields::shapes(Key key) {
  const auto array = list(key);
  if (!array) return {};
  scratch_ints_.clear();
  for (const element shape : *array) {
    if (!append_sizes(key, shape)) return {};
    scratch_ints_.push_back(-1);
  }
  return tables_.int_lists.intern(scratch_ints_);
}

IntListId TextFields::sizes(Key key) {
  const element* value = find(key);
  if (value == nullptr) return {};
  scratch_ints_.clear();
  if (!append_sizes(key, *value)) return {};
  return tables_.int_lists.intern(scratch_ints_);
}

}  // namespace lockstep::trace
