#include "trace/formats/flight_recorder/repeated_dicts.h"

#include <cstring>
#include <functional>
#include <utility>

#include "trace/formats/flight_recorder/pickle_opcodes.h"

namespace lockstep::trace {

namespace {

using Value = DataTree::Value;

template <class Int>
std::int64_t integer_at(const char* at) {
  Int out{};
  std::memcpy(&out, at, sizeof(Int));
  return out;
}

// As the opcodes of that many bytes mean them.
std::int64_t integer_at(const char* at, std::size_t size) {
  switch (size) {
    case sizeof(std::uint8_t):
      return integer_at<std::uint8_t>(at);
    case sizeof(std::uint16_t):
      return integer_at<std::uint16_t>(at);
    case sizeof(std::int32_t):
      return integer_at<std::int32_t>(at);
    default:
      return integer_at<std::int64_t>(at);
  }
}

// Calls `each` with every part of `bytes` outside of the holes, as offset and size, until it
// returns false. Whether it never did.
template <class Holes, class Each>
bool all_between(const Holes& holes, std::size_t size, const Each& each) {
  std::size_t from = 0;
  for (const auto& hole : holes) {
    if (!each(from, hole.begin - from)) return false;
    from = hole.begin + hole.size;
  }
  return each(from, size - from);
}

}  // namespace

std::optional<Value> RepeatedDicts::take(std::string_view& rest) {
  if (last_ == kNobody) return std::nullopt;
  for (const std::uint32_t next : known_[last_].next) {
    if (next == kNobody || !begins(rest, known_[next])) continue;
    Known& known = known_[next];
    for (const Hole& hole : known.holes) {
      known.values[hole.place] = DataTree::integer(integer_at(&rest[hole.begin], hole.size));
    }
    rest.remove_prefix(known.bytes.size());
    last_ = next;
    const Value dict = tree_.dict();
    tree_.append(dict, known.values);
    return dict;
  }
  return std::nullopt;
}

void RepeatedDicts::learn(std::string_view bytes, const Value& dict) {
  // More different calls than a step has: comparing would cost more than it saves.
  constexpr std::size_t kMostKnown = 2048;
  const std::uint32_t before = std::exchange(last_, kNobody);
  if (known_.size() == kMostKnown) return;
  const auto values = tree_.pairs(dict);
  std::vector<Hole> holes = holes_in(bytes, values.size());
  if (holes.empty()) return;
  last_ = number_of({bytes, std::move(holes), {values.begin(), values.end()}});
  if (before == kNobody) return;
  auto& next = known_[before].next;
  if (next[0] != last_) next = {last_, next[0]};
}

void RepeatedDicts::forget() {
  known_.clear();
  by_hash_.clear();
  last_ = kNobody;
}

// The integers among the dict's own values, of which it has `places`, keys included. Empty also
// where the bytes are not those of one dict by itself, made of new containers, constants and what
// was memoized before.
std::vector<RepeatedDicts::Hole> RepeatedDicts::holes_in(std::string_view bytes,
                                                         std::size_t places) {
  using enum pickle_opcodes::PickleOpcode;
  std::vector<Hole> holes;
  std::size_t depth = 0;    // marks
  std::uint32_t place = 0;  // of the next of the dict's own values
  bool new_container = false;
  for (std::size_t at = 0; at < bytes.size();) {
    const auto opcode = static_cast<unsigned char>(bytes[at]);
    const bool own = depth == 1;
    const bool was_new_container = std::exchange(new_container, false);
    std::uint32_t size = 0;  // of an integer
    std::size_t length = 1;  // of the opcode with its argument
    if (opcode == kMark) {
      // Otherwise it would add to a container that others see, too.
      if (!was_new_container) return {};
      ++depth;
    } else if (opcode == kAppends || opcode == kSetItems) {
      if (depth == 0) return {};
      if (--depth == 0)
        return at + 1 == bytes.size() && place == places ? holes : std::vector<Hole>{};
    } else if (opcode == kEmptyList || (opcode == kEmptyDict && at == 0)) {
      new_container = true;
      place += own ? 1 : 0;
    } else if (opcode == kTuple2) {
      if (own && place < 2) return {};
      place -= own ? 1 : 0;
      // What is now in the tuple is no longer the dict's own.
      while (own && !holes.empty() && holes.back().place + 1 >= place) holes.pop_back();
    } else {
      switch (opcode) {
        case kNone:
        case kNewTrue:
        case kNewFalse:
          break;
        case kBinGet:
          length = 2;
          break;
        case kLongBinGet:
          length = 5;
          break;
        case kBinInt1:
          size = sizeof(std::uint8_t);
          break;
        case kBinInt2:
          size = sizeof(std::uint16_t);
          break;
        case kBinInt:
          size = sizeof(std::int32_t);
          break;
        case kLong1:
          // After its size, which is compared.
          if (at + 1 >= bytes.size() || bytes[at + 1] != sizeof(std::int64_t)) return {};
          length = 2;
          size = sizeof(std::int64_t);
          break;
        default:
          return {};
      }
      if (own && size > 0) holes.push_back({static_cast<std::uint32_t>(at + length), size, place});
      place += own ? 1 : 0;
    }
    at += length + size;
  }
  return {};
}

bool RepeatedDicts::begins(std::string_view bytes, const Known& known) {
  return bytes.size() >= known.bytes.size() &&
         all_between(known.holes, known.bytes.size(), [&](std::size_t from, std::size_t size) {
           return std::memcmp(&bytes[from], &known.bytes[from], size) == 0;
         });
}

// The number of the known dict that differs in its integers only, or of this one, which is then
// known.
std::uint32_t RepeatedDicts::number_of(Known known) {
  std::size_t hash = 0;
  all_between(known.holes, known.bytes.size(), [&](std::size_t from, std::size_t size) {
    hash = 31 * hash + std::hash<std::string_view>{}(known.bytes.substr(from, size));
    return true;
  });
  const auto [begin, end] = by_hash_.equal_range(hash);
  for (auto i = begin; i != end; ++i) {
    const Known& other = known_[i->second];
    if (other.bytes.size() == known.bytes.size() && begins(known.bytes, other)) return i->second;
  }
  by_hash_.emplace(hash, static_cast<std::uint32_t>(known_.size()));
  known_.push_back(std::move(known));
  return static_cast<std::uint32_t>(known_.size() - 1);
}

}  // namespace lockstep::trace
