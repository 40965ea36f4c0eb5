#include "trace/formats/flight_recorder/dump_threads.h"

#include <algorithm>
#include <cstddef>

namespace lockstep::trace {

std::uint16_t DumpThreads::of(const DumpEntry& entry) {
  // Autograd's thread works while the one that called backward() waits for it.
  constexpr std::string_view kAutograd = "pt_autograd_";
  if (tree_.text(entry[DumpKey::thread_name]).starts_with(kAutograd)) return 0;
  const std::string_view id = tree_.text(entry[DumpKey::thread_id]);
  if (id.empty()) return 0;
  if (id == last_id_) return last_;
  constexpr std::size_t kMost = UINT16_MAX;
  const auto next = static_cast<std::uint16_t>(std::min(numbers_.size() + 1, kMost));
  last_ = numbers_.try_emplace(id, next).first->second;
  last_id_ = id;
  return last_;
}

void DumpThreads::finish(RankTrace& trace) const {
  if (numbers_.empty()) return;
  std::vector<std::size_t> calls_of(numbers_.size() + 1);
  for (const Call& call : trace.calls) ++calls_of[call.thread];
  const auto first = static_cast<std::uint16_t>(
      std::max_element(calls_of.begin() + 1, calls_of.end()) - calls_of.begin());
  trace.occurs.threads = false;
  for (Call& call : trace.calls.own()) {
    if (call.thread == first) call.thread = 0;
    trace.occurs.threads |= call.thread != 0;
  }
}

}  // namespace lockstep::trace
