#include "tests/docs/reference.h"

#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/check.h"
#include "sim/machine/machine.h"
#include "sim/multimodal/multimodal_plan.h"
#include "sim/transformer/plan_file.h"

namespace lockstep::docs {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kRenewed =
    "*Made from the program by `scripts/docs --renew`; a test keeps it up to date.*\n\n";

std::string cell(std::string text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

// Every line indented, as the other pages show what a program prints.
std::string shown(const std::string& text) {
  std::istringstream lines(text);
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    while (!line.empty() && line.back() == ' ') line.pop_back();
    out += line.empty() ? "\n" : "    " + line + "\n";
  }
  return out;
}

// "proven, observed"
std::string certainties(const Json& rule) {
  std::string out;
  for (const Json& certainty : rule["certainties"])
    out += (out.empty() ? "" : ", ") + certainty.get<std::string>();
  return out;
}

std::string rules_page(const Json& rules) {
  std::string out =
      std::string("# Rules\n\n") + kRenewed +
      "What `lockstep verify` and `lockstep run` judge by; `lockstep explain RULE` "
      "prints the same. The severity\nis the usual one. The certainties "
      "are those that a rule's findings may have; what was recorded decides:\n\n"
      "- *proven*: no schedule lets these ranks continue, or the recorded values "
      "differ;\n- *observed*: seen in this run;\n- *possible*: some legal schedule "
      "would go wrong.\n\n"
      "[verify.md](../verify.md) says how the analyses work together. Examples with a "
      "report are run by a test: save the lines\nof each rank as "
      "`traces/rank_N.trace.jsonl`, a line that begins with a blank after the one "
      "above it, and call\n`lockstep verify traces/`.\n\n"
      "| rule | family | severity | certainty | finds |\n|---|---|---|---|---|\n";
  for (const Json& rule : rules) {
    const std::string id = rule["id"];
    out += "| [" + id + "](#" + id + ") | " + rule["family"].get<std::string>() + " | " +
           rule["severity"].get<std::string>() + " | " + certainties(rule) + " | " +
           cell(rule["summary"]) + " |\n";
  }
  for (const Json& rule : rules) {
    out += "\n## " + rule["id"].get<std::string>() + "\n\n*" + rule["family"].get<std::string>() +
           ", " + rule["severity"].get<std::string>() + " (" + certainties(rule) +
           ")*: " + rule["summary"].get<std::string>() + ".\n\n" +
           rule["explanation"].get<std::string>() + "\n";
    for (const auto& [heading, key] : {std::pair{"How it is decided", "decision"},
                                       {"What it cannot see", "limits"},
                                       {"How to fix it", "how_to_fix"},
                                       {"Example", "example"}})
      out += std::string("\n**") + heading + "**\n\n" + rule[key].get<std::string>() + "\n";
  }
  return out;
}

// Follows a schema's keys.
class Keys {
 public:
  explicit Keys(const Json& root) : root_(root) {}

  std::string table() {
    add_properties(root_, "");
    return "| key | holds | left out | meaning |\n|---|---|---|---|\n" + rows_;
  }

 private:
  const Json& followed(const Json& node) const {
    if (!node.contains("$ref")) return node;
    return root_.at(Json::json_pointer(node["$ref"].get<std::string>().substr(1)));
  }

  void add_properties(const Json& node, const std::string& prefix) {
    const auto required = [&](const std::string& key) {
      return node.contains("required") &&
             std::find(node["required"].begin(), node["required"].end(), key) !=
                 node["required"].end();
    };
    for (const char* kind : {"properties", "patternProperties"}) {
      if (!node.contains(kind)) continue;
      for (const auto& [key, value] : node[kind].items()) {
        const bool pattern = std::string(kind) == "patternProperties";
        add(prefix + (pattern ? "(" + key + ")" : key), value, required(key));
      }
    }
    for (const char* kind : {"oneOf", "anyOf"})
      if (node.contains(kind))
        for (const Json& other : node[kind]) add_properties(followed(other), prefix);
  }

  void add(const std::string& name, const Json& given, bool required) {
    const Json& node = followed(given);
    std::string meaning = given.value("description", node.value("description", ""));
    std::string absent = required ? "must be there" : "";
    if (!required && node.contains("default") && !node["default"].empty())
      absent = "`" + node["default"].dump() + "`";
    rows_ += "| `" + cell(name) + "` | " + cell(holds(node)) + " | " + cell(absent) + " | " +
             cell(meaning) + " |\n";
    add_properties(node, name + ".");
    if (node.contains("items")) add_properties(followed(node["items"]), name + "[].");
    for (const char* kind : {"oneOf", "anyOf"})
      if (node.contains(kind))
        for (const Json& other : node[kind])
          if (other.contains("items")) add_properties(followed(other["items"]), name + "[].");
  }

  std::string holds(const Json& node) const {
    if (node.contains("$ref")) return holds(followed(node));
    if (node.contains("enum")) {
      std::string out;
      for (const Json& value : node["enum"])
        out += (out.empty() ? "`" : ", `") +
               (value.is_string() ? value.get<std::string>() : value.dump()) + "`";
      return out;
    }
    for (const char* kind : {"oneOf", "anyOf"})
      if (node.contains(kind)) {
        std::vector<std::string> seen;
        std::string out;
        for (const Json& other : node[kind]) {
          const std::string one = holds(other);
          if (std::find(seen.begin(), seen.end(), one) != seen.end()) continue;
          seen.push_back(one);
          out += (out.empty() ? "" : ", or ") + one;
        }
        return out;
      }
    const std::string type = node.value("type", "value");
    if (type == "array") {
      const std::string of = node.contains("items") ? holds(node["items"]) : "value";
      return "list of " + of + counted(node, "minItems", "maxItems", "");
    }
    if (type == "string") return "text";
    if (type == "object") return "keys";
    return type + counted(node, "minimum", "maximum", "exclusiveMinimum");
  }

  // ", 1 to 4096", of what the schema bounds.
  static std::string counted(const Json& node, const char* least, const char* most,
                             const std::string& above) {
    std::string out;
    if (node.contains(least) && node.contains(most))
      return ", " + node[least].dump() + " to " + node[most].dump();
    if (node.contains(least)) out += ", from " + node[least].dump();
    if (!above.empty() && node.contains(above)) out += ", above " + node[above].dump();
    if (node.contains(most)) out += ", to " + node[most].dump();
    return out;
  }

  const Json& root_;
  std::string rows_;
};

std::string cli_page(const Lockstep& lockstep) {
  std::string out = std::string("# Command line\n\n") + kRenewed +
                    "What `lockstep --help` and `lockstep COMMAND --help` print.\n";
  const auto add = [&](const std::vector<std::string>& command) {
    std::vector<std::string> arguments = command;
    arguments.emplace_back("--help");
    const std::string help = lockstep(arguments);
    out += "\n## lockstep";
    for (const std::string& word : command) out += " " + word;
    out += "\n\n" + shown(help);
    return subcommands_of(help);
  };
  for (const std::string& command : add({}))
    for (const std::string& part : add({command})) add({command, part});
  return out;
}

}  // namespace

std::vector<std::string> subcommands_of(const std::string& help) {
  std::istringstream lines(help);
  std::vector<std::string> out;
  // Commands stand under the headings of their groups, and are the only names in lower case there;
  // options begin with "-", positionals are in capitals, and after the examples comes prose.
  for (std::string line; std::getline(lines, line) && line != "Examples:";) {
    const bool names =
        line.starts_with("  ") && line.size() > 2 && line[2] >= 'a' && line[2] <= 'z';
    const std::size_t end = names ? line.find(' ', 2) : std::string::npos;
    if (end != std::string::npos && line.compare(end, 2, "  ") == 0)
      out.push_back(line.substr(2, end - 2));
  }
  return out;
}

std::string key_table(const Json& schema) { return Keys(schema).table(); }

std::map<std::string, std::string> reference_pages(const Lockstep& lockstep) {
  std::map<std::string, std::string> out;
  out["rules.md"] = rules_page(Json::parse(lockstep({"explain", "--json"})));
  out["scenario.md"] =
      std::string("# Keys of scenarios\n\n") + kRenewed +
      "The keys of the schema that `lockstep scenario --schema` prints. A list's items are `[]`, a "
      "name of one's own is\nin parentheses. [Scenarios](../scenarios.md) explains what the keys "
      "do together.\n\n" +
      key_table(Json::parse(lockstep({"scenario", "--schema"})));
  out["machine.md"] = std::string("# Keys of machine files\n\n") + kRenewed +
                      "The keys of the files that `lockstep simulate --machine` reads and "
                      "`lockstep calibrate` writes. Quantities\nhave units: `976ns`, `450GB/s`, "
                      "`989TFLOP/s`, `80GB`. [Step times](../simulate-scenarios.md#machine-files) "
                      "explains\nthem together.\n\n" +
                      key_table(Json::parse(sim::machine_schema()));
  out["plan.md"] = std::string("# Keys of plan files\n\n") + kRenewed +
                   "The keys of the files that `lockstep simulate plan` and `lockstep sweep` read. "
                   "[Training\nsteps](../simulate-workloads.md#plans) explains them together.\n\n" +
                   key_table(Json::parse(sim::plan_schema()));
  out["multimodal-plan.md"] =
      std::string("# Keys of plan files of several towers\n\n") + kRenewed +
      "The keys of plans with `llm` and `encoders` that `lockstep simulate plan` and `lockstep "
      "sweep` read. A list's\nitems are `[]`. [Several towers](../simulate-multimodal.md) explains "
      "them together.\n\n" +
      key_table(Json::parse(sim::multimodal_plan_schema().dump()));
  out["cli.md"] = cli_page(lockstep);
  return out;
}

namespace {

// A trace block as files, one for each header line, and what is printed for their folder.
std::string report_of(const std::string& trace, const Lockstep& lockstep) {
  std::string folder = (std::filesystem::temp_directory_path() / "lockstep_rule_XXXXXX").string();
  LOCKSTEP_CHECK(::mkdtemp(folder.data()) != nullptr, "cannot make " + folder);
  // Reports name files as they were given: always the same ones.
  const std::string traces = "traces";
  std::filesystem::create_directory(folder + "/" + traces);
  std::istringstream lines(trace);
  std::ofstream file;
  int files = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("{\"header\"")) {
      if (file.is_open()) file << "\n";
      file.close();
      file.open(folder + "/" + traces + "/rank_" + std::to_string(files++) + ".trace.jsonl");
      file << line;
    } else if (!line.empty()) {
      const bool goes_on = line.front() == ' ';
      file << (goes_on ? "" : "\n") << line;
    }
  }
  file << "\n";
  file.close();
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder);
  const std::string report = lockstep({"verify", traces});
  std::filesystem::current_path(before);
  std::filesystem::remove_all(folder);
  return report;
}

}  // namespace

std::string with_reports(const std::string& page, const Lockstep& lockstep) {
  std::istringstream lines(page);
  std::string out, trace, block;  // `block`: the fence that opened it; empty: none
  for (std::string line; std::getline(lines, line);) {
    const bool fence = line.starts_with("```");
    if (fence && block == "```report") out += report_of(trace, lockstep);
    if (fence && line == "```trace") trace.clear();
    if (fence)
      block = block.empty() ? line : "";
    else if (block == "```trace")
      trace += line + "\n";
    if (fence || block != "```report") out += line + "\n";
  }
  return out;
}

}  // namespace lockstep::docs
