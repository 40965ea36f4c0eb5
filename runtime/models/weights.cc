#include "runtime/models/weights.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <unordered_map>

#include <ATen/ATen.h>

#include "base/text.h"

namespace lockstep::runtime {
namespace {

constexpr std::size_t kNamesShown = 5;  // names of each kind in a message

constexpr std::array<std::pair<StoredType, at::ScalarType>, 10> kTypes = {
    {{StoredType::F64, at::kDouble},
     {StoredType::F32, at::kFloat},
     {StoredType::F16, at::kHalf},
     {StoredType::BF16, at::kBFloat16},
     {StoredType::I64, at::kLong},
     {StoredType::I32, at::kInt},
     {StoredType::I16, at::kShort},
     {StoredType::I8, at::kChar},
     {StoredType::U8, at::kByte},
     {StoredType::BOOL, at::kBool}}};

using Named = std::vector<std::pair<std::string, at::Tensor>>;

Named state_of(const torch::nn::Module& module) {
  Named all;
  for (const auto& entry : module.named_parameters()) all.emplace_back(entry.key(), entry.value());
  for (const auto& entry : module.named_buffers()) all.emplace_back(entry.key(), entry.value());
  return all;
}

std::string renamed(std::string name, const WeightNames& names) {
  for (const auto& [from, to] : names.prefixes) {
    if (!name.starts_with(from)) continue;
    name = to + name.substr(from.size());
    break;
  }
  for (const auto& [from, to] : names.suffixes) {
    if (!name.ends_with(from)) continue;
    name = name.substr(0, name.size() - from.size()) + to;
    break;
  }
  return name;
}

bool begins_with_any(const std::string& name, const std::vector<std::string>& beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [&](const std::string& text) { return name.starts_with(text); });
}
bool ends_with_any(const std::string& name, const std::vector<std::string>& ends) {
  return std::any_of(ends.begin(), ends.end(),
                     [&](const std::string& text) { return name.ends_with(text); });
}

// The tensors that do not fit, by reason, as texts for a message.
struct Misfits {
  std::vector<std::string> missing, unexpected, misshapen;

  void add_to(std::string& message, const char* what, const std::vector<std::string>& some) const {
    if (some.empty()) return;
    message += c10::str("\n  ", what, ": ", join_and(some, kNamesShown));
  }

  Status status(const std::string& path) const {
    if (missing.empty() && unexpected.empty() && misshapen.empty()) return Status::ok();
    std::string message = "the weights do not fit the model";
    add_to(message, "missing", missing);
    add_to(message, "unexpected", unexpected);
    add_to(message, "of another shape or type", misshapen);
    std::string fix = "give the weights of this model";
    if (!missing.empty() && !unexpected.empty()) {
      fix += ", or map the names: a prefix that all of the file's names have is the usual cause";
    } else if (!misshapen.empty()) {
      fix += ", or choose the model's sizes as the file has them";
    }
    return Error{message, {path}, fix};
  }
};

// "fc.weight: [10, 512] of F32 in the file, [2, 512] of F32 in the model"; empty where it fits.
std::string misfit(const std::string& name, const StoredTensor& stored, const at::Tensor& target) {
  const at::ScalarType type = scalar_type_of(stored.type);
  const bool convertible = type == target.scalar_type() ||
                           (at::isFloatingType(type) && at::isFloatingType(target.scalar_type()));
  if (convertible && target.sizes() == at::IntArrayRef(stored.shape)) return {};
  const auto wanted = stored_type_of(target.scalar_type());
  return c10::str(printable(name), ": ", name_of(stored.type), " ", shape_in_words(stored.shape),
                  " in the file, ", wanted ? name_of(*wanted) : "another type", " ",
                  shape_in_words(target.sizes().vec()), " in the model");
}

Status copy_into(at::Tensor target, const SafetensorsFile& file, const StoredTensor& stored) {
  const torch::NoGradGuard no_grad;
  const auto bytes_in = [&](const at::Tensor& tensor) {
    return std::span(static_cast<std::byte*>(tensor.data_ptr()), stored.bytes());
  };
  const at::ScalarType type = scalar_type_of(stored.type);
  const bool is_bool = type == at::kBool;
  if (target.scalar_type() == type && target.is_contiguous() && target.is_cpu() && !is_bool) {
    return file.read(stored, bytes_in(target));
  }
  // A bool may only be 0 or 1 in memory, whatever byte the file holds.
  const at::Tensor raw =
      at::empty(stored.shape, at::device(at::kCPU).dtype(is_bool ? at::kByte : type));
  if (const Status read = file.read(stored, bytes_in(raw)); !read) return read;
  target.copy_(is_bool ? raw.ne(0) : raw);
  return Status::ok();
}

}  // namespace

WeightNames WeightNames::torchvision() {
  WeightNames names;
  names.ignored = {"fc."};
  return names;
}

WeightNames WeightNames::hugging_face() {
  WeightNames names;
  names.prefixes = {{"bert.", ""}};
  names.suffixes = {{"LayerNorm.gamma", "LayerNorm.weight"}, {"LayerNorm.beta", "LayerNorm.bias"}};
  names.ignored = {"cls.", "classifier.", "qa_outputs.", "embeddings.position_ids"};
  names.optional = {"pooler.dense.weight", "pooler.dense.bias"};
  return names;
}

Result<LoadedWeights> load_weights(torch::nn::Module& module, const SafetensorsFile& file,
                                   const WeightNames& names) {
  const Named state = state_of(module);
  std::unordered_map<std::string, at::Tensor> open(state.begin(), state.end());
  std::vector<std::pair<const StoredTensor*, at::Tensor>> plan;
  LoadedWeights loaded;
  Misfits misfits;
  for (const StoredTensor& stored : file.header().tensors) {
    const std::string name = renamed(stored.name, names);
    const auto target = open.find(name);
    if (target == open.end()) {
      const bool ignored = begins_with_any(name, names.ignored);
      (ignored ? loaded.ignored : misfits.unexpected).push_back(printable(stored.name));
      continue;
    }
    std::string problem = misfit(stored.name, stored, target->second);
    if (problem.empty()) {
      plan.emplace_back(&stored, target->second);
    } else {
      misfits.misshapen.push_back(std::move(problem));
    }
    open.erase(target);
  }
  for (const auto& [name, tensor] : state) {
    if (!open.contains(name)) continue;
    (ends_with_any(name, names.optional) ? loaded.kept : misfits.missing).push_back(name);
  }
  if (const Status fit = misfits.status(file.path()); !fit) return fit.error();
  for (const auto& [stored, target] : plan) {
    if (const Status copied = copy_into(target, file, *stored); !copied) return copied.error();
    ++loaded.tensors;
    loaded.values += stored->elements();
    if (scalar_type_of(stored->type) != target.scalar_type()) ++loaded.converted;
  }
  return loaded;
}

std::optional<StoredType> stored_type_of(at::ScalarType type) {
  for (const auto& [stored, scalar] : kTypes) {
    if (scalar == type) return stored;
  }
  return std::nullopt;
}

at::ScalarType scalar_type_of(StoredType type) {
  return kTypes[static_cast<std::size_t>(type)].second;
}

}  // namespace lockstep::runtime
