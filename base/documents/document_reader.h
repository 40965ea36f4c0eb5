// Reads the values of a document that its schema allows. What a schema cannot check, quantities and
// how values fit together, is checked on the way; the first problem is kept, with its location.
//
//   DocumentReader read(document);
//   out.bandwidth = read.quantity("/memory/bandwidth", parse_bandwidth);
//   if (!read.has("/links/0/ring")) read.refuse("/links/0", "…", "…");
//   if (read.problem()) return *read.problem();
//
// Keys are JSON pointers. After a problem values are harmless, not meaningful: T{} for a quantity.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/documents/yaml_document.h"
#include "base/result.h"

namespace lockstep {

class DocumentReader {
 public:
  // `document` must outlive the reader.
  explicit DocumentReader(const YamlDocument& document) : document_(document) {}

  const nlohmann::json& root() const { return document_.value; }
  bool has(const std::string& pointer) const { return root().contains(parsed(pointer)); }
  // The value at `pointer`, which must exist.
  const nlohmann::json& at(const std::string& pointer) const { return root().at(parsed(pointer)); }

  // The value, or `otherwise` where the document leaves it out.
  template <class T>
  T value_or(const std::string& pointer, T otherwise) const {
    return has(pointer) ? at(pointer).get<T>() : otherwise;
  }
  template <class T>
  std::optional<T> value_if_there(const std::string& pointer) const {
    return has(pointer) ? std::optional<T>(at(pointer).get<T>()) : std::nullopt;
  }

  // The text at `pointer` as `parse` reads it (base/quantities.h). Its error is a problem.
  template <class T>
  T quantity(const std::string& pointer, Result<T> (*parse)(std::string_view)) {
    Result<T> read = parse(at(pointer).get_ref<const std::string&>());
    if (read) return std::move(*read);
    refuse(pointer, read.error().message, read.error().fix);
    return T{};
  }
  template <class T>
  T quantity_or(const std::string& pointer, Result<T> (*parse)(std::string_view), T otherwise) {
    return has(pointer) ? quantity(pointer, parse) : otherwise;
  }

  // Of the value at `pointer`, or, if the document leaves it out, of what encloses it.
  const Location& location(const std::string& pointer) const {
    return document_.value_location(pointer);
  }
  // A problem of the value at `pointer`, or, if the document leaves it out, of what encloses it.
  Error error_at(const std::string& pointer, std::string message, std::string fix) const {
    return {std::move(message), location(pointer), std::move(fix)};
  }
  void refuse(const std::string& pointer, std::string message, std::string fix) {
    if (!problem_) problem_ = error_at(pointer, std::move(message), std::move(fix));
  }
  // The same of a key: that it is there at all.
  void refuse_key(const std::string& pointer, std::string message, std::string fix) {
    if (!problem_)
      problem_ = Error{std::move(message), document_.key_location(pointer), std::move(fix)};
  }
  const std::optional<Error>& problem() const { return problem_; }

 private:
  static nlohmann::json::json_pointer parsed(const std::string& pointer) {
    return nlohmann::json::json_pointer(pointer);
  }

  const YamlDocument& document_;
  std::optional<Error> problem_;
};

// The enumerator with this name. `names` has the order of the enumeration; the schema must ensure
// that the name is one of them (CHECK).
template <class Enum, std::size_t N>
Enum choice(const std::string& name, const std::array<std::string_view, N>& names) {
  const auto found = std::find(names.begin(), names.end(), name);
  LOCKSTEP_CHECK(found != names.end(), "the schema allows a name that its reader does not know");
  return static_cast<Enum>(found - names.begin());
}
template <class Enum, class... Names>
Enum choice(const std::string& name, const char* first, const Names*... others) {
  return choice<Enum>(name, std::array<std::string_view, 1 + sizeof...(others)>{first, others...});
}

}  // namespace lockstep
