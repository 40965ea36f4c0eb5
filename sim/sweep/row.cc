#include "sim/sweep/row.h"

#include <array>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "base/check.h"
#include "base/text.h"

namespace lockstep::sim {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::array kOutcomes = {Outcome::trains, Outcome::hangs, Outcome::wrong, Outcome::refused,
                                  Outcome::failed};
constexpr int kDeepest = 40;  // a scenario's values are nested 32 deep at most
// The `verdict` of a row that trains.
constexpr std::string_view kFits = "ok";
constexpr std::string_view kDoesNotFit = "does-not-fit";

// Each function reads a value of its type from the object; the first key that is missing or has
// another type is remembered.
class Reader {
 public:
  explicit Reader(const OrderedJson& object) : object_(object) {}

  std::string text(const char* key) {
    return has(key, &OrderedJson::is_string) ? object_[key].get<std::string>() : std::string();
  }
  double number(const char* key) {
    if (!has(key, &OrderedJson::is_number)) return 0;
    const double value = object_[key];
    // Figures are never negative, infinite or NaN.
    if (!(value >= 0 && std::isfinite(value))) problem_ = key;
    return value;
  }
  std::int64_t whole(const char* key) {
    return has(key, &OrderedJson::is_number_integer) ? object_[key].get<std::int64_t>() : 0;
  }
  bool yes_or_no(const char* key) {
    return has(key, &OrderedJson::is_boolean) && object_[key].get<bool>();
  }
  OrderedJson mapping(const char* key) {
    return has(key, &OrderedJson::is_object) ? object_[key] : OrderedJson::object();
  }
  const std::string& problem() const { return problem_; }

 private:
  bool has(const char* key, bool (OrderedJson::*is)() const noexcept) {
    const bool there = object_.contains(key) && (object_[key].*is)();
    if (!there) problem_ = key;
    return there;
  }

  const OrderedJson& object_;
  std::string problem_;
};

Error not_a_row(const std::string& why) {
  return {fmt::format("this is not a row of a sweep: {}", why),
          {},
          "take the line away: its point is tried again"};
}

std::optional<Outcome> outcome_named(std::string_view verdict) {
  if (verdict == kFits || verdict == kDoesNotFit) return Outcome::trains;
  for (const Outcome outcome : kOutcomes)
    if (outcome != Outcome::trains && to_string(outcome) == verdict) return outcome;
  return std::nullopt;
}

}  // namespace

std::string_view to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::trains:
      return "trains";
    case Outcome::hangs:
      return "hangs";
    case Outcome::wrong:
      return "wrong";
    case Outcome::refused:
      return "refused";
    case Outcome::failed:
      return "failed";
  }
  LOCKSTEP_CHECK(false, "no such outcome");
}

std::string point_key(const std::string& machine, const OrderedJson& values) {
  std::map<std::string, std::string> sorted;
  const auto text = [](const nlohmann::json& one) {
    return one.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  for (const auto& [key, value] : values.items()) sorted[key] = text(value);
  return text({machine, sorted});
}

std::string row_line(const Row& row, bool fits) {
  const bool trains = row.outcome == Outcome::trains;
  OrderedJson out;
  out["machine"] = row.machine;
  out["values"] = row.values;
  out["verdict"] = trains ? (fits ? kFits : kDoesNotFit) : to_string(row.outcome);
  if (!trains) out["reason"] = to_utf8(row.reason);
  if (row.ranks > 0) out["ranks"] = row.ranks;
  if (trains) {
    out["step_time_s"] = row.step_seconds;
    out["samples_per_s"] = row.samples_per_second;
    out["samples_per_s_per_rank"] = row.samples_per_second_per_rank();
    out["memory_bytes"] = row.memory_bytes;
    out["memory_counted"] = row.memory_counted;
    if (row.device_bytes) out["device_bytes"] = *row.device_bytes;
    out["fits"] = fits;
    if (row.transformer) {
      out["tokens_per_s_per_rank"] = row.transformer->tokens_per_second_per_rank;
      out["mfu"] = row.transformer->mfu;
      out["bubble"] = row.transformer->bubble;
    } else {
      out["bytes_sent_per_step"] = row.sent_bytes;
      out["calls_per_step"] = row.calls;
    }
  }
  return fmt::format("{}\n", out.dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
}

Result<Row> parse_row(std::string_view line) {
  bool deep = false;  // deeper values are dropped while parsing, and never walked
  const OrderedJson object = OrderedJson::parse(
      line,
      [&](int depth, OrderedJson::parse_event_t, const OrderedJson&) {
        deep = deep || depth > kDeepest;
        return depth <= kDeepest;
      },
      /*allow_exceptions=*/false);
  if (!object.is_object() || deep) return not_a_row("not a JSON object, or values nested too deep");
  Reader reader(object);
  Row out;
  out.machine = reader.text("machine");
  out.values = reader.mapping("values");
  const std::string verdict = reader.text("verdict");
  const std::optional<Outcome> outcome = outcome_named(verdict);
  if (!outcome) return not_a_row(fmt::format("no such verdict: \"{}\"", printable(verdict)));
  out.outcome = *outcome;
  if (out.outcome == Outcome::trains || object.contains("ranks")) {
    out.ranks = reader.whole("ranks");
    if (out.ranks < 1) return not_a_row("a job has at least one rank");
  }
  if (out.outcome == Outcome::trains) {
    out.step_seconds = reader.number("step_time_s");
    out.samples_per_second = reader.number("samples_per_s");
    out.memory_bytes = reader.number("memory_bytes");
    out.memory_counted = reader.yes_or_no("memory_counted");
    if (object.contains("device_bytes")) out.device_bytes = reader.number("device_bytes");
    if (object.contains("mfu")) {
      out.transformer = TransformerFigures{reader.number("tokens_per_s_per_rank"),
                                           reader.number("mfu"), reader.number("bubble")};
    } else {
      out.sent_bytes = reader.number("bytes_sent_per_step");
      out.calls = reader.number("calls_per_step");
    }
  } else {
    out.reason = reader.text("reason");
  }
  if (!reader.problem().empty())
    return not_a_row(fmt::format("\"{}\" is missing, or not what it should be", reader.problem()));
  return out;
}

}  // namespace lockstep::sim
