#include <cmath>
#include <limits>
#include <utility>

#include "base/files/mapped_file.h"
#include "trace/formats/ring/ring_layout.h"
#include "trace/formats/ring/ring_reader.h"

namespace lockstep {

struct RingTail::Impl {
  MappedFile file;
  RingLayout layout;
  std::uint64_t next = 0;  // the first record that poll() has not looked at
  Progress progress;
};

RingTail::RingTail(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RingTail::RingTail(RingTail&&) noexcept = default;
RingTail& RingTail::operator=(RingTail&&) noexcept = default;
RingTail::~RingTail() = default;

Result<RingTail> RingTail::open(const std::string& path) {
  Result<MappedFile> file = MappedFile::open(path);
  if (!file) return file.error();
  const Result<RingLayout> layout = RingLayout::of(file->bytes(), path);
  if (!layout) return layout.error();
  auto impl = std::make_unique<Impl>(Impl{std::move(*file), *layout, 0, {}});
  impl->progress.loss = std::numeric_limits<double>::quiet_NaN();
  return RingTail(std::move(impl));
}

std::uint64_t RingTail::written() const { return impl_->layout.written(); }

End RingTail::end() const {
  const std::uint32_t mark = impl_->layout.header->end_mark.load(std::memory_order_acquire);
  return mark <= static_cast<std::uint32_t>(End::killed) ? static_cast<End>(mark) : End::cut;
}

std::int64_t RingTail::pid() const { return impl_->layout.header->pid; }

// A record that is not written yet, or torn, is passed over: progress is only shown to people, and
// the next step's record mends it.
RingTail::Progress RingTail::poll() {
  const RingLayout& layout = impl_->layout;
  const std::uint64_t written = layout.written();
  std::uint64_t number = std::max(impl_->next, layout.oldest(written));
  RingRecord record;
  for (; number < written; ++number) {
    if (load_record(layout, number, record) != RecordState::whole) continue;
    impl_->progress.last_event = record.time;
    if (record.kind != ring::RecordKind::step) continue;
    impl_->progress.steps = std::int64_t{record.id} + 1;
    impl_->progress.loss = record.as<ring::StepFields>().loss;
  }
  impl_->next = written;
  return impl_->progress;
}

}  // namespace lockstep
