#include "runtime/checkpoint.h"

#include <zlib.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "base/text.h"
#include "runtime/models/safetensors.h"
#include "runtime/models/weights.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStepPrefix = "step_";

std::string step_folder(const std::string& folder, std::int64_t steps) {
  std::string digits = std::to_string(steps);
  constexpr std::size_t kDigits = 6;
  digits.insert(0, digits.size() < kDigits ? kDigits - digits.size() : 0, '0');
  return folder + "/" + std::string(kStepPrefix) + digits;
}

// The number behind the prefix; nothing for other names.
std::optional<std::int64_t> steps_of(const std::string& name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  std::int64_t steps = 0;
  const char* const end = name.data() + name.size();
  const auto [last, problem] = std::from_chars(name.data() + kStepPrefix.size(), end, steps);
  if (problem != std::errc() || last != end) return std::nullopt;
  return steps;
}

// The optimizer's tensors of one parameter; made first where the optimizer has not used it yet.
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

std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

using ByName = std::map<std::string, at::Tensor>;

// In the order of names: the file has an order of its own.
std::string checksum_of(const ByName& tensors) {
  uLong sum = crc32_z(0, nullptr, 0);
  for (const auto& [name, tensor] : tensors) {
    const auto bytes = bytes_of(tensor);
    sum = crc32_z(sum, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
  }
  return std::to_string(sum);
}

// Everything by name, contiguous. `steps` of the moments are tensors of one number.
NamedTensors everything(const TrainingState& state) {
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
  all.emplace_back("loss_scale", state.scaler.scale_state().contiguous());
  all.emplace_back("loss_scale_growth", state.scaler.growth_state().contiguous());
  all.emplace_back("random", random_state());
  return all;
}

}  // namespace

std::string Checkpoints::file_of(std::int64_t steps, int rank) const {
  return step_folder(folder_, steps) + "/rank_" + std::to_string(rank) + ".safetensors";
}

Status Checkpoints::save(const TrainingState& state, std::int64_t steps) const {
  std::error_code failed;
  fs::create_directories(step_folder(folder_, steps), failed);
  if (failed) {
    return Error{"cannot make the checkpoint's folder: " + failed.message(),
                 {folder_},
                 "name a folder that can be written"};
  }
  const NamedTensors all = everything(state);
  std::vector<TensorToStore> stored;
  for (const auto& [name, tensor] : all) {
    const auto type = stored_type_of(tensor.scalar_type());
    LOCKSTEP_CHECK(type.has_value(), "a type that a checkpoint cannot hold");
    stored.push_back({name, *type, tensor.sizes().vec(), bytes_of(tensor)});
  }
  const Status written =
      write_safetensors(file_of(steps, who_.rank), stored,
                        {{"steps", std::to_string(steps)},
                         {"world_size", std::to_string(who_.world_size)},
                         {"data", std::to_string(digest_)},
                         {"checksum", checksum_of(ByName(all.begin(), all.end()))}});
  if (!written) return written;
  const std::optional<std::int64_t> kept = latest();
  for (const auto& entry : fs::directory_iterator(folder_, failed)) {
    const auto older = steps_of(entry.path().filename().string());
    if (!older || !kept || *older >= *kept) continue;
    fs::remove(file_of(*older, who_.rank), failed);
    fs::remove(entry.path(), failed);  // the last rank's removal empties it
  }
  return Status::ok();
}

std::optional<std::int64_t> Checkpoints::latest() const {
  std::optional<std::int64_t> best;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(folder_, failed)) {
    const auto steps = steps_of(entry.path().filename().string());
    if (!steps || (best && *steps <= *best)) continue;
    bool whole = true;
    for (int rank = 0; rank < who_.world_size; ++rank) {
      whole = whole && fs::exists(file_of(*steps, rank), failed);
    }
    if (whole) best = steps;
  }
  return best;
}

Status Checkpoints::load(TrainingState& state, std::int64_t steps) const {
  const std::string path = file_of(steps, who_.rank);
  const Result<SafetensorsFile> file = SafetensorsFile::open(path);
  if (!file) return file.error();
  const auto refuse = [&](std::string message, std::string fix) -> Status {
    return Error{std::move(message), {path}, std::move(fix)};
  };
  const auto said = [&](const char* key) {
    const auto& metadata = file->header().metadata;
    const auto found = metadata.find(key);
    return found == metadata.end() ? std::string() : found->second;
  };
  if (said("world_size") != std::to_string(who_.world_size)) {
    return refuse("the checkpoint is of " + printable(said("world_size")) + " ranks, the job has " +
                      std::to_string(who_.world_size),
                  "start as many ranks as then");
  }
  if (said("data") != std::to_string(digest_)) {
    return refuse("the checkpoint is of another data set", "train on the data that it was made on");
  }
  const at::NoGradGuard no_grad;
  ByName by_name;
  for (const StoredTensor& tensor : file->header().tensors) {
    at::Tensor value = at::empty(tensor.shape, scalar_type_of(tensor.type));
    const std::span<std::byte> to(static_cast<std::byte*>(value.mutable_data_ptr()),
                                  value.nbytes());
    if (const Status ok = file->read(tensor, to); !ok) return ok;
    by_name.emplace(tensor.name, value);
  }
  if (checksum_of(by_name) != said("checksum")) {
    return refuse("the checkpoint is damaged: its checksum does not fit",
                  "resume from an earlier one");
  }
  std::string wrong;
  const auto copy = [&](const std::string& name, at::Tensor to) {
    const auto found = by_name.find(name);
    if (found == by_name.end() || found->second.sizes() != to.sizes()) {
      if (wrong.empty()) wrong = name;
      return;
    }
    to.copy_(found->second);
  };
  for (auto& [name, tensor] : state.optimised) {
    copy("parameter." + name, tensor);
    const std::string prefix = "optimizer." + name + ".";
    if (!by_name.contains(prefix + "step")) continue;  // had no gradient until then
    const Moments moments = moments_of(state.optimizer, tensor, true);
    for (const auto& [kind, value] : moments.tensors) copy(prefix + kind, value);
    if (moments.set_step) moments.set_step(by_name[prefix + "step"].item<std::int64_t>());
  }
  for (auto& [name, tensor] : state.buffers) copy("buffer." + name, tensor);
  copy("loss_scale", state.scaler.scale_state());
  copy("loss_scale_growth", state.scaler.growth_state());
  if (!by_name.contains("random")) wrong = "random";
  if (!wrong.empty()) {
    return refuse("the checkpoint does not fit this model: " + printable(wrong),
                  "resume with the scenario that it was made with");
  }
  set_random_state(by_name["random"]);
  return Status::ok();
}

}  // namespace lockstep
