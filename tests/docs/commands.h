// The commands that the documentation shows: finding them in Markdown, and holding what they say to
// the help texts of the programs that they call.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::docs {

// A line of an indented or fenced block that calls `lockstep`, `lockstep-worker` or a file of
// scripts/; lines that end in a backslash are one. Or the block after a line that says "save as
// `FILE`", which is that file.
struct Command {
  std::string page;  // "docs/watch.md"
  int line = 0;
  std::string text;  // without its comment
  std::string file;  // text is what it holds; else empty
  int status = 0;    // a comment "# exit status 1" sets another
  bool whole = true;  // else it is a part of what the reader types: sh -c '…', $(…), mpirun -n 2 …

  // It stands for many commands: a word of it is DIR, FILE, PATH…, or in brackets.
  bool is_synopsis() const;
  bool is_file() const { return !file.empty(); }
};
std::vector<Command> commands_of(const std::string& page, const std::string& markdown);

// What a command prints, as a page shows it: the lines of the indented blocks without commands that
// follow it, without the indentation and empty lines.
struct Excerpt {
  Command command;
  std::vector<std::string> lines;
};
std::vector<Excerpt> excerpts_of(const std::string& page, const std::string& markdown);

// As a shell would: by blanks outside of quotes, which are left out.
std::vector<std::string> words_of(std::string_view command);

// What of it the help texts do not know: "--foo: not an option of `lockstep verify`"; empty:
// nothing. `help` gives what a program prints with --help after the arguments; empty: there is no
// such one.
using Help = std::function<std::string(const std::vector<std::string>& program_and_commands)>;
std::string unknown_in(const Command& command, const Help& help);

}  // namespace lockstep::docs
