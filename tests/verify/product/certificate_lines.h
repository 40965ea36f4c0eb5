// Texts in lines, for tests that tamper with them.
#pragma once

#include <sstream>
#include <string>
#include <vector>

namespace lockstep::verify {

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

inline std::string text_of(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += line + "\n";
  return out;
}

// Calls `refused(lines, line)` with line `i` in which `to` stands for the first `from`, where it
// has that.
template <class Refused>
void exchange_in_line(const std::vector<std::string>& lines, std::size_t i, const std::string& from,
                      const std::string& to, Refused refused) {
  const std::size_t at = lines[i].find(from);
  if (at == std::string::npos) return;
  std::vector<std::string> changed = lines;
  changed[i].replace(at, from.size(), to);
  refused(changed, changed[i]);
}

// Calls `use` with every beginning of the text, and with the text with each of its bits turned.
template <class Use>
void damage(const std::string& text, Use use) {
  for (std::size_t at = 0; at < text.size(); ++at) use(text.substr(0, at));
  for (std::size_t bit = 0; bit < 8 * text.size(); ++bit) {
    std::string damaged = text;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    use(damaged);
  }
}

}  // namespace lockstep::verify
