// Writes events of the Trace Event Format, one a line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "trace/ids.h"

namespace lockstep {

// Where an event is shown. Process 0 and its thread 0 mean the idle task to Perfetto, so that both
// are counted from 1, threads over all processes.
struct TimelinePlace {
  std::uint64_t process = 1;
  std::uint64_t thread = 1;
};

class TimelineEvents {
 public:
  // `kind`: process_name, thread_name, … with its one argument.
  void metadata(std::string_view kind, TimelinePlace place, const nlohmann::ordered_json& args);
  void slice(std::string_view name, std::string_view category, TimelinePlace place, Nanos begin,
             Nanos end, const nlohmann::ordered_json& args);
  enum class Scope : char { thread = 't', process = 'p', global = 'g' };
  // Values that hold from `time` on, a part each of a stack; `args`: numbers.
  void counter(std::string_view name, TimelinePlace place, Nanos time,
               const nlohmann::ordered_json& args);
  void instant(std::string_view name, std::string_view category, TimelinePlace place, Nanos time,
               Scope scope, const nlohmann::ordered_json& args);
  enum class Arrow : char { begins = 's', goes_on = 't', ends = 'f' };
  void arrow(std::uint64_t id, Arrow part, TimelinePlace place, Nanos time);

  // The array's elements, separated by commas and line feeds.
  std::string take() { return std::move(out_); }

 private:
  void begin(char phase, std::string_view name, std::string_view category, TimelinePlace place);
  std::string out_;
};

// Any bytes as a JSON string with its quotes.
std::string json_string(std::string_view bytes);

}  // namespace lockstep
