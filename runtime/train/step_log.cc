#include "runtime/train/step_log.h"

#include <unistd.h>

#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

// Second field of /proc/self/statm, in pages (proc(5)).
std::int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t total = 0;
  std::int64_t resident = 0;
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace

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
  line["rss_bytes"] = resident_bytes();
  if (m.balanced) line["balanced"] = *m.balanced;
  if (m.idle_share_before) line["idle_share_before"] = *m.idle_share_before;
  out_ << line.dump() << '\n' << std::flush;
}

}  // namespace lockstep
