#include "runtime/train/checkpoint.h"

#include <zlib.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "base/numbers.h"
#include "base/text.h"
#include "runtime/models/safetensors.h"
#include "runtime/models/weights.h"

namespace lockstep::runtime {
namespace {

namespace fs = std::filesystem;

using TensorsByName = std::map<std::string, at::Tensor>;

constexpr std::string_view kStepPrefix = "step_";

std::string step_folder(const std::string& folder, std::int64_t steps) {
  std::string digits = std::to_string(steps);
  constexpr std::size_t kDigits = 6;
  digits.insert(0, digits.size() < kDigits ? kDigits - digits.size() : 0, '0');
  return folder + "/" + std::string(kStepPrefix) + digits;
}

// "step_000040" → 40; nothing for other names.
std::optional<std::int64_t> steps_of(const std::string& name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  return parse_number<std::int64_t>(std::string_view(name).substr(kStepPrefix.size()));
}

// The step folders that exist now. Other ranks create and remove some meanwhile, so an iteration
// that fails half-way ends the list and is not an error.
std::vector<std::pair<std::int64_t, fs::path>> step_folders(const std::string& folder) {
  std::vector<std::pair<std::int64_t, fs::path>> all;
  std::error_code failed;
  for (fs::directory_iterator it(folder, failed), end; !failed && it != end; it.increment(failed)) {
    if (const auto steps = steps_of(it->path().filename().string())) {
      all.emplace_back(*steps, it->path());
    }
  }
  return all;
}

std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

// CRC-32 of all tensors in the order of their names, because the order in a file may differ.
std::string checksum_of(const TensorsByName& tensors) {
  uLong sum = crc32_z(0, nullptr, 0);
  for (const auto& [name, tensor] : tensors) {
    const auto bytes = bytes_of(tensor);
    sum = crc32_z(sum, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
  }
  return std::to_string(sum);
}

Status write(const NamedTensors& tensors, const std::string& path,
             std::map<std::string, std::string> metadata) {
  NamedTensors all;  // on the host
  for (const auto& [name, tensor] : tensors) all.emplace_back(name, tensor.detach().to(at::kCPU));
  std::vector<TensorToStore> stored;
  for (const auto& [name, tensor] : all) {
    const auto type = stored_type_of(tensor.scalar_type());
    LOCKSTEP_CHECK(type.has_value(), "a type that a checkpoint cannot hold");
    stored.push_back({name, *type, tensor.sizes().vec(), bytes_of(tensor)});
  }
  metadata["checksum"] = checksum_of(TensorsByName(all.begin(), all.end()));
  return write_safetensors(path, stored, metadata);
}

Status make_folder(const std::string& folder, const std::string& step) {
  std::error_code failed;
  fs::create_directories(step, failed);
  if (!failed) return Status::ok();
  return Error{"cannot make the checkpoint's folder: " + failed.message(),
               {folder},
               "name a folder that can be written"};
}

// The optimizer's state of one parameter. With `make`, it is created first if the optimizer has not
// stepped yet, as after a restart.
struct Moments {
  NamedTensors tensors;
  std::function<std::int64_t()> step;
  std::function<void(std::int64_t)> set_step;
};

Moments moments_of(torch::optim::Optimizer& optimizer, const at::Tensor& parameter, bool make) {
  Moments out;
  auto& states = optimizer.state();
  void* const key = parameter.unsafeGetTensorImpl();
  const bool is_adam = dynamic_cast<torch::optim::AdamW*>(&optimizer) != nullptr;
  if (!is_adam) return out;  // SGD without momentum has no state
  if (states.find(key) == states.end()) {
    if (!make) return out;
    auto fresh = std::make_unique<torch::optim::AdamWParamState>();
    fresh->step(0);
    fresh->exp_avg(at::zeros_like(parameter));
    fresh->exp_avg_sq(at::zeros_like(parameter));
    states[key] = std::move(fresh);
  }
  auto& state = static_cast<torch::optim::AdamWParamState&>(*states[key]);
  out.tensors = {{"exp_avg", state.exp_avg()}, {"exp_avg_sq", state.exp_avg_sq()}};
  out.step = [&state] { return state.step(); };
  out.set_step = [&state](std::int64_t n) { state.step(n); };
  return out;
}

at::Tensor random_state() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void set_random_state(const at::Tensor& state) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

// The part that is the same in both layouts.
void add_rest(const TrainingState& state, NamedTensors& all) {
  all.emplace_back("loss_scale", state.scaler.scale_state().contiguous());
  all.emplace_back("loss_scale_growth", state.scaler.growth_state().contiguous());
  all.emplace_back("random", random_state());
}

// Copies what tensors_of_rank() or whole_tensors() made into the state, and remembers the first
// name that does not fit; then the state is unusable.
class Restore {
 public:
  Restore(TrainingState& state, Strategy& strategy, const TensorsByName& stored, bool is_whole)
      : state_(state), strategy_(strategy), stored_(stored), is_whole_(is_whole) {}

  // Returns the first name that the file lacks or holds in another shape; empty if everything fits.
  std::string run() {
    const std::string buffer = is_whole_ ? "" : "buffer.";
    for (auto& [name, tensor] : state_.optimised) {
      tensor.copy_(value_of(name, tensor, is_whole_ ? "" : "parameter.", ""));
      restore_moments(name, tensor);
    }
    for (auto& [name, tensor] : state_.buffers) tensor.copy_(find(buffer + name, tensor));
    for (const auto& [name, to] : {std::pair{"loss_scale", state_.scaler.scale_state()},
                                   std::pair{"loss_scale_growth", state_.scaler.growth_state()}}) {
      to.copy_(find(name, to));
    }
    const auto random = stored_.find("random");
    if (random == stored_.end()) wrong_ = "random";
    if (wrong_.empty()) set_random_state(random->second);
    return wrong_;
  }

 private:
  // Returns zeros for what does not fit; the caller gives the state up then.
  at::Tensor find(const std::string& name, const at::Tensor& like) {
    const auto found = stored_.find(name);
    if (found != stored_.end() && found->second.sizes() == like.sizes()) return found->second;
    if (wrong_.empty()) wrong_ = name;
    return at::zeros(like.sizes(), like.options());
  }

  at::Tensor value_of(const std::string& name, const at::Tensor& optimised,
                      const std::string& before, const std::string& suffix) {
    if (!is_whole_) return find(before + name + suffix, optimised);
    return strategy_.part(name, optimised,
                          [&](const std::string& parameter, const at::Tensor& like) {
                            return find(before + parameter + suffix, like);
                          });
  }

  // The largest step count of the parameters in `name`; nothing if none of them had a gradient so
  // far. A shard holds several parameters but has one step count. Those that had no gradient have
  // moments of 0 in it.
  std::optional<std::int64_t> steps_of(const std::string& name, const at::Tensor& optimised) {
    std::optional<std::int64_t> most;
    const auto look = [&](const std::string& parameter) {
      const auto found = stored_.find("optimizer." + parameter + ".step");
      if (found == stored_.end() || found->second.numel() != 1) return;
      most = std::max(most.value_or(0), found->second.item<std::int64_t>());
    };
    if (!is_whole_) {
      look(name);
      return most;
    }
    strategy_.part(name, optimised, [&](const std::string& parameter, const at::Tensor& like) {
      look(parameter);
      return at::zeros(like.sizes(), like.options());
    });
    return most;
  }

  void restore_moments(const std::string& name, const at::Tensor& optimised) {
    const auto steps = steps_of(name, optimised);
    if (!steps) return;
    const Moments moments = moments_of(state_.optimizer, optimised, true);
    for (const auto& [kind, value] : moments.tensors) {
      const std::string end = "." + kind;
      if (!is_whole_) {
        value.copy_(find("optimizer." + name + end, value));
        continue;
      }
      value.copy_(strategy_.part(
          name, optimised, [&](const std::string& parameter, const at::Tensor& like) {
            const std::string key = "optimizer." + parameter;
            return stored_.contains(key + ".step") ? find(key + end, like)
                                                   : at::zeros(like.sizes(), like.options());
          }));
    }
    if (moments.set_step) moments.set_step(*steps);
  }

  TrainingState& state_;
  Strategy& strategy_;
  const TensorsByName& stored_;
  bool is_whole_;
  std::string wrong_;
};

// This rank's state as contiguous tensors. Names have the prefix "parameter.", "optimizer." or
// "buffer."; those of the optimizer end in ".exp_avg", ".exp_avg_sq" or ".step" (one number).
NamedTensors tensors_of_rank(const TrainingState& state) {
  NamedTensors all;
  for (const auto& [name, tensor] : state.optimised) {
    all.emplace_back("parameter." + name, tensor.detach().contiguous());
    const Moments moments = moments_of(state.optimizer, tensor, false);
    for (const auto& [kind, value] : moments.tensors) {
      all.emplace_back("optimizer." + name + "." + kind, value.contiguous());
    }
    if (moments.step) {
      all.emplace_back("optimizer." + name + ".step", at::full({1}, moments.step(), at::kLong));
    }
  }
  for (const auto& [name, tensor] : state.buffers) {
    all.emplace_back("buffer." + name, tensor.contiguous());
  }
  add_rest(state, all);
  return all;
}

// The same with whole parameters and buffers under their own names. Collective if the strategy
// shards. With `keep` false this rank only takes part, and gets an empty list.
NamedTensors whole_tensors(const TrainingState& state, Strategy& strategy, bool keep) {
  NamedTensors all;
  for (const auto& [name, tensor] : state.optimised) {
    NamedTensors parameters = strategy.whole(name, tensor.detach());
    const Moments moments = moments_of(state.optimizer, tensor, false);
    for (const auto& [kind, value] : moments.tensors) {
      for (const auto& [parameter, part] : strategy.whole(name, value)) {
        if (keep) all.emplace_back("optimizer." + parameter + "." + kind, part.contiguous());
      }
    }
    for (const auto& [parameter, value] : parameters) {
      if (!keep) continue;
      all.emplace_back(parameter, value.contiguous());
      if (!moments.step) continue;
      all.emplace_back("optimizer." + parameter + ".step",
                       at::full({1}, moments.step(), at::kLong));
    }
  }
  if (!keep) return {};
  for (const auto& [name, tensor] : state.buffers) all.emplace_back(name, tensor.contiguous());
  add_rest(state, all);
  return all;
}

}  // namespace

std::string Checkpoints::file_of(std::int64_t steps, int rank) const {
  return c10::str(step_folder(folder_, steps), "/rank_", rank, ".safetensors");
}

std::string Checkpoints::whole_file_of(std::int64_t steps) const {
  return step_folder(folder_, steps) + "/whole.safetensors";
}

Status Checkpoints::save(const TrainingState& state, std::int64_t steps) const {
  if (files_ == Files::none) return Status::ok();
  if (const Status made = make_folder(folder_, step_folder(folder_, steps)); !made) return made;
  const Status written = write(tensors_of_rank(state), file_of(steps, who_.rank),
                               {{"steps", std::to_string(steps)},
                                {"world_size", std::to_string(who_.world_size)},
                                {"data", std::to_string(digest_)}});
  if (!written) return written;
  // Remove a gathered file of an earlier job: load() would prefer it.
  std::error_code absent;
  if (who_.rank == 0) fs::remove(whole_file_of(steps), absent);
  remove_others(steps);
  return written;
}

Status Checkpoints::save_gathered(const TrainingState& state, Strategy& strategy,
                                  std::int64_t steps) const {
  // All ranks take part in gathering; rank 0 writes.
  const bool writes = who_.rank == 0;
  const NamedTensors all = whole_tensors(state, strategy, writes);
  if (!writes || files_ == Files::none) return Status::ok();
  if (const Status made = make_folder(folder_, step_folder(folder_, steps)); !made) return made;
  const Status written =
      write(all, whole_file_of(steps),
            {{"steps", std::to_string(steps)}, {"data", std::to_string(digest_)}});
  if (written) remove_others(steps);
  return written;
}

void Checkpoints::remove_others(std::int64_t saved) const {
  const std::int64_t kept = latest_up_to(saved).value_or(saved);
  std::error_code failed;
  for (const auto& [steps, folder] : step_folders(folder_)) {
    if (steps >= kept && steps <= saved) continue;
    fs::remove(file_of(steps, who_.rank), failed);
    if (who_.rank == 0) fs::remove(whole_file_of(steps), failed);
    // This fails until the last rank has removed its file, and that is fine. Leave later folders
    // alone: another rank may be about to write into one.
    if (steps < saved) fs::remove(folder, failed);
  }
}

std::optional<std::int64_t> Checkpoints::latest() const {
  return latest_up_to(std::numeric_limits<std::int64_t>::max());
}

std::optional<std::int64_t> Checkpoints::latest_up_to(std::int64_t most) const {
  std::optional<std::int64_t> best;
  if (files_ == Files::none) return best;
  std::error_code failed;
  for (const auto& [steps, folder] : step_folders(folder_)) {
    if (steps > most || (best && steps <= *best)) continue;
    // Complete: every rank's file is there, or a gathered one.
    bool whole = true;
    for (int rank = 0; rank < who_.world_size; ++rank) {
      whole = whole && fs::exists(file_of(steps, rank), failed);
    }
    if (whole || fs::exists(whole_file_of(steps), failed)) best = steps;
  }
  return best;
}

Status Checkpoints::load(TrainingState& state, Strategy& strategy, std::int64_t steps) const {
  std::error_code failed;
  const bool is_whole = fs::exists(whole_file_of(steps), failed);
  const std::string path = is_whole ? whole_file_of(steps) : file_of(steps, who_.rank);
  const Result<SafetensorsFile> file = SafetensorsFile::open(path);
  if (!file) return file.error();
  const auto refuse = [&](std::string message, std::string fix) -> Status {
    return Error{std::move(message), {path}, std::move(fix)};
  };
  const auto recorded = [&](const char* key) {
    const auto& metadata = file->header().metadata;
    const auto found = metadata.find(key);
    return found == metadata.end() ? std::string() : found->second;
  };
  // Check that the file belongs to this job before anything is copied.
  if (!is_whole && recorded("world_size") != std::to_string(who_.world_size)) {
    return refuse(c10::str("the checkpoint is of ", printable(recorded("world_size")),
                           " ranks, the job has ", who_.world_size),
                  "start the same number of ranks, or save with \"layout: gathered\"");
  }
  if (recorded("data") != std::to_string(digest_)) {
    return refuse("the checkpoint is of another data set", "train on the data that it was made on");
  }
  // Read everything and check the checksum, and only then change the state.
  const at::NoGradGuard no_grad;
  TensorsByName stored;
  for (const StoredTensor& tensor : file->header().tensors) {
    at::Tensor value = at::empty(tensor.shape, scalar_type_of(tensor.type));
    const std::span<std::byte> to(static_cast<std::byte*>(value.mutable_data_ptr()),
                                  value.nbytes());
    if (const Status ok = file->read(tensor, to); !ok) return ok;
    stored.emplace(tensor.name, value);
  }
  if (checksum_of(stored) != recorded("checksum")) {
    return refuse("the checkpoint is damaged: its checksum does not fit",
                  "resume from an earlier one");
  }
  const std::string wrong = Restore(state, strategy, stored, is_whole).run();
  if (!wrong.empty()) {
    return refuse("the checkpoint does not fit this model: " + printable(wrong),
                  "resume with the scenario that it was made with");
  }
  return Status::ok();
}

}  // namespace lockstep::runtime
