#include "base/documents/schema_check.h"

#include <algorithm>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <valijson/adapters/nlohmann_json_adapter.hpp>
#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>
#include <valijson/validator.hpp>

#include "base/check.h"
#include "base/text.h"

namespace lockstep {

namespace {

using Json = nlohmann::json;

bool has_type(const Json& value, const std::string& type) {
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "array") return value.is_array();
  return type == "object" && value.is_object();
}

std::string type_in_words(const std::string& type) {
  if (type == "integer") return "a whole number";
  if (type == "number") return "a number";
  if (type == "string") return "text";
  if (type == "boolean") return "true or false";
  if (type == "array") return "a list";
  return "a mapping";
}

std::string number_in_words(const Json& number) { return number.dump(); }

// A value in a message: short.
std::string value_in_words(const Json& value) {
  if (value.is_null()) return "empty";
  if (value.is_array()) return "a list";
  if (value.is_object()) return "a mapping";
  if (!value.is_string()) return value.dump();
  constexpr std::size_t kLongest = 60;
  const auto& text = value.get_ref<const std::string&>();
  if (text.size() > kLongest) return fmt::format("a text of {}", plural(text.size(), "byte"));
  return fmt::format("the text \"{}\"", printable(text));
}

// "/data/modality/0/has" in a message: "data.modality[0].has".
std::string path_in_words(const std::string& pointer) {
  if (pointer.empty()) return "the file";
  const Json::json_pointer parsed(pointer);
  std::string out;
  std::vector<std::string> parts;
  for (auto rest = parsed; !rest.empty(); rest.pop_back()) parts.push_back(rest.back());
  std::reverse(parts.begin(), parts.end());
  for (const std::string& part : parts) {
    const bool index = part.find_first_not_of("0123456789") == std::string::npos;
    out += index ? fmt::format("[{}]", part) : (out.empty() ? "" : ".") + printable(part);
  }
  return fmt::format("\"{}\"", out);
}

std::vector<std::string> keys_of(const Json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

// The second walk: collects problems with their locations. first() picks the one that is first in
// the file, whatever the order of the walk (JSON objects are sorted by key).
class Explainer {
 public:
  Explainer(const YamlDocument& document, const Json& schema)
      : document_(document), schema_(schema) {}

  // The schema for `value`: follows references, and of alternatives takes the one for the value's
  // type. Null if no alternative has that type.
  const Json* schema_for(const Json& value, const Json& schema) const {
    if (schema.contains("$ref")) return schema_for(value, referred(schema));
    if (!schema.contains("oneOf")) return &schema;
    for (const Json& alternative : schema["oneOf"]) {
      const Json* resolved = schema_for(value, alternative);
      if (resolved != nullptr && has_type(value, (*resolved)["type"])) return resolved;
    }
    return nullptr;
  }

  void visit(const Json& value, const Json& schema, const std::string& pointer) {
    const Json* resolved = schema_for(value, schema);
    // A wrong type is the first thing to say: limits of another type would confuse.
    if (resolved == nullptr || !has_type(value, (*resolved)["type"])) {
      const std::string type = expected(schema);
      const bool no_unit = value.is_number() && type == "text";
      return wrong(
          value, pointer, type,
          no_unit ? "a quantity has its unit, like 80GB, 30s or 50GB/s; a name is in quotes" : "");
    }
    if (resolved->contains("enum")) return visit_choice(value, *resolved, pointer);
    if (value.is_object()) return visit_object(value, *resolved, pointer);
    if (value.is_array()) return visit_list(value, *resolved, pointer);
    if (value.is_number()) return visit_number(value, *resolved, pointer);
    if (value.is_string()) return visit_text(value, *resolved, pointer);
  }

  std::optional<Error> first() const {
    const auto earlier = [](const Error& a, const Error& b) {
      return std::pair(a.location.line, a.location.column) <
             std::pair(b.location.line, b.location.column);
    };
    const auto found = std::min_element(problems_.begin(), problems_.end(), earlier);
    return found == problems_.end() ? std::nullopt : std::optional(*found);
  }

 private:
  const Json& referred(const Json& schema) const {
    return schema_.at(Json::json_pointer(schema["$ref"].get<std::string>().substr(1)));
  }

  // "a whole number", "one of a, b" or "text or a mapping".
  std::string expected(const Json& schema) const {
    if (schema.contains("$ref")) return expected(referred(schema));
    if (schema.contains("oneOf")) {
      std::string out;
      for (const Json& alternative : schema["oneOf"])
        out += (out.empty() ? "" : " or ") + expected(alternative);
      return out;
    }
    if (schema.contains("enum")) {
      std::vector<std::string> choices;
      for (const Json& choice : schema["enum"])
        choices.push_back(choice.is_string() ? choice.get<std::string>() : choice.dump());
      return choices.size() == 1 ? choices[0] : fmt::format("one of {}", join_and(choices));
    }
    return type_in_words(schema["type"]);
  }

  void wrong(const Json& value, const std::string& pointer, const std::string& should_be,
             const std::string& fix = {}) {
    problems_.push_back({fmt::format("{} should be {}, but it is {}", path_in_words(pointer),
                                     should_be, value_in_words(value)),
                         document_.value_location(pointer), fix});
  }

  void visit_choice(const Json& value, const Json& schema, const std::string& pointer) {
    const Json& choices = schema["enum"];
    if (std::find(choices.begin(), choices.end(), value) != choices.end()) return;
    if (!value.is_string()) return wrong(value, pointer, expected(schema));
    const auto names = choices.get<std::vector<std::string>>();
    wrong(value, pointer, expected(schema), did_you_mean(value.get<std::string>(), names));
  }

  // The schema of the value under `key`; null if the key is not allowed. std::regex recurses per
  // character: long keys are not matched.
  static const Json* property(const Json& schema, const std::string& key) {
    if (schema.contains("properties") && schema["properties"].contains(key))
      return &schema["properties"][key];
    if (schema.contains("patternProperties")) {
      for (const auto& [pattern, inner] : schema["patternProperties"].items()) {
        if (key.size() < 100 && std::regex_search(key, std::regex(pattern))) return &inner;
      }
    }
    return nullptr;
  }

  void unknown_key(const std::string& key, const Json& schema, const std::string& pointer) {
    std::string message = fmt::format("unknown key \"{}\"", printable(key.substr(0, 100)));
    std::string fix;
    if (schema.contains("properties")) {
      const std::vector<std::string> allowed = keys_of(schema["properties"]);
      const std::string near = key.size() < 100 ? nearest(key, allowed) : "";
      if (!near.empty()) message += fmt::format("; did you mean \"{}\"?", near);
      fix = fmt::format("allowed here: {}", join_and(allowed));
    } else {
      fix = "write \"rank 0\", \"rank 1\" and so on";
    }
    problems_.push_back({message, document_.key_location(pointer), fix});
  }

  void visit_object(const Json& value, const Json& schema, const std::string& pointer) {
    for (const auto& [key, inner] : value.items()) {
      const std::string here = fmt::format("{}/{}", pointer, pointer_part(key));
      const Json* inner_schema = property(schema, key);
      if (inner_schema == nullptr)
        unknown_key(key, schema, here);
      else
        visit(inner, *inner_schema, here);
    }
    if (!schema.contains("required")) return;
    for (const std::string key : schema["required"]) {
      if (value.contains(key)) continue;
      const Json* missing = property(schema, key);
      problems_.push_back(
          {fmt::format("the key \"{}\" is missing{}", key,
                       pointer.empty() ? "" : fmt::format(" in {}", path_in_words(pointer))),
           document_.value_location(pointer),
           fmt::format("add \"{}: …\": {}", key, description(*missing))});
    }
  }

  std::string description(const Json& schema) const {
    return schema.contains("$ref") ? description(referred(schema))
                                   : schema["description"].get<std::string>();
  }

  void visit_list(const Json& value, const Json& schema, const std::string& pointer) {
    if (schema.contains("minItems") && value.size() < schema["minItems"])
      return count_wrong(value, pointer, "at least", schema["minItems"]);
    if (schema.contains("maxItems") && value.size() > schema["maxItems"])
      return count_wrong(value, pointer, "at most", schema["maxItems"]);
    for (std::size_t i = 0; i < value.size(); ++i)
      visit(value[i], schema["items"], fmt::format("{}/{}", pointer, i));
  }

  void count_wrong(const Json& value, const std::string& pointer, const std::string& bound,
                   std::uint64_t count) {
    problems_.push_back({fmt::format("{} should have {} {}, but it has {}", path_in_words(pointer),
                                     bound, plural(count, "item"), value.size()),
                         document_.value_location(pointer), ""});
  }

  void visit_number(const Json& value, const Json& schema, const std::string& pointer) {
    const double number = value.get<double>();
    if (schema.contains("minimum") && number < schema["minimum"].get<double>())
      wrong(value, pointer, fmt::format("at least {}", number_in_words(schema["minimum"])));
    else if (schema.contains("exclusiveMinimum") &&
             number <= schema["exclusiveMinimum"].get<double>())
      wrong(value, pointer,
            fmt::format("more than {}", number_in_words(schema["exclusiveMinimum"])));
    else if (schema.contains("maximum") && number > schema["maximum"].get<double>())
      wrong(value, pointer, fmt::format("at most {}", number_in_words(schema["maximum"])));
  }

  void visit_text(const Json& value, const Json& schema, const std::string& pointer) {
    // Code points, as JSON Schema counts.
    const std::size_t characters = columns_of(value.get_ref<const std::string&>());
    if (schema.contains("minLength") && characters < schema["minLength"].get<std::size_t>())
      wrong(value, pointer, "text that is not empty");
    else if (schema.contains("maxLength") && characters > schema["maxLength"].get<std::size_t>())
      wrong(value, pointer,
            fmt::format("text of at most {} characters", schema["maxLength"].dump()));
  }

  const YamlDocument& document_;
  const Json& schema_;
  std::vector<Error> problems_;
};

}  // namespace

struct DocumentSchema::Prepared {
  explicit Prepared(Json schema) : json(std::move(schema)) {
    valijson::SchemaParser(valijson::SchemaParser::kDraft7)
        .populateSchema(valijson::adapters::NlohmannJsonAdapter(json), rules);
  }

  // valijson's verdict: empty if valid, else its own words for its first error.
  std::optional<std::string> refused(const Json& value) const {
    valijson::Validator validator;
    valijson::ValidationResults results;
    if (validator.validate(rules, valijson::adapters::NlohmannJsonAdapter(value), &results))
      return std::nullopt;
    return results.numErrors() > 0 ? results.begin()->description : "refused by the schema";
  }

  const Json json;
  valijson::Schema rules;
};

DocumentSchema::DocumentSchema(nlohmann::json schema)
    : prepared_(std::make_shared<const Prepared>(std::move(schema))) {}

const nlohmann::json& DocumentSchema::json() const { return prepared_->json; }

std::optional<Error> DocumentSchema::check(const YamlDocument& document,
                                           std::string_view example) const {
  const auto refused = prepared_->refused(document.value);
  if (!refused) return std::nullopt;
  Explainer explainer(document, json());
  explainer.visit(document.value, json(), "");
  // If the walk finds nothing although valijson does, valijson's words are better than none.
  if (auto error = explainer.first()) {
    if (error->fix.empty()) error->fix = example;
    return error;
  }
  return Error{fmt::format("not a valid scenario: {}", printable(*refused)),
               document.value_location(""), "docs/scenarios.md lists the keys and what they take"};
}

std::optional<Error> check_against_schema(const YamlDocument& document,
                                          const nlohmann::json& schema, std::string_view example) {
  return DocumentSchema(schema).check(document, example);
}

nlohmann::json with_defaults(const nlohmann::json& value, const nlohmann::json& schema) {
  // Only mappings have defaults, and they are in the schema without references. If a value may be a
  // mapping or a shorter form, the mapping is the last alternative.
  const Json& here = schema.contains("oneOf") ? schema["oneOf"].back() : schema;
  if (!value.is_object() || !here.contains("properties")) return value;
  Json out = value;
  for (const auto& [key, inner] : here["properties"].items()) {
    if (!out.contains(key) && inner.contains("default")) out[key] = inner["default"];
    if (out.contains(key)) out[key] = with_defaults(out[key], inner);
  }
  return out;
}

}  // namespace lockstep
