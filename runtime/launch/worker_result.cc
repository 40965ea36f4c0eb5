#include "runtime/launch/worker_result.h"

#include <nlohmann/json.hpp>

#include "base/files/read_file.h"

namespace lockstep {

namespace {

using Json = nlohmann::json;

std::optional<double> number(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

std::int64_t whole(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || !found->is_number_integer() ? 0 : found->get<std::int64_t>();
}

std::vector<double> numbers_at(const Json& object, const char* key) {
  std::vector<double> out;
  const auto found = object.find(key);
  if (found == object.end() || !found->is_array()) return out;
  for (const Json& value : *found) out.push_back(value.is_number() ? value.get<double>() : 0);
  return out;
}

}  // namespace

std::optional<WorkerNumbers> read_worker_numbers(const std::string& path) {
  constexpr std::size_t kMost = std::size_t{1} << 26U;  // a page, and 8 numbers an evaluated image
  const Result<std::string> text = read_file(path, kMost);
  if (!text) return std::nullopt;
  const Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  WorkerNumbers out;
  out.steps = whole(json, "steps");
  out.first_loss = number(json, "first_loss");
  out.last_loss = number(json, "last_loss");
  out.step_ms_median = number(json, "step_ms_median").value_or(0);
  out.samples_per_s = number(json, "samples_per_s").value_or(0);
  out.watch_share = number(json, "watch_share").value_or(0);
  out.recording_share = number(json, "recording_share").value_or(0);
  out.data_wait_share = number(json, "data_wait_share").value_or(0);
  out.skipped_items = whole(json, "skipped_items");
  out.idle_share = number(json, "idle_share");
  out.peak_rss_bytes = whole(json, "peak_rss_bytes");
  out.step_flops = numbers_at(json, "step_flops");
  if (const auto found = json.find("balance"); found != json.end() && found->is_object()) {
    out.balance = {whole(*found, "fixed_steps"),
                   whole(*found, "balanced_steps"),
                   number(*found, "fixed_idle_share").value_or(0),
                   number(*found, "balanced_idle_share").value_or(0),
                   number(*found, "image_ms").value_or(0),
                   number(*found, "text_ms").value_or(0)};
  }
  if (const auto found = json.find("retrieval"); found != json.end() && found->is_object()) {
    out.retrieval = {number(*found, "recall_at_1").value_or(0),
                     number(*found, "recall_at_5").value_or(0),
                     number(*found, "recall_at_10").value_or(0),
                     number(*found, "chance").value_or(0),
                     whole(*found, "items"),
                     numbers_at(*found, "image_sketches")};
  }
  return out;
}

}  // namespace lockstep
