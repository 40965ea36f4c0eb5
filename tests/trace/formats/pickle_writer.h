// Writes the pickles of tests: protocol 2, as PyTorch's pickler does (a mark before items, strings
// memoized), without any library.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace lockstep::trace {

class PickleWriter {
 public:
  PickleWriter& begin_dict() { return raw("}("); }
  PickleWriter& end_dict() { return raw("u"); }
  PickleWriter& begin_list() { return raw("]("); }
  PickleWriter& end_list() { return raw("e"); }
  PickleWriter& pair(std::string_view a, std::string_view b) { return text(a).text(b).raw("\x86"); }
  PickleWriter& none() { return raw("N"); }
  PickleWriter& boolean(bool b) { return raw(b ? "\x88" : "\x89"); }
  PickleWriter& integer(std::int64_t i) {
    if (i >= 0 && i < 256) {
      out_ += 'K';
      out_ += static_cast<char>(i);
      return *this;
    }
    if (i >= 0 && i < 65536) {
      const auto small = static_cast<std::uint16_t>(i);
      out_ += 'M';
      return bytes(&small, sizeof small);
    }
    if (i >= INT32_MIN && i <= INT32_MAX) {
      const auto medium = static_cast<std::int32_t>(i);
      out_ += 'J';
      return bytes(&medium, sizeof medium);
    }
    out_ += "\x8a\x08";
    return bytes(&i, sizeof i);
  }
  PickleWriter& text(std::string_view s) {
    const auto known = memo_.find(s);
    if (known != memo_.end()) return get(known->second);
    out_ += 'X';
    const auto size = static_cast<std::uint32_t>(s.size());
    bytes(&size, sizeof size);
    out_ += s;
    memo_.emplace(s, memoize());
    return *this;
  }
  // Remembers the value written last; `get` of what it returns writes that value again.
  std::uint32_t memoize() {
    put('q', 'r', next_memo_);
    return next_memo_++;
  }
  PickleWriter& get(std::uint32_t number) {
    put('h', 'j', number);
    return *this;
  }
  PickleWriter& raw(std::string_view opcodes) {
    out_ += opcodes;
    return *this;
  }
  std::string finish() { return out_ + "."; }

 private:
  // The short opcode takes one byte, the long one four.
  void put(char short_opcode, char long_opcode, std::uint32_t number) {
    out_ += number < 256 ? short_opcode : long_opcode;
    bytes(&number, number < 256 ? 1 : sizeof number);
  }
  PickleWriter& bytes(const void* data, std::size_t size) {
    out_.append(static_cast<const char*>(data), size);
    return *this;
  }
  std::string out_ = std::string("\x80\x02", 2);
  std::map<std::string, std::uint32_t, std::less<>> memo_;
  std::uint32_t next_memo_ = 0;
};

}  // namespace lockstep::trace
