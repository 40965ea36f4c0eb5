// lockstep-worker model: lists the tensors of a model or a file, and tries one training step.
#include <sys/resource.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <CLI/CLI.hpp>

#include "base/quantities.h"
#include "base/text.h"
#include "runtime/models/bert.h"
#include "runtime/models/encoders.h"
#include "runtime/models/safetensors.h"
#include "runtime/models/weights.h"
#include "runtime/train/batch_size_probe.h"
#include "runtime/worker/commands.h"
#include "runtime/worker/worker.h"

namespace lockstep::runtime {
namespace {

std::string names() { return "Models: " + join_and(model_names()) + ".\n\n"; }

constexpr const char* kDescribeExamples = R"(Examples:
  lockstep-worker model describe resnet-50
  lockstep-worker model describe model.safetensors
  lockstep-worker model describe config.json
)";

constexpr const char* kStepExamples = R"(Examples:
  lockstep-worker model step resnet-50 --batch 4
  lockstep-worker model step minilm --weights model.safetensors
)";

// Seconds since it was made.
class Stopwatch {
 public:
  std::string seconds() const {
    const auto passed = std::chrono::steady_clock::now() - start_;
    return duration_text(std::chrono::duration<double>(passed).count());
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// "forward      183 ms": the report of `model step` is of such lines.
void line(const char* what, const std::string& value) {
  std::printf("%-12s %s\n", what, value.c_str());
}

std::string peak_memory() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return bytes_text(std::int64_t{1024} * usage.ru_maxrss);  // ru_maxrss: KiB
}

// The names, shapes, types and sizes of all tensors: what a checkpoint of the model must have.
int describe_module(const torch::nn::Module& module) {
  std::fputs(tensor_table(parameters_of(module)).c_str(), stdout);
  return kExitFinished;
}

int describe_config(const std::string& path) {
  const auto options = load_bert_config(path);
  if (!options) return fail_with(options.error());
  // Before it is built: a config.json may ask for more than the machine has.
  const double needed = weights_in(*options) * sizeof(float);
  if (needed > kOfFreeMemory * static_cast<double>(free_memory_bytes())) {
    return fail_with({c10::str("this encoder takes ", bytes_text(needed)),
                      {path},
                      "describe it on a machine with more free memory"});
  }
  return describe_module(*BertEncoder(*options));
}

int describe_file(const std::string& path) {
  const auto file = SafetensorsFile::open(path);
  if (!file) return fail_with(file.error());
  std::vector<TensorRow> rows;
  for (const StoredTensor& tensor : file->header().tensors) {
    rows.push_back({tensor.name, std::string(name_of(tensor.type)), tensor.shape, tensor.elements(),
                    tensor.bytes()});
  }
  std::fputs(tensor_table(rows).c_str(), stdout);
  for (const auto& [key, value] : file->header().metadata) {
    std::printf("metadata: %s: %s\n", printable(key).c_str(), printable(value).c_str());
  }
  return kExitFinished;
}

// Loads the weights and prints what became of them: types that were converted, and tensors of the
// file that the model does not have, are not errors, but the user should know.
Status load_model(const CatalogModel& model, const std::string& path) {
  const Stopwatch watch;
  const auto file = SafetensorsFile::open(path);
  if (!file) return file.error();
  const auto loaded = load_weights(*model.module, *file, model.names);
  if (!loaded) return loaded.error();
  line("load", watch.seconds());
  line("weights",
       c10::str(plural(loaded->tensors, "tensor"), " with ", plural(loaded->values, "value"), ", ",
                loaded->converted, " converted, ", loaded->ignored.size(), " left out"));
  return Status::ok();
}

}  // namespace

ModelCommands::ModelCommands(CLI::App& app)
    : model_(app.add_subcommand("model", "show a model, or try one training step of it")),
      describe_(model_->add_subcommand("describe", "list the tensors of a model or a file")),
      step_(model_->add_subcommand("step", "one forward and backward pass on random input")) {
  model_->require_subcommand(1);
  model_->footer(names() + kDescribeExamples);
  describe_->footer(names() + kDescribeExamples);
  describe_
      ->add_option("MODEL", described_, "a model's name, FILE.safetensors, or a BERT's config.json")
      ->required();
  step_->footer(names() + kStepExamples);
  step_->add_option("MODEL", name_, "a model's name")->required();
  step_->add_option("--weights", weights_, "load these weights first (safetensors)");
  step_->add_option("--batch", batch_, "items in the batch; default: 2")
      ->check(CLI::Range(1, 4096));
}

bool ModelCommands::chosen() const { return model_->parsed(); }

int ModelCommands::describe() const {
  if (described_.ends_with(".json")) return describe_config(described_);
  // A model's name has no slash: "models/minilm" is a file, with or without that ending.
  if (described_.ends_with(".safetensors") || described_.find('/') != std::string::npos) {
    return describe_file(described_);
  }
  const auto model = build_model(described_);
  if (!model) return fail_with(model.error());
  return describe_module(*model->module);
}

// Whether the model and its weights work on this machine, how fast, and in how much memory, before
// a job is made of them.
int ModelCommands::step() const {
  const Stopwatch build;
  const auto model = build_model(name_);
  if (!model) return fail_with(model.error());
  line("model", name_);
  line("parameters", tensor_sum(parameters_of(*model->module)));
  line("build", build.seconds());
  if (!weights_.empty()) {
    if (const Status loaded = load_model(*model, weights_); !loaded)
      return fail_with(loaded.error());
  }
  line("input", c10::str(batch_, " times ", model->input));
  const Stopwatch forward;
  const at::Tensor features = model->try_random(batch_);
  // Any loss that depends on all features, so that backward reaches every parameter.
  const at::Tensor loss = features.pow(2).mean();
  line("forward", forward.seconds());
  const Stopwatch backward;
  loss.backward();
  line("backward", backward.seconds());
  line("features",
       c10::str(features.size(1), " wide, mean square ", fixed(loss.item<double>(), 6)));
  line("peak memory", peak_memory());
  line("threads", std::to_string(at::get_num_threads()));
  return kExitFinished;
}

int ModelCommands::run() const try {
  return describe_->parsed() ? describe() : step();
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return kExitException;
}

}  // namespace lockstep::runtime
