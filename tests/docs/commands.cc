#include "tests/docs/commands.h"

#include <algorithm>
#include <cctype>
#include <regex>
#include <sstream>
#include <utility>

#include "tests/docs/reference.h"

namespace lockstep::docs {
namespace {

constexpr std::string_view kIndent = "    ";

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\\')) text.remove_suffix(1);
  return text;
}

// Where a comment begins: a # after a blank, outside of quotes.
std::size_t comment_in(std::string_view text) {
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (c == '#' && i > 0 && text[i - 1] == ' ') {
      return i;
    }
  }
  return text.size();
}

const std::regex& program() {
  static const std::regex pattern(
      R"((?:build/[a-z]+/)?lockstep(?:-worker)?(?= |$)|scripts/[a-z_-]+(?![a-z_./-]))");
  return pattern;
}

// The commands in a line that a shell reads; nothing where it is no such line.
void add_commands(const std::string& line, Command at, std::vector<Command>& out) {
  const std::size_t comment = comment_in(line);
  constexpr std::string_view kStatus = "# exit status ";
  if (comment < line.size() && line.substr(comment).starts_with(kStatus))
    at.status = std::stoi(line.substr(comment + kStatus.size()));
  const std::string shell(trimmed(std::string_view(line).substr(0, comment)));
  // Diagrams and prose name programs, too.
  static const std::regex kBegins(
      R"(^(?:[A-Za-z_]+=\S* *)*(?:(?:build/\S+/)?lockstep(?:-worker)? |scripts/|python3? |torchrun |mpirun |srun |sh -c|time |for |do |so=))");
  if (!std::regex_search(shell, kBegins) || shell.find("─") != std::string::npos ||
      shell.find("▼") != std::string::npos)
    return;
  std::smatch found;
  std::size_t from = 0;
  for (std::string rest = shell; std::regex_search(rest, found, program());
       rest = shell.substr(from)) {
    const std::size_t begin = from + static_cast<std::size_t>(found.position());
    from = begin + static_cast<std::size_t>(found.length());
    const char before = begin == 0 ? ' ' : shell[begin - 1];
    if (std::string_view(" '(=").find(before) == std::string_view::npos) continue;
    at.whole = begin == 0;
    const char* const until = before == '\'' ? "'" : before == '(' ? ")" : "";
    const std::size_t end = *until == 0 ? std::string::npos : shell.find(until, begin);
    at.text = trimmed(
        std::string_view(shell).substr(begin, end == std::string::npos ? end : end - begin));
    out.push_back(at);
    if (at.whole) return;
  }
}

}  // namespace

bool Command::is_synopsis() const {
  if (text.find("…") != std::string::npos || text.find('[') != std::string::npos) return true;
  for (std::string word : words_of(text)) {
    while (!word.empty() && word.back() == '.') word.pop_back();
    if (word.size() > 1 && std::all_of(word.begin(), word.end(), [](char c) {
          return std::isupper(static_cast<unsigned char>(c)) != 0 || c == '_';
        }))
      return true;
  }
  return false;
}

std::vector<Command> commands_of(const std::string& page, const std::string& markdown) {
  std::vector<Command> out;
  std::istringstream lines(markdown);
  bool fenced = false, in_file = false;
  std::string joined, saved;
  int number = 0, first = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (trimmed(line).starts_with("```")) {
      fenced = !fenced;
      continue;
    }
    if (!fenced && !line.starts_with(kIndent)) {
      joined.clear();
      in_file = false;
      constexpr std::string_view kSave = "ave as `";
      if (const std::size_t at = line.find(kSave); at != std::string::npos) {
        const std::size_t begin = at + kSave.size();
        saved = line.substr(begin, line.find('`', begin) - begin);
      }
      continue;
    }
    if (!saved.empty()) {
      out.push_back({page, number, "", std::exchange(saved, ""), 0, true});
      in_file = true;
    }
    if (in_file) {
      out.back().text += line.substr(fenced ? 0 : kIndent.size()) + "\n";
      continue;
    }
    if (joined.empty()) first = number;
    joined += (joined.empty() ? "" : " ") + std::string(trimmed(line));
    if (line.ends_with("\\")) continue;
    add_commands(joined, {page, first, "", "", 0, true}, out);
    joined.clear();
  }
  return out;
}

std::vector<Excerpt> excerpts_of(const std::string& page, const std::string& markdown) {
  const std::vector<Command> commands = commands_of(page, markdown);
  std::vector<Excerpt> out;
  std::vector<std::string> block;
  std::size_t next = 0;  // command
  std::size_t first_of_block = 0;
  int number = 0;
  const auto end_block = [&] {
    const bool shows_output = next == first_of_block && next > 0;
    if (shows_output && !block.empty()) {
      const Command& command = commands[next - 1];
      if (out.empty() || out.back().command.line != command.line) out.push_back({command, {}});
      out.back().lines.insert(out.back().lines.end(), block.begin(), block.end());
    }
    block.clear();
    first_of_block = next;
  };
  std::istringstream lines(markdown);
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (!line.starts_with(kIndent)) {
      end_block();
      continue;
    }
    while (next < commands.size() && commands[next].line <= number) ++next;
    block.push_back(line.substr(kIndent.size()));
  }
  end_block();
  return out;
}

std::vector<std::string> words_of(std::string_view command) {
  std::vector<std::string> out;
  std::string word;
  char quote = 0;
  bool any = false;
  for (const char c : command) {
    if (quote != 0 && c == quote) {
      quote = 0;
    } else if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
      any = true;
    } else if (quote == 0 && c == ' ') {
      if (any || !word.empty()) out.push_back(word);
      word.clear();
      any = false;
    } else {
      word += c;
    }
  }
  if (any || !word.empty()) out.push_back(word);
  return out;
}

std::string unknown_in(const Command& command, const Help& help) {
  const std::vector<std::string> words = words_of(command.text);
  std::vector<std::string> called = {words.front()};
  std::string text = help(called);
  if (text.empty()) return words.front() + ": there is no such program";
  std::size_t next = 1;
  // lockstep simulate table …: as deep as the words name commands.
  for (; next < words.size(); ++next) {
    const std::vector<std::string> known = subcommands_of(text);
    if (known.empty()) break;
    if (std::find(known.begin(), known.end(), words[next]) == known.end()) {
      const bool word = std::all_of(words[next].begin(), words[next].end(), [](char c) {
        return std::islower(static_cast<unsigned char>(c)) != 0 || c == '-';
      });
      if (called.size() == 1 && word && words[next][0] != '-')
        return "\"" + words[next] + "\": no command of `" + called.front() + "`";
      break;
    }
    called.push_back(words[next]);
    text = help(called);
  }
  for (; next < words.size(); ++next) {
    std::string word = words[next];
    if (word == "&&" || word == "|" || word == "||" || word == ";" || word == "--") break;
    while (!word.empty() && word.front() == '[') word.erase(0, 1);
    word = word.substr(0, word.find_first_of("=]|"));
    const bool option = word.size() > 1 && word[0] == '-' &&
                        (word[1] == '-' || std::isalpha(static_cast<unsigned char>(word[1])) != 0);
    if (!option) continue;
    const std::regex known("(^|[^a-zA-Z0-9-])" + word + "($|[^a-zA-Z0-9-])");
    if (std::regex_search(text, known)) continue;
    std::string name;
    for (const std::string& part : called) name += (name.empty() ? "" : " ") + part;
    return word + ": not an option of `" + name + "`";
  }
  return {};
}

}  // namespace lockstep::docs
