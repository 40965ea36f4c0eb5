#include "trace/formats/flight_recorder/pickle.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trace/formats/flight_recorder/pickle_opcodes.h"
#include "trace/formats/flight_recorder/repeated_dicts.h"

namespace lockstep::trace {

namespace {

using Value = DataTree::Value;
using namespace pickle_opcodes;  // NOLINT(google-build-using-namespace): what this file is about
using ValueKind = DataTree::Kind;

// The pickle machine: opcodes push values onto a stack, collect the values above a mark into a
// container, and store values in a memo for later use. The dump {"a": [1]} in protocol 2:
//
//   80 02                    PROTO 2
//   7d 71 00                 EMPTY_DICT, BINPUT 0     the dict is on the stack, and memo 0
//   58 01 00 00 00 61        BINUNICODE "a"
//   5d 4b 01 61              EMPTY_LIST, BININT1 1, APPEND
//   73 2e                    SETITEM, STOP            the dict is the result
class Machine {
 public:
  Machine(std::string_view bytes, const std::string& file)
      : bytes_(bytes), file_(file), at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  Result<Pickle> run() {
    tree().reserve(bytes_.size() / kBytesPerValue, bytes_.size() / kBytesPerContainer);
    const char* start = at_;  // of the current opcode, for messages
    while (!stopped_) {
      skip_ahead();
      start = at_;
      if (stopped_) break;
      if (at_ == end_) [[unlikely]] {
        cut_off();
        break;
      }
      step(static_cast<unsigned char>(*at_++));
    }
    const auto offset = static_cast<std::size_t>(start - bytes_.data());
    if (!refused_.empty()) {
      return Error{
          fmt::format(
              "the pickle would construct or call something (opcode {} at byte {}): refused",
              refused_, offset),
          {file_},
          "a Flight Recorder dump holds only data; this is a different file, or a hostile one"};
    }
    if (!problem_.empty()) {
      out_.damage = std::move(problem_);
      out_.damage_at = offset;
      salvage();
    }
    return std::move(out_);
  }

 private:
  [[gnu::cold]] void fail(std::string problem) {
    problem_ = std::move(problem);
    stopped_ = true;
  }
  [[gnu::cold]] bool cut_off() {
    fail("the pickle was cut off");
    return false;
  }
  // Stops at an opcode that would do more than build data, or that no protocol has.
  [[gnu::cold]] void refuse(unsigned char opcode) {
    refused_ = refused_name(opcode);
    if (refused_.empty()) fail(fmt::format("the pickle holds the unknown opcode {}", opcode));
    stopped_ = true;
  }

  // The take… functions return false, and have called fail(), where the bytes end too early.
  // Little-endian, as everything in a pickle except BINFLOAT.
  template <class Int>
  bool take(Int& out) {
    if (static_cast<std::size_t>(end_ - at_) < sizeof(Int)) [[unlikely]] {
      return cut_off();
    }
    std::memcpy(&out, at_, sizeof(Int));
    at_ += sizeof(Int);
    return true;
  }
  // A block of bytes after its size.
  template <class Size>
  bool take_block(std::string_view& out) {
    Size size{};
    if (!take(size)) return false;
    if (size > static_cast<std::size_t>(end_ - at_)) [[unlikely]] {
      return cut_off();
    }
    out = {at_, static_cast<std::size_t>(size)};
    at_ += size;
    return true;
  }
  template <class Int>
  void skip() {
    Int unused{};
    (void)take(unused);
  }
  // The argument of an opcode of protocol 0: text up to the end of the line.
  bool take_line(std::string_view& out) {
    const std::string_view rest(at_, static_cast<std::size_t>(end_ - at_));
    const std::size_t length = rest.find('\n');
    if (length == std::string_view::npos) return cut_off();
    out = rest.substr(0, length);
    at_ += length + 1;
    return true;
  }

  DataTree& tree() { return out_.tree; }

  void push(Value v) {
    if (top_ == stack_.size()) [[unlikely]] {
      stack_.resize(2 * top_);
    }
    stack_[top_++] = v;
  }
  template <class Size>
  void push_string() {
    std::string_view s;
    if (take_block<Size>(s)) push(tree().string(s));
  }
  template <class Size>
  void push_nothing() {
    std::string_view s;
    if (take_block<Size>(s)) push(DataTree::none());
  }
  template <class Int>
  void push_integer() {
    Int i{};
    if (take(i)) push(DataTree::integer(static_cast<std::int64_t>(i)));
  }

  // The stack's height at the innermost mark: opcodes without a mark must not take more.
  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  bool need(std::size_t count) {
    if (top_ - floor() >= count) return true;
    fail("the pickle takes more from its stack than is there");
    return false;
  }
  bool need_mark() {
    if (!marks_.empty()) return true;
    fail("the pickle refers to a mark that is not there");
    return false;
  }
  void stop() {
    if (!need(1)) return;
    tree().root = stack_[top_ - 1];
    stopped_ = true;
  }
  void pop() {
    if (top_ > floor()) {
      --top_;
    } else if (need_mark()) {
      marks_.pop_back();
    }
  }
  void pop_to_mark() {
    if (!need_mark()) return;
    top_ = marks_.back();
    marks_.pop_back();
  }
  void duplicate() {
    if (need(1)) push(stack_[top_ - 1]);
  }
  std::span<const Value> above(std::size_t from) const {
    return {stack_.data() + from, top_ - from};
  }

  // Replaces the elements from `from` up by one container that holds them.
  void collect(std::size_t from, Value container) {
    tree().append(container, above(from));
    top_ = from;
    push(container);
  }
  void collect_from_mark(ValueKind kind) {
    if (!need_mark()) return;
    const std::size_t from = marks_.back();
    marks_.pop_back();
    if (kind == ValueKind::dict && (top_ - from) % 2 != 0) --top_;  // a key without its value
    collect(from, kind == ValueKind::dict ? tree().dict() : tree().list());
  }
  void collect_tuple(std::size_t count) {
    if (need(count)) collect(top_ - count, tree().list());
  }
  // Adds the values above the mark to the container below it: APPENDS, SETITEMS, ADDITEMS.
  void add_to_container(ValueKind kind) {
    if (!need_mark()) return;
    const std::size_t from = marks_.back();
    marks_.pop_back();
    if (from == floor() || !stack_[from - 1].is(kind) ||
        (kind == ValueKind::dict && (top_ - from) % 2 != 0)) {
      return fail("the pickle adds items to something that cannot hold them");
    }
    tree().append(stack_[from - 1], above(from));
    top_ = from;
  }
  // Adds the last `count` values to the container below them: APPEND, SETITEM.
  void add_last(ValueKind kind, std::size_t count) {
    if (!need(count + 1)) return;
    const std::size_t from = top_ - count;
    if (!stack_[from - 1].is(kind)) {
      return fail("the pickle adds an item to something that cannot hold it");
    }
    tree().append(stack_[from - 1], above(from));
    top_ = from;
  }

  void put(std::uint64_t index) {
    if (!need(1)) return;
    // Picklers number memo entries from 0 up, and each costs bytes. A larger number was made up, to
    // have this reader allocate gigabytes.
    if (index > bytes_.size()) {
      return fail(fmt::format("the pickle memoizes under the number {}", index));
    }
    if (index == memo_.size()) return memo_.push_back(stack_[top_ - 1]);
    if (index > memo_.size()) memo_.resize(index + 1);
    memo_[index] = stack_[top_ - 1];
    repeated_.forget();
  }
  template <class Index>
  void take_put() {
    Index index{};
    if (take(index)) put(index);
  }
  void get(std::uint64_t index) {
    if (index >= memo_.size()) [[unlikely]] {
      return fail(fmt::format("the pickle refers to number {}, which it did not memoize", index));
    }
    push(memo_[index]);
  }
  template <class Index>
  void take_get() {
    Index index{};
    if (take(index)) get(index);
  }

  template <class Size>
  void push_long() {
    std::string_view digits;
    if (!take_block<Size>(digits)) return;
    if (digits.size() > sizeof(std::int64_t)) return push(DataTree::none());  // beyond 64 bits
    // Two's complement, little-endian, without redundant bytes: ff is -1, ff 00 is 255. Extend the
    // sign to 64 bits.
    std::uint64_t value = 0;
    std::memcpy(&value, digits.data(), digits.size());
    const bool negative = !digits.empty() && (digits.back() & '\x80') != 0;
    if (negative && digits.size() < 8) value |= ~std::uint64_t{0} << (8 * digits.size());
    push(DataTree::integer(static_cast<std::int64_t>(value)));
  }

  std::optional<std::uint64_t> decimal(std::string_view text) {
    std::uint64_t value = 0;
    for (const char c : text) {
      if (c < '0' || c > '9' || value > UINT64_MAX / 20) {  // no digit, or an overflow soon
        fail("the pickle holds a malformed number");
        return std::nullopt;
      }
      value = value * 10 + static_cast<std::uint64_t>(c - '0');
    }
    return value;
  }
  std::optional<std::uint64_t> take_decimal() {
    std::string_view text;
    return take_line(text) ? decimal(text) : std::nullopt;
  }
  void take_decimal_put() {
    if (const auto index = take_decimal()) put(*index);
  }
  void take_decimal_get() {
    if (const auto index = take_decimal()) get(*index);
  }
  void push_decimal() {
    std::string_view text;
    if (!take_line(text)) return;
    // Protocol 0 writes False and True as I00 and I01, and long integers as L12L.
    if (text == "00" || text == "01") return push(DataTree::boolean(text == "01"));
    if (text.ends_with('L')) text.remove_suffix(1);
    const bool negative = text.starts_with('-');
    if (negative) text.remove_prefix(1);
    if (const auto value = decimal(text)) {
      const std::uint64_t magnitude = *value;
      push(DataTree::integer(static_cast<std::int64_t>(negative ? 0 - magnitude : magnitude)));
    }
  }

  // Protocol 0. No recorder writes it, so the value does not matter.
  void push_text_float() {
    if (std::string_view text; take_line(text)) push(DataTree::none());
  }
  void push_binary_float() {
    double unused{};
    if (take(unused)) push(DataTree::real());
  }

  // The fast path: executes the few opcodes that make up nearly all of a dump, as long as they
  // follow each other and nothing is wrong. The machine's state is in local variables, which the
  // compiler keeps in registers. Stops before any other opcode, which step() executes.
  void skip_ahead() {
    constexpr std::ptrdiff_t kLongest = 10;  // bytes of one of these opcodes
    const char* at = at_;
    // Before `last`, no opcode of these can reach beyond the end, so none has to check.
    const char* const last = end_ - at_ < kLongest ? at_ : end_ - kLongest;
    Value* const base = stack_.data();
    Value* const full = base + stack_.size();
    Value* top = base + top_;
    const Value* memo = memo_.data();
    std::size_t memoized = memo_.size();
    // Comparisons, the frequent opcodes first, instead of a jump table (CMakeLists.txt says why).
    while (at < last && top != full) {
      const auto opcode = static_cast<unsigned char>(*at);
      if (opcode == kBinGet) {
        const auto index = static_cast<unsigned char>(at[1]);
        if (index >= memoized) break;
        *top++ = memo[index];
        at += 2;
      } else if (opcode == kMark) {
        marks_.push_back(static_cast<std::size_t>(top - base));
        ++at;
      } else if (opcode == kEmptyList) {
        *top++ = tree().list();
        ++at;
        if (*at == kMark) {  // nearly always
          marks_.push_back(static_cast<std::size_t>(top - base));
          ++at;
        }
      } else if (opcode == kAppends || opcode == kSetItems) {
        top_ = static_cast<std::size_t>(top - base);
        const std::size_t marks = marks_.size();
        add_to_container(opcode == kAppends ? ValueKind::list : ValueKind::dict);
        if (stopped_) break;
        top = base + top_;
        ++at;
        if (marks == dict_marks_ && opcode == kSetItems) learn_dict(at, top[-1]);
      } else if (opcode == kBinInt2) {
        *top++ = DataTree::integer(read_as<std::uint16_t>(at + 1));
        at += 3;
      } else if (opcode == kBinInt) {
        *top++ = DataTree::integer(read_as<std::int32_t>(at + 1));
        at += 5;
      } else if (opcode == kBinInt1) {
        *top++ = DataTree::integer(read_as<std::uint8_t>(at + 1));
        at += 2;
      } else if (opcode == kLong1 && at[1] == sizeof(std::int64_t)) {
        *top++ = DataTree::integer(read_as<std::int64_t>(at + 2));
        at += 10;
      } else if (opcode == kNone) {
        *top++ = DataTree::none();
        ++at;
      } else if (opcode == kNewTrue || opcode == kNewFalse) {
        *top++ = DataTree::boolean(opcode == kNewTrue);
        ++at;
      } else if (opcode == kTuple2) {  // a process group: its name and what it is
        top_ = static_cast<std::size_t>(top - base);
        collect_tuple(2);
        if (stopped_) break;
        top = base + top_;
        ++at;
      } else if (opcode == kEmptyDict) {
        std::string_view rest(at, static_cast<std::size_t>(end_ - at));
        if (const auto dict = repeated_.take(rest)) {
          *top++ = *dict;
          at = rest.data();
          continue;
        }
        dict_begin_ = at;
        dict_marks_ = marks_.size() + 1;
        *top++ = tree().dict();
        ++at;
      } else if (opcode == kLongBinPut || opcode == kMemoize) {  // Python: after each container
        top_ = static_cast<std::size_t>(top - base);
        put(opcode == kMemoize ? memoized : read_as<std::uint32_t>(at + 1));
        if (stopped_) break;
        memo = memo_.data();
        memoized = memo_.size();
        at += opcode == kMemoize ? 1 : 1 + sizeof(std::uint32_t);
      } else if (opcode == kAppend) {  // Python: a list of one
        top_ = static_cast<std::size_t>(top - base);
        add_last(ValueKind::list, 1);
        if (stopped_) break;
        top = base + top_;
        ++at;
      } else {
        break;
      }
    }
    at_ = at;
    top_ = static_cast<std::size_t>(top - base);
  }
  // The dict that was begun last, which ends at `end`, may come again.
  void learn_dict(const char* end, const Value& dict) {
    repeated_.learn({dict_begin_, static_cast<std::size_t>(end - dict_begin_)}, dict);
    dict_marks_ = 0;
  }
  template <class Int>
  static Int read_as(const char* at) {
    Int out{};
    std::memcpy(&out, at, sizeof(Int));
    return out;
  }

  // What an opcode does. The opcode itself has been read; its argument has not.
  using Action = void (*)(Machine&);

  // By opcode; null: step() refuses it.
  static constexpr std::array<Action, 256> actions() {
    std::array<Action, 256> out{};
    out[kProto] = [](Machine& m) { m.skip<std::uint8_t>(); };
    out[kFrame] = [](Machine& m) { m.skip<std::uint64_t>(); };
    out[kStop] = [](Machine& m) { m.stop(); };

    out[kMark] = [](Machine& m) { m.marks_.push_back(m.top_); };
    out[kPop] = [](Machine& m) { m.pop(); };
    out[kPopMark] = [](Machine& m) { m.pop_to_mark(); };
    out[kDup] = [](Machine& m) { m.duplicate(); };

    out[kNone] = [](Machine& m) { m.push(DataTree::none()); };
    out[kNewTrue] = [](Machine& m) { m.push(DataTree::boolean(true)); };
    out[kNewFalse] = [](Machine& m) { m.push(DataTree::boolean(false)); };
    out[kInt] = out[kLong] = [](Machine& m) { m.push_decimal(); };
    out[kFloat] = [](Machine& m) { m.push_text_float(); };
    out[kBinInt] = [](Machine& m) { m.push_integer<std::int32_t>(); };
    out[kBinInt1] = [](Machine& m) { m.push_integer<std::uint8_t>(); };
    out[kBinInt2] = [](Machine& m) { m.push_integer<std::uint16_t>(); };
    out[kLong1] = [](Machine& m) { m.push_long<std::uint8_t>(); };
    out[kLong4] = [](Machine& m) { m.push_long<std::uint32_t>(); };
    out[kBinFloat] = [](Machine& m) { m.push_binary_float(); };
    out[kShortBinString] = [](Machine& m) { m.push_string<std::uint8_t>(); };
    out[kBinString] = [](Machine& m) { m.push_string<std::uint32_t>(); };
    out[kShortBinUnicode] = out[kShortBinString];
    out[kBinUnicode] = out[kBinString];
    out[kBinUnicode8] = [](Machine& m) { m.push_string<std::uint64_t>(); };
    out[kShortBinBytes] = [](Machine& m) { m.push_nothing<std::uint8_t>(); };
    out[kBinBytes] = [](Machine& m) { m.push_nothing<std::uint32_t>(); };
    out[kBinBytes8] = out[kByteArray8] = [](Machine& m) { m.push_nothing<std::uint64_t>(); };

    out[kEmptyList] = [](Machine& m) { m.push(m.tree().list()); };
    out[kEmptyTuple] = out[kEmptySet] = out[kEmptyList];
    out[kEmptyDict] = [](Machine& m) { m.push(m.tree().dict()); };
    out[kList] = [](Machine& m) { m.collect_from_mark(ValueKind::list); };
    out[kTuple] = out[kFrozenSet] = out[kList];
    out[kDict] = [](Machine& m) { m.collect_from_mark(ValueKind::dict); };
    out[kTuple1] = [](Machine& m) { m.collect_tuple(1); };
    out[kTuple2] = [](Machine& m) { m.collect_tuple(2); };
    out[kTuple3] = [](Machine& m) { m.collect_tuple(3); };
    out[kAppends] = [](Machine& m) { m.add_to_container(ValueKind::list); };
    out[kAddItems] = out[kAppends];
    out[kSetItems] = [](Machine& m) { m.add_to_container(ValueKind::dict); };
    out[kAppend] = [](Machine& m) { m.add_last(ValueKind::list, 1); };
    out[kSetItem] = [](Machine& m) { m.add_last(ValueKind::dict, 2); };

    out[kPut] = [](Machine& m) { m.take_decimal_put(); };
    out[kBinPut] = [](Machine& m) { m.take_put<std::uint8_t>(); };
    out[kLongBinPut] = [](Machine& m) { m.take_put<std::uint32_t>(); };
    out[kMemoize] = [](Machine& m) { m.put(m.memo_.size()); };
    out[kGet] = [](Machine& m) { m.take_decimal_get(); };
    out[kBinGet] = [](Machine& m) { m.take_get<std::uint8_t>(); };
    out[kLongBinGet] = [](Machine& m) { m.take_get<std::uint32_t>(); };
    return out;
  }

  void step(unsigned char opcode) {
    static constexpr std::array<Action, 256> kActions = actions();
    if (const Action act = kActions[opcode]; act != nullptr)
      act(*this);
    else
      refuse(opcode);
  }

  // Closes the containers that were open where the pickle was cut off, from the inside out, so that
  // everything complete by then is in the tree: the entries before the cut are kept. The one at the
  // cut is not: without its last keys, a call that completed looks like one that is open.
  void salvage() {
    drop_dict_without_keys();
    while (!marks_.empty()) {
      const std::size_t from = marks_.back();
      marks_.pop_back();
      const bool held = from > floor();
      const bool is_entry = held && stack_[from - 1].is(ValueKind::dict) && !marks_.empty() &&
                            marks_.back() > 0 && stack_[marks_.back() - 1].is(ValueKind::list);
      if (held && !is_entry) {
        const Value& below = stack_[from - 1];
        std::span<const Value> items = above(from);
        if (below.is(ValueKind::dict)) items = items.first(items.size() / 2 * 2);
        if (below.is(ValueKind::dict) || below.is(ValueKind::list)) tree().append(below, items);
      }
      top_ = is_entry ? from - 1 : from;
    }
    if (top_ > 0) tree().root = stack_[0];
  }

  // The pickle was cut off between the beginning of a list's next dict and the dict's first key.
  void drop_dict_without_keys() {
    if (marks_.empty() || marks_.back() == 0 || top_ <= marks_.back()) return;
    const Value& last = stack_[top_ - 1];
    if (stack_[marks_.back() - 1].is(ValueKind::list) && last.is(ValueKind::dict) &&
        tree().pairs(last).empty()) {
      --top_;
    }
  }

  std::string_view bytes_;
  const std::string& file_;
  const char* at_;
  const char* end_;
  bool stopped_ = false;
  std::string problem_;
  std::string_view refused_;  // the opcode's name
  Pickle out_;
  // About what dumps have, rounded towards more memory.
  static constexpr std::size_t kBytesPerValue = 2, kBytesPerContainer = 16;
  std::vector<Value> stack_ = std::vector<Value>(256);
  std::size_t top_ = 0;  // elements on the stack
  std::vector<std::size_t> marks_;
  std::vector<Value> memo_;
  RepeatedDicts repeated_{out_.tree};
  const char* dict_begin_ = nullptr;  // of the dict that was begun last,
  std::size_t dict_marks_ = 0;        // and the marks within it; 0: it has ended
};

}  // namespace

bool looks_like_pickle(std::string_view bytes) {
  return bytes.size() >= 2 && bytes[0] == '\x80' && bytes[1] >= 2 && bytes[1] <= 5;
}

Result<Pickle> read_pickle(std::string_view bytes, const std::string& file) {
  if (!looks_like_pickle(bytes)) return Error{"not a pickle", {file}, ""};
  return Machine(bytes, file).run();
}

}  // namespace lockstep::trace
