// Certificates in lines, for tests that tamper with them.
#pragma once

#include <sstream>
#include <string>
#include <vector>

#include "base/sha256.h"

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

// The text with a seal that fits in place of the last line, so that the seal is not what refuses
// it.
inline std::string sealed(std::vector<std::string> lines) {
  if (!lines.empty()) lines.pop_back();
  const std::string out = text_of(lines);
  return out + "end " + sha256(out) + "\n";
}

// Calls `refused(lines, what)` with every change of a line: left out, doubled, longer, and with
// each character exchanged.
template <class Refused>
void tamper_with_lines(const std::vector<std::string>& lines, Refused refused) {
  for (std::size_t i = 0; i + 1 < lines.size(); ++i) {
    std::vector<std::string> changed = lines;
    changed.erase(changed.begin() + static_cast<std::ptrdiff_t>(i));
    refused(changed, "without: " + lines[i]);
    changed = lines;
    changed.insert(changed.begin() + static_cast<std::ptrdiff_t>(i), lines[i]);
    refused(changed, "twice: " + lines[i]);
    for (std::size_t at = 0; at < lines[i].size(); ++at) {
      changed = lines;
      char& c = changed[i][at];
      c = c == '0' ? '1' : '0';
      refused(changed, changed[i] + " for " + lines[i]);
    }
    changed = lines;
    changed[i] += " more";
    refused(changed, changed[i]);
  }
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
