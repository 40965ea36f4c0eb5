#include "trace/formats/pickle.h"

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

using Value = DataTree::Value;
using Kind = DataTree::Kind;

// The opcodes of pickletools that carry data, by their byte.
enum Opcode : unsigned char {
  kMark = '(',
  kStop = '.',
  kPop = '0',
  kPopMark = '1',
  kDup = '2',
  kNone = 'N',
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kInt = 'I',
  kLong = 'L',
  kFloat = 'F',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kLong1 = 0x8a,
  kLong4 = 0x8b,
  kBinFloat = 'G',
  kBinString = 'T',
  kShortBinString = 'U',
  kBinUnicode = 'X',
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kBinBytes = 'B',
  kShortBinBytes = 'C',
  kBinBytes8 = 0x8e,
  kByteArray8 = 0x96,
  kEmptyList = ']',
  kAppend = 'a',
  kAppends = 'e',
  kList = 'l',
  kEmptyTuple = ')',
  kTuple = 't',
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kEmptyDict = '}',
  kDict = 'd',
  kSetItem = 's',
  kSetItems = 'u',
  kEmptySet = 0x8f,
  kAddItems = 0x90,
  kFrozenSet = 0x91,
  kGet = 'g',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kPut = 'p',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kMemoize = 0x94,
  kProto = 0x80,
  kFrame = 0x95,
};

// The opcodes that would look something up, construct it or call it.
std::string_view refused_name(unsigned char opcode) {
  switch (opcode) {
    case 'c':
      return "GLOBAL";
    case 0x93:
      return "STACK_GLOBAL";
    case 'R':
      return "REDUCE";
    case 'b':
      return "BUILD";
    case 'i':
      return "INST";
    case 'o':
      return "OBJ";
    case 0x81:
      return "NEWOBJ";
    case 0x92:
      return "NEWOBJ_EX";
    case 'P':
      return "PERSID";
    case 'Q':
      return "BINPERSID";
    case 0x82:
      return "EXT1";
    case 0x83:
      return "EXT2";
    case 0x84:
      return "EXT4";
    case 0x97:
      return "NEXT_BUFFER";
    case 0x98:
      return "READONLY_BUFFER";
    default:
      return "";
  }
}

class Machine {
 public:
  Machine(std::string_view bytes, const std::string& file) : bytes_(bytes), file_(file) {
    stack_.reserve(256);
  }

  Result<Pickle> run() {
    while (!stopped_ && problem_.empty()) {
      start_ = at_;
      if (at_ == bytes_.size()) {
        problem_ = "the pickle was cut off";
        break;
      }
      const auto opcode = static_cast<unsigned char>(bytes_[at_++]);
      if (const std::string_view name = refused_name(opcode); !name.empty()) {
        return Error{
            "the pickle would construct or call something (opcode " + std::string(name) +
                " at byte " + std::to_string(start_) + "): refused",
            {file_},
            "a Flight Recorder dump holds only data; this is another file, or a hostile one"};
      }
      step(opcode);
    }
    if (!problem_.empty()) {
      out_.damage = std::move(problem_);
      out_.damage_at = start_;
      salvage();
    }
    return std::move(out_);
  }

 private:
  // Little-endian, as all of pickle is but BINFLOAT.
  template <class Int>
  std::optional<Int> number() {
    if (bytes_.size() - at_ < sizeof(Int)) return short_of_bytes<Int>();
    Int value{};
    std::memcpy(&value, bytes_.data() + at_, sizeof(Int));
    at_ += sizeof(Int);
    return value;
  }
  template <class T>
  std::optional<T> short_of_bytes() {
    problem_ = "the pickle was cut off";
    return std::nullopt;
  }
  std::optional<std::string_view> block(std::optional<std::uint64_t> size) {
    if (!size) return std::nullopt;
    if (*size > bytes_.size() - at_) return short_of_bytes<std::string_view>();
    const std::string_view out = bytes_.substr(at_, *size);
    at_ += *size;
    return out;
  }
  // The text of an opcode of protocol 0, up to the end of the line.
  std::optional<std::string_view> line() {
    const std::size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) return short_of_bytes<std::string_view>();
    const std::string_view out = bytes_.substr(at_, end - at_);
    at_ = end + 1;
    return out;
  }

  DataTree& tree() { return out_.tree; }
  void push(Value v) { stack_.push_back(v); }
  void push_string(std::optional<std::string_view> s) {
    if (s) push(tree().string(*s));
  }
  void push_nothing(std::optional<std::string_view> s) {
    if (s) push(DataTree::none());
  }
  // Stack elements above the innermost mark.
  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  bool need(std::size_t count) {
    if (stack_.size() - floor() >= count) return true;
    problem_ = "the pickle takes more from its stack than is there";
    return false;
  }
  bool need_mark() {
    if (!marks_.empty()) return true;
    problem_ = "the pickle refers to a mark that is not there";
    return false;
  }
  std::span<const Value> above(std::size_t from) const { return std::span(stack_).subspan(from); }

  // The last `count` elements become one container.
  void collect(std::size_t from, Value container) {
    tree().append(container, above(from));
    stack_.resize(from);
    push(container);
  }
  void collect_from_mark(Kind kind) {
    if (!need_mark()) return;
    const std::size_t from = marks_.back();
    marks_.pop_back();
    if (kind == Kind::dict && (stack_.size() - from) % 2 != 0) stack_.pop_back();
    collect(from, kind == Kind::dict ? tree().dict() : tree().list());
  }
  void collect_tuple(std::size_t count) {
    if (need(count)) collect(stack_.size() - count, tree().list());
  }
  // Adds what lies above the mark to the container below it.
  void add_to_container(Kind kind) {
    if (!need_mark()) return;
    const std::size_t from = marks_.back();
    marks_.pop_back();
    if (from == floor() || !stack_[from - 1].is(kind) ||
        (kind == Kind::dict && (stack_.size() - from) % 2 != 0)) {
      problem_ = "the pickle adds items to what is no container for them";
      return;
    }
    tree().append(stack_[from - 1], above(from));
    stack_.resize(from);
  }
  void add_last(Kind kind, std::size_t count) {
    if (!need(count + 1)) return;
    const std::size_t from = stack_.size() - count;
    if (!stack_[from - 1].is(kind)) {
      problem_ = "the pickle adds an item to what is no container for it";
      return;
    }
    tree().append(stack_[from - 1], above(from));
    stack_.resize(from);
  }

  void put(std::optional<std::uint64_t> index) {
    if (!index || !need(1)) return;
    // Picklers number what they memoize from 0 up: a larger number than bytes is none of theirs.
    if (*index > bytes_.size()) {
      problem_ = "the pickle memoizes under the number " + std::to_string(*index);
      return;
    }
    if (*index >= memo_.size()) memo_.resize(*index + 1);
    memo_[*index] = stack_.back();
  }
  void get(std::optional<std::uint64_t> index) {
    if (!index) return;
    if (*index >= memo_.size()) {
      problem_ =
          "the pickle refers to number " + std::to_string(*index) + ", which it did not memoize";
      return;
    }
    push(memo_[*index]);
  }

  void push_long(std::optional<std::string_view> digits) {
    if (!digits) return;
    if (digits->size() > sizeof(std::int64_t)) {
      push(DataTree::none());
      return;
    }
    // Two's complement, little-endian, as short as possible.
    std::uint64_t value = 0;
    std::memcpy(&value, digits->data(), digits->size());
    const bool negative = !digits->empty() && (digits->back() & '\x80') != 0;
    if (negative && digits->size() < 8) value |= ~std::uint64_t{0} << (8 * digits->size());
    push(DataTree::integer(static_cast<std::int64_t>(value)));
  }

  std::optional<std::uint64_t> decimal(std::optional<std::string_view> text) {
    if (!text) return std::nullopt;
    std::uint64_t value = 0;
    for (const char c : *text) {
      if (c < '0' || c > '9' || value > UINT64_MAX / 20) {
        problem_ = "the pickle holds a number that is none";
        return std::nullopt;
      }
      value = value * 10 + static_cast<std::uint64_t>(c - '0');
    }
    return value;
  }
  void push_decimal(std::optional<std::string_view> text) {
    if (!text) return;
    if (*text == "00" || *text == "01") return push(DataTree::boolean(*text == "01"));
    if (text->ends_with('L')) text->remove_suffix(1);
    const bool negative = text->starts_with('-');
    if (negative) text->remove_prefix(1);
    if (const auto value = decimal(text)) {
      const auto i = static_cast<std::int64_t>(*value);
      push(DataTree::integer(negative ? -i : i));
    }
  }

  void push_binary_float() {
    if (const auto bits = number<std::uint64_t>()) {
      push(DataTree::real(std::bit_cast<double>(__builtin_bswap64(*bits))));
    }
  }

  template <class Int>
  void push_integer() {
    if (const auto i = number<Int>()) push(DataTree::integer(static_cast<std::int64_t>(*i)));
  }
  template <class Int>
  std::optional<std::uint64_t> size() {
    const auto n = number<Int>();
    return n ? std::optional<std::uint64_t>(*n) : std::nullopt;
  }

  void step(unsigned char opcode) {
    switch (opcode) {
      case kProto:
        (void)number<std::uint8_t>();
        break;
      case kFrame:
        (void)number<std::uint64_t>();
        break;
      case kStop:
        if (need(1)) {
          tree().root = stack_.back();
          stopped_ = true;
        }
        break;
      case kMark:
        marks_.push_back(stack_.size());
        break;
      case kPop:
        if (stack_.size() > floor()) {
          stack_.pop_back();
        } else if (need_mark()) {
          marks_.pop_back();
        }
        break;
      case kPopMark:
        if (need_mark()) {
          stack_.resize(marks_.back());
          marks_.pop_back();
        }
        break;
      case kDup:
        if (need(1)) push(stack_.back());
        break;
      case kNone:
        push(DataTree::none());
        break;
      case kNewTrue:
        push(DataTree::boolean(true));
        break;
      case kNewFalse:
        push(DataTree::boolean(false));
        break;
      case kInt:
      case kLong:
        push_decimal(line());
        break;
      case kFloat:
        push_nothing(line());
        break;  // protocol 0: no recorder writes it
      case kBinInt:
        push_integer<std::int32_t>();
        break;
      case kBinInt1:
        push_integer<std::uint8_t>();
        break;
      case kBinInt2:
        push_integer<std::uint16_t>();
        break;
      case kLong1:
        push_long(block(size<std::uint8_t>()));
        break;
      case kLong4:
        push_long(block(size<std::uint32_t>()));
        break;
      case kBinFloat:
        push_binary_float();
        break;
      case kShortBinString:
      case kShortBinUnicode:
        push_string(block(size<std::uint8_t>()));
        break;
      case kBinString:
      case kBinUnicode:
        push_string(block(size<std::uint32_t>()));
        break;
      case kBinUnicode8:
        push_string(block(size<std::uint64_t>()));
        break;
      case kShortBinBytes:
        push_nothing(block(size<std::uint8_t>()));
        break;
      case kBinBytes:
        push_nothing(block(size<std::uint32_t>()));
        break;
      case kBinBytes8:
      case kByteArray8:
        push_nothing(block(size<std::uint64_t>()));
        break;
      case kEmptyList:
      case kEmptyTuple:
      case kEmptySet:
        push(tree().list());
        break;
      case kEmptyDict:
        push(tree().dict());
        break;
      case kList:
      case kTuple:
      case kFrozenSet:
        collect_from_mark(Kind::list);
        break;
      case kDict:
        collect_from_mark(Kind::dict);
        break;
      case kTuple1:
        collect_tuple(1);
        break;
      case kTuple2:
        collect_tuple(2);
        break;
      case kTuple3:
        collect_tuple(3);
        break;
      case kAppends:
      case kAddItems:
        add_to_container(Kind::list);
        break;
      case kSetItems:
        add_to_container(Kind::dict);
        break;
      case kAppend:
        add_last(Kind::list, 1);
        break;
      case kSetItem:
        add_last(Kind::dict, 2);
        break;
      case kPut:
        put(decimal(line()));
        break;
      case kBinPut:
        put(size<std::uint8_t>());
        break;
      case kLongBinPut:
        put(size<std::uint32_t>());
        break;
      case kMemoize:
        put(memo_.size());
        break;
      case kGet:
        get(decimal(line()));
        break;
      case kBinGet:
        get(size<std::uint8_t>());
        break;
      case kLongBinGet:
        get(size<std::uint32_t>());
        break;
      default:
        problem_ = "the pickle holds the unknown opcode " + std::to_string(opcode);
        break;
    }
  }

  // Closes what was open where the pickle broke off, from the inside out, so that all that was
  // complete by then is in the tree.
  void salvage() {
    while (!marks_.empty()) {
      const std::size_t from = marks_.back();
      marks_.pop_back();
      if (from > floor()) {
        const Value& below = stack_[from - 1];
        std::span<const Value> items = above(from);
        if (below.is(Kind::dict)) items = items.first(items.size() / 2 * 2);
        if (below.is(Kind::dict) || below.is(Kind::list)) tree().append(below, items);
      }
      stack_.resize(from);
    }
    if (!stack_.empty()) tree().root = stack_.front();
  }

  std::string_view bytes_;
  const std::string& file_;
  std::size_t at_ = 0;
  std::size_t start_ = 0;  // of the current opcode
  bool stopped_ = false;
  std::string problem_;
  Pickle out_;
  std::vector<Value> stack_;
  std::vector<std::size_t> marks_;
  std::vector<Value> memo_;
};

}  // namespace

bool looks_like_pickle(std::string_view bytes) {
  return bytes.size() >= 2 && bytes[0] == '\x80' && bytes[1] >= 2 && bytes[1] <= 5;
}

Result<Pickle> read_pickle(std::string_view bytes, const std::string& file) {
  if (!looks_like_pickle(bytes)) return Error{"not a pickle", {file}, ""};
  return Machine(bytes, file).run();
}

}  // namespace lockstep
