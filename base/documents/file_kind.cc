#include "base/documents/file_kind.h"

#include <array>

#include <fmt/format.h>

namespace lockstep {
namespace {

struct FileKind {
  std::string_view key, name, taken_by;
};

// A sweep file first: it names its plan or its scenario.
constexpr std::array<FileKind, 4> kKinds = {{
    {"sweep", "a sweep file", "`lockstep sweep` takes it, by itself"},
    {"lockstep", "a scenario", "`lockstep simulate` and `lockstep sweep` take it with --machine"},
    {"plan", "a plan", "`lockstep simulate plan` and `lockstep sweep` take it"},
    {"machine", "a machine file", "name it with --machine, or as the calibration of a plan"},
}};

}  // namespace

std::optional<Error> other_kind(const YamlDocument& document, std::string_view key) {
  if (!document.value.is_object()) return std::nullopt;
  std::string_view wanted;
  for (const FileKind& kind : kKinds)
    if (kind.key == key) wanted = kind.name;
  for (const FileKind& kind : kKinds) {
    if (!document.value.contains(kind.key)) continue;
    if (kind.key == key) return std::nullopt;
    return Error{fmt::format("this is {}, not {}", kind.name, wanted),
                 document.key_location(fmt::format("/{}", kind.key)), std::string(kind.taken_by)};
  }
  return std::nullopt;
}

}  // namespace lockstep
