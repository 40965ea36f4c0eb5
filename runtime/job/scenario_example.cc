#include "runtime/job/scenario_example.h"

#include <algorithm>
#include <set>
#include <sstream>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "runtime/job/scenario.h"

namespace lockstep::runtime {
namespace {

using OrderedJson = nlohmann::ordered_json;  // keys in the schema's order

constexpr std::size_t kColumns = 100;

// A value in flow style, which YAML and JSON share.
std::string value_text(const OrderedJson& value) {
  return value.is_string() && !value.get_ref<const std::string&>().empty()
             ? value.get<std::string>()
             : value.dump();
}

std::string names_of(const OrderedJson& list) {
  std::string out;
  for (const OrderedJson& item : list) out += (out.empty() ? "" : ", ") + value_text(item);
  return out;
}

// Keys that have no effect, or are refused, with the example's other values. They are commented
// out. For strategies the schema's descriptions say so: "Only ddp: …".
bool belongs_elsewhere(const std::string& path, const OrderedJson& schema,
                       const ExampleOptions& options) {
  static const std::set<std::string> kElsewhere = {"data.manifest", "data.vocab",
                                                   "data.balance_every", "model.fusion",
                                                   "strategy.skip_all_reduce_unused_params"};
  if (kElsewhere.contains(path)) return true;
  if (path == "remedy.average")
    return options.remedy != "dummy-image" && options.remedy != "gradient-mask";
  const std::string description = schema.value("description", "");
  return path.starts_with("strategy.") && description.starts_with("Only ") &&
         !description.starts_with(fmt::format("Only {}", options.strategy));
}

// Whether all keys of a mapping are commented out. Then the mapping must be, too: YAML would read
// an empty one as null.
bool is_all_optional(const OrderedJson& form) {
  if (!form.contains("properties") || form.contains("required")) return false;
  const OrderedJson& keys = form["properties"];
  return std::none_of(keys.begin(), keys.end(), [](const OrderedJson& key) {
    return key.contains("default") || key.contains("properties");
  });
}

class Example {
 public:
  Example(const OrderedJson& schema, const ExampleOptions& options)
      : schema_(schema), options_(options) {}

  std::string text() {
    out_ << "# A Lockstep scenario: a training job on images and texts, and what is expected of "
            "it.\n"
            "#\n"
            "#   lockstep run FILE\n"
            "#\n"
            "# Every key is here, with its default. A key right after a \"#\" is off, mostly "
            "because it goes\n"
            "# with another value of some other key: take the \"#\" away to set it. Only "
            "\"lockstep\" and\n"
            "# \"name\" are required: any other line can go.\n";
    keys(schema_["properties"], "", 0, false);
    return out_.str();
  }

 private:
  // Follows `$ref`, and of several forms ("oneOf") takes the one with keys.
  const OrderedJson& resolved(const OrderedJson& node) const {
    if (node.contains("$ref"))
      return schema_["definitions"][node["$ref"].get<std::string>().substr(
          std::string_view("#/definitions/").size())];
    if (!node.contains("oneOf")) return node;
    for (const OrderedJson& form : node["oneOf"]) {
      if (form.contains("properties") && form.contains("required")) return form;
    }
    return node;
  }

  std::string indent(int depth) const {
    return std::string(static_cast<std::size_t>(2 * depth), ' ');
  }

  void comment(const std::string& text, int depth) {
    const std::string start = fmt::format("{}# ", indent(depth));
    std::istringstream words(text);
    std::string line = start;
    for (std::string word; words >> word;) {
      if (line != start && line.size() + 1 + word.size() > kColumns) {
        out_ << line << "\n";
        line = start;
      }
      line += (line == start ? "" : " ") + word;
    }
    if (line != start) out_ << line << "\n";
  }

  void keys(const OrderedJson& properties, const std::string& path, int depth, bool off) {
    for (const auto& [key, node] : properties.items())
      one(key, node, path.empty() ? key : fmt::format("{}.{}", path, key), depth, off);
  }

  void one(const std::string& key, const OrderedJson& node, const std::string& path, int depth,
           bool off) {
    const OrderedJson& form = resolved(node);
    // Inherited: the keys of a mapping that is off are off.
    off = off || belongs_elsewhere(path, node, options_) || is_all_optional(form);
    if (depth == 0) out_ << "\n";
    const std::string description = node.value("description", form.value("description", ""));
    comment(description, depth);
    if (form.contains("enum") && form["enum"].size() > 1)
      comment(fmt::format("One of: {}", names_of(form["enum"])), depth);
    const std::string start = fmt::format("{}{}{}:", indent(depth), off ? "#" : "", key);
    if (path == "expect") return expectation(form, off);
    if (path == "study") return study(form);
    if (path == "data.modality") return modality(start, depth);
    if (form.contains("properties") && form["type"] == "object") {
      out_ << start << "\n";
      return keys(form["properties"], path, depth + 1, off);
    }
    if (const std::string own = own_value(path); !own.empty()) {
      out_ << start << " " << own << "\n";
    } else if (node.contains("default")) {
      out_ << start << " " << value_text(node["default"]) << "\n";
    } else {
      out_ << indent(depth) << "#" << key << ": " << sample(form) << "\n";
    }
  }

  // Values of the example that differ from the default.
  std::string own_value(const std::string& path) const {
    if (path == "lockstep") return "1";
    if (path == "name") return "my job";
    if (path == "strategy.kind") return options_.strategy;
    if (path == "remedy.kind") return options_.remedy;
    if (path == "watch.every") return "0";  // watches nothing, as without the key "watch"
    // In a step in which no rank has images, the image path is unused.
    if (path == "strategy.find_unused_parameters" && options_.remedy == "alternating")
      return "true";
    return "";
  }

  static std::string sample(const OrderedJson& form) {
    if (form.contains("minimum")) return value_text(form["minimum"]);
    return form.value("type", "") == "string" ? "text" : "1";
  }

  void modality(const std::string& start, int depth) {
    const std::string more = fmt::format("{}#  ", indent(depth));
    out_ << start << " []\n"
         << indent(depth) << "# Say, in step 2 rank 1 has texts alone:\n"
         << indent(depth) << "#modality:\n"
         << more << "- {ranks: [1], steps: [2], has: [text]}\n"
         << more << "- {has: [image, text]}\n";
  }

  void study(const OrderedJson& form) {
    out_ << "#study:\n";
    for (const auto& [key, node] : form["properties"].items()) {
      comment(node["description"], 1);
      const std::string value = key == "repeats"      ? "3"
                                : key == "strategies" ? "{DDP: {strategy: ddp}}"
                                                      : "{dummy images: {remedy: dummy-image}}";
      out_ << "  #" << key << ": " << value << "\n";
    }
  }

  void expectation(const OrderedJson& form, bool off) {
    const std::string before = off ? "#" : "";
    out_ << before << "expect:\n";
    for (const auto& [key, node] : form["properties"].items()) {
      comment(node["description"], 1);
      if (node.contains("enum")) comment(fmt::format("One of: {}", names_of(node["enum"])), 1);
      const bool clean = key == "verdict" || key == "ends";
      const std::string value = key == "verdict" ? "clean"
                                : key == "ends"  ? "completed"
                                : key == "rules" ? "[modality-divergence]"
                                : key == "step"  ? "2"
                                                 : "[1]";
      out_ << "  " << (clean ? before : "#") << key << ": " << value << "\n";
    }
  }

  const OrderedJson& schema_;
  const ExampleOptions& options_;
  std::ostringstream out_;
};

Status check_kind(const OrderedJson& schema, const std::string& of, const std::string& kind) {
  const auto names =
      schema["definitions"][fmt::format("{}_kind", of)]["enum"].get<std::vector<std::string>>();
  if (std::find(names.begin(), names.end(), kind) != names.end()) return Status::ok();
  return Error{fmt::format("there is no {} \"{}\"", of, printable(kind)),
               {},
               did_you_mean(kind, names, fmt::format("one of {}", join_and(names)))};
}

}  // namespace

Result<std::string> example_scenario(const ExampleOptions& options) {
  const OrderedJson schema = OrderedJson::parse(scenario_schema());
  if (const Status known = check_kind(schema, "strategy", options.strategy); !known)
    return known.error();
  if (const Status known = check_kind(schema, "remedy", options.remedy); !known)
    return known.error();
  std::string text = Example(schema, options).text();
  // The checks of the format explain a combination that it refuses, e.g. of strategy and remedy.
  if (const Result<Scenario> scenario = parse_scenario(text, "example"); !scenario)
    return Error{scenario.error().message, {}, scenario.error().fix};
  return text;
}

}  // namespace lockstep::runtime
