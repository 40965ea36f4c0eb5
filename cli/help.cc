// How `--help` looks: an option's name and value, its description beside or below them, at most 80
// columns; and the examples of each command in its footer.
#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <string_view>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/numbers.h"
#include "base/tables.h"
#include "base/text.h"
#include "cli/program.h"

namespace lockstep::cli {
namespace {

constexpr std::size_t kNameColumn = 26;  // where descriptions begin

// What stands for a value: ours ("FILE", "error|warning"), or of CLI11's own only what a person can
// use: "INT:INT in [1 - 100]" is N, "TEXT:{gloo,nccl}" is gloo|nccl, TEXT is VALUE.
std::string value_name(const std::string& type) {
  const std::size_t colon = type.find(':');
  const std::string name = type.substr(0, colon);
  if (colon != std::string::npos && type.compare(colon, 2, ":{") == 0 && type.back() == '}') {
    std::string out = type.substr(colon + 2, type.size() - colon - 3);
    std::replace(out.begin(), out.end(), ',', '|');
    return out;
  }
  if (name == "INT" || name == "UINT" || name == "FLOAT") return "N";
  return name == "TEXT" ? "VALUE" : name;
}

class HelpLayout : public CLI::Formatter {
 public:
  explicit HelpLayout(std::size_t columns) : columns_(columns) {
    column_width(kNameColumn);
    label("Positionals", "Arguments");
    label("SUBCOMMAND", "COMMAND");
  }

  // "-o, --output"; CLI11 shows a flag's optional value as "--ci{auto}".
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    if (is_positional) return option->get_name(true, false);
    std::string out;
    for (const std::string& name : option->get_snames()) out += (out.empty() ? "-" : ", -") + name;
    // Long names stand below each other, with a short one or without.
    if (out.empty() && !option->get_lnames().empty()) out = "    ";
    for (const std::string& name : option->get_lnames()) {
      if (!out.ends_with(' ')) out += ", ";
      out += fmt::format("--{}", name);
    }
    return out;
  }

  std::string make_option_opts(const CLI::Option* option) const override {
    std::string out;
    const bool takes_value = option->get_type_size() != 0;
    if (takes_value && !option->get_type_name().empty() && !option->get_positional())
      out += fmt::format(" {}", value_name(option->get_type_name()));
    // "PATH...": several may follow.
    if (option->get_positional() && option->get_expected_max() > 1) out += "...";
    return out;
  }

  std::string make_option_desc(const CLI::Option* option) const override {
    std::string text = option->get_description();
    std::replace(text.begin(), text.end(), '\n', ' ');
    if (!option->get_default_str().empty())
      text += fmt::format("; default: {}", option->get_default_str());
    text += names("; needs ", option->get_needs());
    text += names("; not with ", option->get_excludes());
    return text;
  }

  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    return entry(make_option_name(option, is_positional) + make_option_opts(option),
                 make_option_desc(option));
  }

  std::string make_description(const CLI::App* app) const override {
    return fmt::format("{}\n", wrap(app->get_description(), columns_));
  }

  std::string make_subcommand(const CLI::App* command) const override {
    return entry(command->get_name(), command->get_description());
  }

  // A group of options, one of them required: CLI11 takes it for a command without a name.
  std::string make_expanded(const CLI::App* group) const override {
    return fmt::format("\n{}:\n{}", group->get_group(), options_of(group));
  }

  // Footers are written for 80 columns. In fewer, prose is filled again; commands stay as they are,
  // to be copied.
  std::string make_footer(const CLI::App* app) const override {
    constexpr std::size_t kWritten = 80;
    const std::string text = CLI::Formatter::make_footer(app);
    return columns_ < kWritten ? filled(text) : text;
  }

 private:
  // A name and its text, in their columns; below each other where the name is too long.
  std::string entry(const std::string& name, const std::string& text) const {
    std::string out = fmt::format("  {}", name);
    if (columns_of(out) + 2 > kNameColumn) out += fmt::format("\n{:{}}", "", kNameColumn);
    return fmt::format("{}{}\n", pad_right(out, kNameColumn),
                       wrap(text, columns_, kNameColumn, kNameColumn));
  }

  std::string options_of(const CLI::App* group) const {
    std::string out;
    for (const CLI::Option* option : group->get_options())
      if (option != group->get_help_ptr()) out += make_option(option, false);
    return out;
  }

  std::string filled(const std::string& text) const {
    std::string out, paragraph;
    std::size_t margin = 0;  // of the paragraph
    const auto flush = [&] {
      if (!paragraph.empty())
        out += fmt::format("{}{}\n", std::string(margin, ' '),
                           wrap(paragraph, columns_, margin, margin));
      paragraph.clear();
    };
    for (std::string_view rest = text; !rest.empty();) {
      const std::string_view line = take_until(rest, '\n');
      const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
      constexpr std::size_t kCommand = 4;  // the indentation of commands
      const std::size_t gap = line.find("  ", indent);
      if (!line.empty() && indent < kCommand && gap == std::string::npos) {
        if (indent != margin) flush();
        margin = indent;
        paragraph.append(paragraph.empty() ? "" : " ").append(line.substr(indent));
        // "… recognised by content:" ends the sentence: what follows is a list.
        if (line.ends_with(':')) flush();
        continue;
      }
      flush();
      if (indent >= kCommand || columns_of(line) <= columns_) {
        out += fmt::format("{}\n", line);
        continue;
      }
      // "  digest           digests of any of these": in the text's own column.
      const std::size_t text_begin = line.find_first_not_of(' ', gap);
      out += fmt::format("{}{}\n", line.substr(0, text_begin),
                         wrap(line.substr(text_begin), columns_, text_begin, text_begin));
    }
    flush();
    return out;
  }

  // CLI11 keeps them in the order of addresses, which differs from run to run.
  static std::string names(const char* label, const std::set<CLI::Option*>& options) {
    std::vector<std::string> sorted;
    sorted.reserve(options.size());
    for (const CLI::Option* option : options) sorted.push_back(option->get_name());
    std::sort(sorted.begin(), sorted.end());
    return sorted.empty() ? "" : label + join_and(sorted);
  }

  std::size_t columns_;
};

// The command that the arguments chose.
const CLI::App& chosen(const CLI::App& app) {
  const CLI::App* out = &app;
  while (!out->get_subcommands().empty()) out = out->get_subcommands().front();
  return *out;
}

std::string called(const CLI::App& app) {
  std::string out = "lockstep";
  // "lockstep calibrate check": the commands that the arguments chose, from the outside in.
  for (const CLI::App* at = &app; !at->get_subcommands().empty();) {
    at = at->get_subcommands().front();
    out += fmt::format(" {}", at->get_name());
  }
  return out;
}

void add_option_names(const CLI::App& app, std::vector<std::string>& out) {
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) out.push_back(fmt::format("--{}", name));
  for (const CLI::App* group :
       app.get_subcommands([](const CLI::App* sub) { return sub->get_name().empty(); }))
    add_option_names(*group, out);
}

// The option that an unknown one probably means. Empty: all are known, or none is similar.
std::string option_meant(const CLI::App& command, const std::vector<std::string>& arguments) {
  std::vector<std::string> known;
  add_option_names(command, known);
  for (const std::string& argument : arguments) {
    const std::string name = argument.substr(0, argument.find('='));
    if (!name.starts_with("--") || std::find(known.begin(), known.end(), name) != known.end())
      continue;
    // "--out" is the beginning of "--output", and not near enough to it by its letters.
    const auto begun = std::find_if(known.begin(), known.end(), [&](const std::string& option) {
      // "--f" begins too many to be a hint.
      return name.size() > 3 && option.starts_with(name);
    });
    const std::string meant = begun != known.end() ? *begun : nearest(name, known);
    if (!meant.empty()) return meant;
  }
  return {};
}

// The value that a refused one probably means, from CLI11's message "--fail-on: eror not in
// {error,warning}". Empty: another message, or none is similar.
std::string value_meant(const std::string& message) {
  constexpr std::string_view kNotIn = " not in {";
  const std::size_t list = message.find(kNotIn);
  if (list == std::string::npos || message.back() != '}') return {};
  // The word before " not in {": "eror".
  const std::size_t before = message.rfind(' ', list - 1);
  const std::size_t begin = before == std::string::npos ? 0 : before + 1;
  const std::string word = message.substr(begin, list - begin);
  const std::string_view values(message.data() + list + kNotIn.size(),
                                message.data() + message.size() - 1);
  const std::vector<std::string_view> known = split(values, ',');
  return nearest(word, std::vector<std::string>(known.begin(), known.end()));
}

// "0.050000" as "0.05", "3600.000000" as "3600".
std::string without_zeros(std::string number) {
  if (number.find('.') == std::string::npos) return number;
  number.erase(number.find_last_not_of('0') + 1);
  if (number.ends_with('.')) number.pop_back();
  return number;
}

// `verify x --json` and `verify x --sarif=s`: the options of other tools for the form of a report,
// which here is a value of --output. Empty: nothing of the kind was given.
std::string report_meant(const CLI::App& command, const std::vector<std::string>& arguments) {
  const CLI::Option* const output = command.get_option_no_throw("--output");
  if (output == nullptr) return {};
  constexpr std::array<std::string_view, 8> kForms = {"text",     "json",  "html",  "csv",
                                                      "markdown", "sarif", "junit", "gitlab"};
  for (const std::string& argument : arguments) {
    const std::string name = argument.substr(0, argument.find('='));
    for (const std::string_view form : kForms) {
      const bool has = output->get_description().find(form) != std::string::npos;
      if (has && name == fmt::format("--{}", form))
        return fmt::format("write --output {}=FILE, or {}=- for standard output", form, form);
    }
  }
  return {};
}

// Why an option that takes numbers does not take this text.
std::string_view wrong_number(const std::string& given) {
  if (!parse_number<double>(given)) return "not a number";
  const bool whole = given.find_first_not_of("-0123456789") == std::string::npos;
  return whole ? "out of range" : "not a whole number";
}

}  // namespace

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> out;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    if (!command->get_name().empty()) out.push_back(command->get_name());
  return out;
}

std::string usage_problem(const CLI::ParseError& error) {
  const std::string message = error.what();
  const auto after = [&](std::string_view words) -> std::optional<std::string> {
    const std::size_t at = message.find(words);
    if (at == std::string::npos) return std::nullopt;
    return message.substr(at + words.size());
  };
  // "The following argument was not expected: --outpt", "The following arguments were …: a b"
  if (const auto rest = after(" not expected: ")) {
    // CLI11 names them from last to first. An unknown option is followed by its value.
    std::vector<std::string> words;
    std::istringstream in(*rest);
    for (std::string word; in >> word;) words.insert(words.begin(), word);
    const auto option = std::find_if(words.begin(), words.end(),
                                     [](const std::string& word) { return word.starts_with("-"); });
    if (option != words.end()) return fmt::format("unknown option {}", *option);
    return fmt::format("unexpected argument {}", fmt::join(words, " "));
  }
  // "--format: 1 required TEXT missing"
  if (after(": 1 required ") && message.ends_with(" missing"))
    return fmt::format("{} needs a value", message.substr(0, message.find(':')));
  // "--machine: At Most 1 required but received 2"
  if (const auto given = after(": At Most 1 required but received "))
    return fmt::format("{} is given {} times, and takes one value",
                       message.substr(0, message.find(':')), *given);
  // "--fail-on: eror not in {error,warning}"
  if (const auto values = after(" not in {"); values && values->ends_with('}')) {
    const std::vector<std::string_view> known =
        split(std::string_view(*values).substr(0, values->size() - 1), ',');
    const std::string given = message.substr(0, message.size() - values->size() - 9);
    return fmt::format("{} is none of {}", given,
                       join_and(std::vector<std::string>(known.begin(), known.end())));
  }
  // "--interval: Value 0 not in range 0.050000 to 3600.000000"
  static const std::regex kRange(R"((.*): Value (.*) not in range (\S+) to (\S+))");
  if (std::smatch range; std::regex_match(message, range, kRange)) {
    const std::string given = range.str(2);
    const auto value = parse_number<double>(given), least = parse_number<double>(range.str(3)),
               most = parse_number<double>(range.str(4));
    if (!value || (least && most && *least <= *value && *value <= *most))
      return fmt::format("{}: {} is {}", range.str(1), given, wrong_number(given));
    return fmt::format("{}: {} is not between {} and {}", range.str(1), given,
                       without_zeros(range.str(3)), without_zeros(range.str(4)));
  }
  // "Could not convert: --stages = 4.5"
  static const std::regex kConvert(R"(Could not convert: (\S+) = (.*))");
  if (std::smatch value; std::regex_match(message, value, kConvert))
    return fmt::format("{}: {} is {}", value.str(1), value.str(2), wrong_number(value.str(2)));
  // "Exactly 1 option from [--list,--check] is required"
  if (const auto rest = after("Exactly 1 option from [")) {
    const std::vector<std::string_view> options =
        split(std::string_view(*rest).substr(0, rest->find(']')), ',');
    return fmt::format("one of {} is required",
                       join_and(std::vector<std::string>(options.begin(), options.end())));
  }
  return message;
}

void use_help_layout(CLI::App& app, std::size_t columns) {
  app.formatter(std::make_shared<HelpLayout>(columns));
}

std::string painted_help(const std::string& text, const Paint& paint) {
  if (!paint.on) return text;
  std::string out;
  bool listed = false;  // below a heading that lists names, rather than examples
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = take_until(rest, '\n');
    const bool heading = !line.empty() && line.front() != ' ' && line.ends_with(':');
    if (heading) listed = line != "Examples:";
    // Names begin in column 2, long ones without a short one in column 6; other lines continue a
    // text.
    const bool name = listed && line.starts_with("  ") && line.size() > 2 &&
                      (line[2] != ' ' || line.find_first_not_of(' ') == 6);
    if (heading) {
      out += paint.bold(line);
    } else if (name && line.find_first_not_of(' ') < kNameColumn) {
      // The name ends at two blanks, or fills the line.
      const std::size_t first = line.find_first_not_of(' ');
      const std::size_t stop = std::min(line.find("  ", first), line.size());
      out.append(line.substr(0, first))
          .append(paint.bold(line.substr(first, stop - first)))
          .append(line.substr(stop));
    } else {
      out += line;
    }
    out += '\n';
  }
  return out;
}

std::string usage_fix(const CLI::App& app, const CLI::ParseError& error,
                      const std::vector<std::string>& arguments) {
  const CLI::App& command = chosen(app);
  // The most certain guess first: a refused value names the values that it could be.
  if (const std::string value = value_meant(error.what()); !value.empty())
    return fmt::format("did you mean {}?", value);
  if (const std::string report = report_meant(command, arguments); !report.empty()) return report;
  if (const std::string option = option_meant(command, arguments); !option.empty())
    return fmt::format("did you mean {}? `{} --help` lists the options", option, called(app));
  // `lockstep simulate colective`: what is left over may be a command.
  const std::vector<std::string> commands = command_names(command);
  if (!commands.empty() && !arguments.empty()) {
    const auto word = std::find_if(arguments.begin(), arguments.end(), [&](const std::string& a) {
      return !a.starts_with("-") && called(app).find(fmt::format(" {}", a)) == std::string::npos;
    });
    const std::string meant = word == arguments.end() ? "" : nearest(*word, commands);
    if (!meant.empty()) return fmt::format("did you mean `{} {}`?", called(app), meant);
  }
  return fmt::format("see `{} --help`", called(app));
}

}  // namespace lockstep::cli
