#include "reports/findings/timeline_events.h"

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "reports/json_text.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// Microseconds, to the nanosecond.
std::string microseconds(Nanos time) {
  const std::string fraction = std::to_string(time % 1000);
  return std::to_string(time / 1000) + "." + std::string(3 - fraction.size(), '0') + fraction;
}

}  // namespace

std::string json_string(std::string_view bytes) { return json_text(Json(std::string(bytes))); }

void TimelineEvents::begin(char phase, std::string_view name, std::string_view category,
                           TimelinePlace place) {
  out_ += out_.empty() ? "" : ",\n";
  out_ += "{\"ph\":\"";
  out_ += phase;
  out_ += "\",\"name\":" + json_string(name);
  if (!category.empty()) out_ += ",\"cat\":" + json_string(category);
  out_ += ",\"pid\":" + std::to_string(place.process) + ",\"tid\":" + std::to_string(place.thread);
}

void TimelineEvents::metadata(std::string_view kind, TimelinePlace place, const Json& args) {
  begin('M', kind, {}, place);
  out_ += ",\"args\":" + json_text(args) + "}";
}

void TimelineEvents::slice(std::string_view name, std::string_view category, TimelinePlace place,
                           Nanos from, Nanos to, const Json& args) {
  begin('X', name, category, place);
  out_ += ",\"ts\":" + microseconds(from) + ",\"dur\":" + microseconds(to - from) +
          ",\"args\":" + json_text(args) + "}";
}

void TimelineEvents::counter(std::string_view name, TimelinePlace place, Nanos time,
                             const Json& args) {
  begin('C', name, {}, place);
  out_ += ",\"ts\":" + microseconds(time) + ",\"args\":" + json_text(args) + "}";
}

void TimelineEvents::instant(std::string_view name, std::string_view category, TimelinePlace place,
                             Nanos time, Scope scope, const Json& args) {
  begin('i', name, category, place);
  out_ += ",\"ts\":" + microseconds(time) + ",\"s\":\"";
  out_ += static_cast<char>(scope);
  out_ += "\",\"args\":" + json_text(args) + "}";
}

void TimelineEvents::arrow(std::uint64_t id, Arrow part, TimelinePlace place, Nanos time) {
  begin(static_cast<char>(part), "meets", "meets", place);
  out_ += ",\"id\":" + std::to_string(id) + ",\"ts\":" + microseconds(time);
  if (part == Arrow::ends) out_ += R"(,"bp":"e")";  // ends in the slice around it, not the next
  out_ += "}";
}

}  // namespace lockstep
