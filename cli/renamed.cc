// Command lines of earlier releases: each is rewritten as the command that replaced it, with a note
// that says so.
#include <algorithm>
#include <initializer_list>
#include <utility>

#include <fmt/format.h>

#include "cli/program.h"

namespace lockstep::cli {
namespace {

using Words = std::vector<std::string>;

bool begins_with(const Words& arguments, std::initializer_list<const char*> words) {
  return arguments.size() >= words.size() &&
         std::equal(words.begin(), words.end(), arguments.begin());
}

bool has_any(const Words& arguments, std::initializer_list<const char*> options) {
  return std::any_of(arguments.begin(), arguments.end(), [&](const std::string& argument) {
    return std::any_of(options.begin(), options.end(), [&](const char* option) {
      return argument == option || argument.starts_with(fmt::format("{}=", option));
    });
  });
}

void replace_front(Words& arguments, std::size_t count, const Words& with) {
  arguments.erase(arguments.begin(), arguments.begin() + static_cast<std::ptrdiff_t>(count));
  arguments.insert(arguments.begin(), with.begin(), with.end());
}

std::string renamed_to(const std::string& before, const std::string& now) {
  return fmt::format("`lockstep {}` is now `lockstep {}`", before, now);
}

// `gate --service github` is `verify --ci=github`.
Renamed gate(Words arguments) {
  std::string ci = "--ci";
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    if (arguments[i] == "--service" && i + 1 < arguments.size()) {
      ci += fmt::format("={}", arguments[i + 1]);
      arguments.erase(arguments.begin() + static_cast<std::ptrdiff_t>(i + 1));
    } else if (arguments[i].starts_with("--service=")) {
      ci += arguments[i].substr(std::string("--service").size());
    } else {
      continue;
    }
    arguments.erase(arguments.begin() + static_cast<std::ptrdiff_t>(i));
    break;
  }
  replace_front(arguments, 1, {"verify", ci});
  return {std::move(arguments), renamed_to("gate", "verify --ci")};
}

// The folder to write to was the last of at least two that are not options; all options were flags.
Renamed convert_into_last(Words arguments) {
  const auto is_word = [](const std::string& argument) { return !argument.starts_with("-"); };
  // "convert" itself, an input and the folder. With fewer words, CLI11 says that -o is missing.
  if (std::count_if(arguments.begin(), arguments.end(), is_word) < 3)
    return {std::move(arguments), ""};
  const auto last = std::find_if(arguments.rbegin(), arguments.rend(), is_word);
  const std::string folder = *last;
  arguments.erase(std::next(last).base());
  arguments.insert(arguments.end(), {"-o", folder});
  return {std::move(arguments), renamed_to("convert IN... OUT_DIR", "convert IN... -o OUT_DIR")};
}

}  // namespace

Renamed with_new_names(Words arguments) {
  if (begins_with(arguments, {"gate"})) return gate(std::move(arguments));
  if (begins_with(arguments, {"rules"})) {
    replace_front(arguments, 1, {"explain"});
    return {std::move(arguments), renamed_to("rules", "explain")};
  }
  if (begins_with(arguments, {"digest"})) {
    replace_front(arguments, 1, {"convert", "--to", "digest"});
    return {std::move(arguments), renamed_to("digest", "convert --to digest")};
  }
  if (begins_with(arguments, {"trace-to-scenario"})) {
    // The old command had this default; `convert` asks for OUT.
    if (!has_any(arguments, {"-o", "--output", "-h", "--help"}))
      arguments.insert(arguments.end(), {"-o", "replay.yaml"});
    replace_front(arguments, 1, {"convert", "--to", "scenario"});
    return {std::move(arguments), renamed_to("trace-to-scenario", "convert --to scenario")};
  }
  if (begins_with(arguments, {"simulate", "table"})) {
    replace_front(arguments, 2, {"calibrate", "check"});
    return {std::move(arguments), renamed_to("simulate table", "calibrate check")};
  }
  if (begins_with(arguments, {"convert"}) &&
      !has_any(arguments, {"-o", "--output", "--to", "-h", "--help"}))
    return convert_into_last(std::move(arguments));
  if (begins_with(arguments, {"verify"}) && std::erase(arguments, "--product") > 0)
    return {std::move(arguments),
            "`lockstep verify` knows a derivation by its product.json: --product is not needed"};
  return {std::move(arguments), ""};
}

}  // namespace lockstep::cli
