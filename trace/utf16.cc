#include "trace/utf16.h"

#include <cstddef>
#include <iterator>

#include <boost/locale/utf.hpp>

namespace lockstep::trace {

namespace {

namespace utf = boost::locale::utf;

// Goes through bytes as the units of UTF-16.
struct Utf16Units {
  const char* at;
  bool big_endian;

  char16_t operator*() const {
    const auto first = static_cast<unsigned char>(at[0]);
    const auto second = static_cast<unsigned char>(at[1]);
    return static_cast<char16_t>(big_endian ? first << 8U | second : second << 8U | first);
  }
  Utf16Units operator++(int) {
    const Utf16Units before = *this;
    at += 2;
    return before;
  }
  bool operator==(const Utf16Units& other) const { return at == other.at; }
};

}  // namespace

std::optional<std::string> utf8_of_utf16(std::string_view bytes) {
  const bool big_endian = bytes.starts_with("\xFE\xFF");
  if (!big_endian && !bytes.starts_with("\xFF\xFE")) return std::nullopt;
  bytes.remove_prefix(2);
  const std::size_t whole = bytes.size() / 2 * 2;
  const Utf16Units end{bytes.data() + whole, big_endian};
  std::string out;
  out.reserve(whole / 2);
  for (Utf16Units unit{bytes.data(), big_endian}; !(unit == end);) {
    const utf::code_point point = utf::utf_traits<char16_t>::decode(unit, end);
    if (point == utf::incomplete) break;
    constexpr utf::code_point kReplacement = 0xFFFD;
    utf::utf_traits<char>::encode(point == utf::illegal ? kReplacement : point,
                                  std::back_inserter(out));
  }
  return out;
}

}  // namespace lockstep::trace
