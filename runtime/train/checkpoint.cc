#include "runtime/train/checkpoint.h"

#include <zlib.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

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

// The folders of steps that are there now: other ranks make and remove them meanwhile.
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

// In the order of names: the file has an order of its own.
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

}  // namespace

std::string Checkpoints::file_of(std::int64_t steps, int rank) const {
  return step_folder(folder_, steps) + "/rank_" + std::to_string(rank) + ".safetensors";
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
  // load() prefers a gathered one, which would be an earlier job's.
  std::error_code absent;
  if (who_.rank == 0) fs::remove(whole_file_of(steps), absent);
  remove_others(steps);
  return written;
}

Status Checkpoints::save_gathered(const TrainingState& state, Strategy& strategy,
                                  std::int64_t steps) const {
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
    // The last rank's removal empties it. Into a later one another rank may be about to write.
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
  const auto said = [&](const char* key) {
    const auto& metadata = file->header().metadata;
    const auto found = metadata.find(key);
    return found == metadata.end() ? std::string() : found->second;
  };
  if (!is_whole && said("world_size") != std::to_string(who_.world_size)) {
    return refuse("the checkpoint is of " + printable(said("world_size")) + " ranks, the job has " +
                      std::to_string(who_.world_size),
                  "start as many ranks as then, or save with \"layout: gathered\"");
  }
  if (said("data") != std::to_string(digest_)) {
    return refuse("the checkpoint is of another data set", "train on the data that it was made on");
  }
  const at::NoGradGuard no_grad;
  TensorsByName stored;
  for (const StoredTensor& tensor : file->header().tensors) {
    at::Tensor value = at::empty(tensor.shape, scalar_type_of(tensor.type));
    const std::span<std::byte> to(static_cast<std::byte*>(value.mutable_data_ptr()),
                                  value.nbytes());
    if (const Status ok = file->read(tensor, to); !ok) return ok;
    stored.emplace(tensor.name, value);
  }
  if (checksum_of(stored) != said("checksum")) {
    return refuse("the checkpoint is damaged: its checksum does not fit",
                  "resume from an earlier one");
  }
  const std::string wrong = restore(state, strategy, stored, is_whole);
  if (!wrong.empty()) {
    return refuse("the checkpoint does not fit this model: " + printable(wrong),
                  "resume with the scenario that it was made with");
  }
  return Status::ok();
}

}  // namespace lockstep
