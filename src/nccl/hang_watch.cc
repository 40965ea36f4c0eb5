#include "nccl/hang_watch.h"

namespace lockstep {

HangWatch::Verdict HangWatch::look(std::uint64_t written, std::int64_t on_device,
                                   std::int64_t now) {
  if (first_ || written != written_) {
    first_ = false;
    written_ = written;
    moved_at_ = now;
    if (!hangs_) return Verdict::as_before;
    hangs_ = false;
    return Verdict::goes_on;
  }
  if (hangs_ || on_device <= 0 || now - moved_at_ < patience_) return Verdict::as_before;
  hangs_ = true;
  return Verdict::hangs;
}

}  // namespace lockstep
