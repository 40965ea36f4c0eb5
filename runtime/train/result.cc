#include "runtime/train/result.h"

#include <sys/resource.h>
#include <unistd.h>

#include <numeric>

#include <nlohmann/json.hpp>

#include "base/files/write_file.h"
#include "base/numbers.h"

namespace lockstep::runtime {
namespace {

std::int64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * std::int64_t{1024};  // Linux counts in KiB
}

}  // namespace

Status write_result(const WorkerResult& result, const std::string& path) {
  const double total_ms = std::accumulate(result.step_ms.begin(), result.step_ms.end(), 0.0);
  using Json = nlohmann::ordered_json;
  Json json;
  json["rank"] = result.rank;
  json["steps"] = result.losses.size();
  json["first_loss"] = result.losses.empty() ? Json() : Json(result.losses.front());
  json["last_loss"] = result.losses.empty() ? Json() : Json(result.losses.back());
  json["losses"] = result.losses;
  json["step_ms_median"] = median(result.step_ms);
  json["samples_per_s"] = total_ms > 0 ? static_cast<double>(result.samples) / total_ms * 1e3 : 0;
  json["recording_ns"] = result.recording_ns;
  json["watch_share"] = total_ms > 0 ? static_cast<double>(result.watch_ns) / (total_ms * 1e6) : 0;
  json["recording_events"] = result.recording_events;
  json["recording_share"] =
      total_ms > 0 ? static_cast<double>(result.recording_ns) / (total_ms * 1e6) : 0;
  if (result.idle_ns) {
    json["idle_share"] = total_ms > 0 ? static_cast<double>(*result.idle_ns) / (total_ms * 1e6) : 0;
  }
  if (result.balance) {
    const BalanceReport& b = *result.balance;
    json["balance"] = {{"fixed_steps", b.fixed.steps},
                       {"fixed_idle_share", b.fixed.idle_share},
                       {"balanced_steps", b.balanced.steps},
                       {"balanced_idle_share", b.balanced.idle_share},
                       {"image_ms", b.image_ms},
                       {"text_ms", b.text_ms},
                       {"step_ms", b.step_ms}};
  }
  if (!result.step_flops.empty()) json["step_flops"] = result.step_flops;
  json["data_wait_share"] = total_ms > 0 ? result.data_wait_ms / total_ms : 0;
  json["skipped_items"] = result.skipped;
  json["peak_rss_bytes"] = peak_rss_bytes();
  if (result.device_memory) {
    json["device_memory"] = {{"allocated_bytes", result.device_memory->allocated},
                             {"peak_bytes", result.device_memory->peak},
                             {"reserved_bytes", result.device_memory->reserved}};
  }
  if (result.retrieval) {
    json["retrieval"] = {{"recall_at_1", result.retrieval->recall_at_1},
                         {"recall_at_5", result.retrieval->recall_at_5},
                         {"recall_at_10", result.retrieval->recall_at_10},
                         {"chance", result.retrieval->chance},
                         {"items", result.retrieval->items},
                         {"image_sketches", result.retrieval->image_sketches}};
  }
  if (result.times_mean_nothing) json["times_mean_nothing"] = true;
  json["error"] = result.error ? Json(*result.error) : Json();

  // An exception's text may hold any bytes: replace invalid UTF-8, because dump() would throw.
  return write_file(path, json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

std::int64_t resident_bytes(pid_t process) {
  // The second field, in pages (proc(5)): "28713 1523 1210 …".
  std::ifstream statm("/proc/" + std::to_string(process) + "/statm");
  std::int64_t total = 0;
  std::int64_t resident = 0;
  statm >> total >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

void StepLog::write(const StepMetrics& m) {
  nlohmann::ordered_json line;
  line["step"] = m.step;
  line["loss"] = m.loss;
  line["lr"] = m.learning_rate;
  line["loss_scale"] = m.loss_scale;
  line["ms"] = m.ms;
  line["data_ms"] = m.data_ms;
  line["wait_ms"] = m.wait_ms;
  line["samples"] = m.samples;
  line["samples_per_s"] = m.ms > 0 ? static_cast<double>(m.samples) / m.ms * 1e3 : 0;
  line["rss_bytes"] = resident_bytes(::getpid());
  if (m.balanced) line["balanced"] = *m.balanced;
  if (m.idle_share_before) line["idle_share_before"] = *m.idle_share_before;
  out_ << line.dump() << '\n' << std::flush;
}

}  // namespace lockstep::runtime
