#include "runtime/groups/broadcast_batch.h"

#include <ATen/ATen.h>

#include "runtime/groups/collectives.h"
#include "runtime/record/c10d/host_read.h"

namespace lockstep {
namespace {

void send(c10d::ProcessGroup& group, Recorder& recorder, const char* name, at::Tensor tensor) {
  const NoteScope scope(recorder, recorder.note({name}, "data.broadcast"));
  broadcast(group, std::move(tensor));
}

// Brings it to the host, which waits for it where calls are queued.
void read(Recorder& recorder, at::Tensor& tensor) {
  const HostRead reading(recorder, tensor);
  tensor = tensor.cpu();
}

}  // namespace

void broadcast_batch(c10d::ProcessGroup& group, Recorder& recorder, Batch& batch) {
  const auto images = batch.has_image() ? batch.images.size(0) : 0;
  const auto rows_of = [](const at::Tensor& t) { return t.defined() ? t.size(0) : 0; };
  at::Tensor sizes = at::tensor(
      {static_cast<std::int64_t>(batch.indices.size()), images,
       images == 0 ? 0 : batch.images.size(2), rows_of(batch.tokens), rows_of(batch.image_rows)},
      at::kLong);
  send(group, recorder, "batch.sizes", sizes);
  read(recorder, sizes);
  const auto count = sizes[0].item<std::int64_t>();
  const auto with_image = sizes[1].item<std::int64_t>();
  const auto texts = sizes[3].item<std::int64_t>();
  const auto pairs = sizes[4].item<std::int64_t>();
  const bool source = group.getRank() == 0;

  at::Tensor indices =
      source ? at::tensor(batch.indices, at::kLong) : at::empty({count}, at::kLong);
  send(group, recorder, "batch.indices", indices);
  read(recorder, indices);
  const auto* first = indices.const_data_ptr<std::int64_t>();
  batch.indices.assign(first, first + count);
  if (!source) batch.tokens = at::empty({texts, batch.tokens.size(1)}, at::kLong);
  send(group, recorder, "batch.tokens", batch.tokens);
  if (with_image == 0) return batch.drop_images();
  if (!source) {
    const auto side = sizes[2].item<std::int64_t>();
    batch.images = at::empty({with_image, 3, side, side});
    batch.image_rows = at::empty({pairs}, at::kLong);
  }
  send(group, recorder, "batch.images", batch.images);
  send(group, recorder, "batch.image_rows", batch.image_rows);
}

}  // namespace lockstep
