// Writes the pickles of tests: protocol 2, as PyTorch's pickler does (a mark before items, strings
// memoized), without any library.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>

namespace lockstep {

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
    out_ += "\x8a\x08";
    return bytes(&i, sizeof i);
  }
  PickleWriter& text(std::string_view s) {
    const auto [known, is_new] = memo_.try_emplace(std::string(s), memo_.size());
    const auto index = static_cast<std::uint32_t>(known->second);
    if (!is_new) {
      out_ += 'j';
      return bytes(&index, sizeof index);
    }
    out_ += 'X';
    const auto size = static_cast<std::uint32_t>(s.size());
    bytes(&size, sizeof size);
    out_ += s;
    out_ += 'r';
    return bytes(&index, sizeof index);
  }
  PickleWriter& raw(std::string_view opcodes) {
    out_ += opcodes;
    return *this;
  }
  std::string finish() { return out_ + "."; }

 private:
  PickleWriter& bytes(const void* data, std::size_t size) {
    out_.append(static_cast<const char*>(data), size);
    return *this;
  }
  std::string out_ = std::string("\x80\x02", 2);
  std::map<std::string, std::size_t> memo_;
};

}  // namespace lockstep
