#include "runtime/launch/hanging_place.h"

#include <algorithm>
#include <cstddef>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/files/read_file.h"
#include "base/text.h"

namespace lockstep {

namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 20U;
constexpr std::size_t kInnermost = 3;  // what waits, and for what
constexpr std::size_t kOfProgram = 2;  // which part of the training called it

// "a::b" of "#3  a::b(int) from /lib/x.so"; empty: the frame has no name.
std::string function_of(std::string_view line) {
  line.remove_prefix(std::min(line.find(' '), line.size()));
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  if (line.starts_with("??")) return "";
  // Up to the arguments: the first parenthesis outside of "(anonymous namespace)" and operator().
  std::size_t end = line.find('(');
  for (std::string_view part : {"(anonymous namespace)", "()("}) {
    while (end != std::string_view::npos && line.substr(end).starts_with(part))
      end = line.find('(', end + part.size() - (part == "()(" ? 1 : 0));
  }
  std::string_view name = line.substr(0, end);
  while (name.ends_with(' ')) name.remove_suffix(1);
  return printable(name);
}

}  // namespace

std::string hanging_place(const std::string& stack_file) {
  const Result<std::string> text = read_file(stack_file, kMostBytes);
  if (!text) return "";
  std::vector<std::string> shown;
  std::size_t of_program = 0;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("(no stack: ")) return printable(line.substr(1, line.size() - 2));
    if (line.empty() && !shown.empty()) break;  // the next thread
    if (!line.starts_with('#')) continue;
    const std::string name = function_of(line);
    if (name.empty()) continue;
    const bool ours = name.find("lockstep::") != std::string::npos;
    if (shown.size() < kInnermost || (ours && of_program < kOfProgram)) {
      shown.push_back(name);
      of_program += ours ? 1 : 0;
    }
  }
  std::string out;
  for (const std::string& name : shown) out += (out.empty() ? "" : " < ") + name;
  return out;
}

}  // namespace lockstep
