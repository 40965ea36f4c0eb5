// TableRow is what the readers share: one row, its values by name, and the first error. A reader
// takes all values without checking each, then asks status() once.

#include "sim/transformer/measured_table.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/files/read_file.h"
#include "base/numbers.h"
#include "base/quantities.h"
#include "base/result.h"
#include "base/text.h"
#include "sim/transformer/transformer.h"

namespace lockstep::sim {

class TableRow {
 public:
  // A row that is a list; `columns` names its values: [16, 2, 1024, …].
  TableRow(const nlohmann::json& row, const nlohmann::json& columns, std::string location);
  // A row that is an object: {"model": "8B", "gpus": 8, "tps_gpu": 5762, …}.
  TableRow(const nlohmann::json& row, std::string location);

  // A whole number from 1 to 2^30; `otherwise` if the row does not have it. Like all of these it
  // remembers what is wrong and returns a harmless value.
  std::int64_t count(std::string_view name, std::optional<std::int64_t> otherwise = {});
  // A number above 0.
  double number(std::string_view name);
  // Empty also for null.
  std::optional<double> number_if_there(std::string_view name);
  std::string text(std::string_view name, std::string otherwise = {});
  bool has(std::string_view name) const;

  Status status() const { return wrong_ ? Status(*wrong_) : Status::ok(); }
  const std::string& location() const { return location_; }
  void refuse(std::string message, std::string fix);

 private:
  const nlohmann::json* find(std::string_view name) const;

  const nlohmann::json& row_;
  const nlohmann::json* columns_ = nullptr;
  std::string location_;  // "table.json, row 3"
  std::optional<Error> wrong_;
};

bool is_list_of_lists(const nlohmann::json& value);

// The readers of the forms. `root` is an object with the form's keys.
Result<MeasuredTable> read_step_columns(const nlohmann::json& root, const std::string& file);
Result<MeasuredTable> read_torchtitan(const nlohmann::json& root, const std::string& file);
Result<MeasuredTable> read_nemo(const nlohmann::json& root, const std::string& file);
Result<MeasuredTable> read_nccl_tests(const nlohmann::json& root, const std::string& file);

namespace {

using nlohmann::json;

constexpr double kMaxCount = 1 << 30U;

}  // namespace

TableRow::TableRow(const json& row, const json& columns, std::string location)
    : row_(row), columns_(&columns), location_(std::move(location)) {
  if (!row.is_array() || row.size() != columns.size())
    refuse(fmt::format("the row has not one value for each of the {} columns", columns.size()),
           "give a list as long as \"columns\"");
}

TableRow::TableRow(const json& row, std::string location)
    : row_(row), location_(std::move(location)) {
  if (!row.is_object()) refuse("the row is not an object", "write {\"key\": value, …}");
}

// The first problem is the cause; later ones may follow from it.
void TableRow::refuse(std::string message, std::string fix) {
  if (!wrong_)
    wrong_ = Error{fmt::format("{}: {}", location_, std::move(message)), {}, std::move(fix)};
}

const json* TableRow::find(std::string_view name) const {
  if (wrong_) return nullptr;
  if (columns_ == nullptr) {
    const auto it = row_.find(name);
    return it == row_.end() ? nullptr : &*it;
  }
  for (std::size_t i = 0; i < columns_->size(); ++i)
    if ((*columns_)[i].is_string() && (*columns_)[i].get_ref<const std::string&>() == name)
      return &row_[i];
  return nullptr;
}

bool TableRow::has(std::string_view name) const { return find(name) != nullptr; }

std::int64_t TableRow::count(std::string_view name, std::optional<std::int64_t> otherwise) {
  const json* value = find(name);
  if (value == nullptr && otherwise) return *otherwise;
  const double x = number(name);
  if (x >= 1 && x <= kMaxCount && x == std::floor(x)) return static_cast<std::int64_t>(x);
  refuse(fmt::format("\"{}\" is not a whole number from 1 to 2^30", name), "correct the value");
  return 1;
}

double TableRow::number(std::string_view name) {
  const json* value = find(name);
  if (value == nullptr) {
    refuse(fmt::format("\"{}\" is missing", name), "add it");
    return 1;
  }
  const double x = value->is_number() ? value->get<double>() : 0;
  if (x > 0 && x < 1e30) return x;
  refuse(fmt::format("\"{}\" is not a number above 0", name), "correct the value");
  return 1;
}

std::optional<double> TableRow::number_if_there(std::string_view name) {
  const json* value = find(name);
  if (value == nullptr || value->is_null()) return std::nullopt;
  return number(name);
}

std::string TableRow::text(std::string_view name, std::string otherwise) {
  const json* value = find(name);
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::move(otherwise);
}

bool is_list_of_lists(const json& value) {
  if (!value.is_array()) return false;
  for (const json& item : value)
    if (!item.is_array()) return false;
  return true;
}

Result<MeasuredTable> parse_measured_table(const std::string& text, const std::string& file) {
  const json root = json::parse(text, nullptr, false);
  if (root.is_discarded()) return Error{"the file is not JSON", {file}, "give one of the tables"};
  const auto unknown = [&] {
    return Error{"the file is not one of the known tables",
                 {file},
                 "known are those of vTrain, Megatron, torchtitan, NeMo and nccl-tests: "
                 "docs/simulate-workloads.md"};
  };
  if (!root.is_object()) return unknown();
  // Sniffed by the keys that only one form has.
  if (root.contains("machines") && root["machines"].is_object()) return read_nccl_tests(root, file);
  if (!root.contains("rows") || !root["rows"].is_array()) return unknown();
  if (root["rows"].size() > kMaxTableRows)
    return Error{
        fmt::format("the table has more than {} rows", kMaxTableRows), {file}, "give it in parts"};
  if (root.contains("columns") && root["columns"].is_array()) return read_step_columns(root, file);
  if (root.value("framework", "") == "NeMo") return read_nemo(root, file);
  return read_torchtitan(root, file);
}

// Tables of Megatron's training steps: vTrain's, and that of the paper of 2021.

namespace {

// The models of both: GPT with a feed-forward block four times as wide, with full recompute.
void set_gpt(MeasuredStep& step, std::int64_t layers, std::int64_t hidden, std::int64_t heads,
             std::int64_t vocabulary) {
  step.model.layers = layers;
  step.model.hidden = hidden;
  step.model.heads = step.model.kv_heads = heads;
  step.model.ffn = 4 * hidden;
  step.model.vocabulary = vocabulary;
  step.plan.recompute = Recompute::full;
}

void set_label(MeasuredStep& step) {
  const TrainingPlan& p = step.plan;
  step.label = fmt::format("{} GPUs, B {}{}, h {}, L {}, t {} d {} p {}", p.ranks(), p.global_batch,
                           step.micro_batch_unknown ? "" : fmt::format(", b {}", p.micro_batch),
                           step.model.hidden, step.model.layers, p.tensor, p.data, p.pipeline);
}

// vTrain's models have GPT-2's vocabulary, as its configuration files say.
constexpr std::int64_t kVocabulary = 51200;

// One row. Columns: "# layers", "hidden size", …, "iteration time (ms)".
MeasuredStep vtrain_step(TableRow& row) {
  MeasuredStep step;
  set_gpt(step, row.count("# layers"), row.count("hidden size"), row.count("attention heads"),
          kVocabulary);
  step.plan.sequence = row.count("sequence length");
  step.plan.global_batch = row.count("global batch");
  step.plan.micro_batch = row.count("micro batch");
  step.plan.tensor = static_cast<std::int32_t>(row.count("tensor parallelism"));
  step.plan.data = static_cast<std::int32_t>(row.count("data parallelism"));
  step.plan.pipeline = static_cast<std::int32_t>(row.count("pipeline parallelism"));
  step.seconds = row.number("iteration time (ms)") * 1e-3;
  return step;
}

MeasuredStep megatron_step(TableRow& row, const json& root) {
  // "seq" and "vocab" are given once for the whole table.
  TableRow table(root, row.location());
  MeasuredStep step;
  set_gpt(step, row.count("layers"), row.count("hidden"), row.count("heads"),
          table.count("vocab", kVocabulary));
  step.plan.sequence = table.count("seq", 2048);
  step.plan.global_batch = row.count("batch");
  step.plan.tensor = static_cast<std::int32_t>(row.count("tp"));
  step.plan.pipeline = static_cast<std::int32_t>(row.count("pp"));
  const std::int64_t gpus = row.count("gpus");
  // Data parallelism is not a column: it is what remains of the GPUs.
  const std::int64_t model_ranks = std::int64_t{step.plan.tensor} * step.plan.pipeline;
  if (gpus % model_ranks != 0)
    row.refuse(fmt::format("{} GPUs do not divide by tp x pp", gpus), "correct the row");
  else
    step.plan.data = static_cast<std::int32_t>(gpus / model_ranks);
  step.micro_batch_unknown = true;
  step.seconds = row.number("iteration_s_derived");
  return step;
}

bool has_column(const json& columns, std::string_view name) {
  for (const json& column : columns)
    if (column.is_string() && column.get_ref<const std::string&>() == name) return true;
  return false;
}

}  // namespace

Result<MeasuredTable> read_step_columns(const json& root, const std::string& file) {
  const json& columns = root["columns"];
  const bool vtrain = has_column(columns, "iteration time (ms)");
  if (!vtrain && !has_column(columns, "iteration_s_derived"))
    return Error{"the table's columns name no measured time",
                 {file},
                 "known are \"iteration time (ms)\" (vTrain) and \"iteration_s_derived\" "
                 "(Megatron)"};
  MeasuredTable table;
  table.file = file;
  bool one_node = true;
  std::size_t number = 0;
  for (const json& values : root["rows"]) {
    TableRow row(values, columns, fmt::format("{}, row {}", file, ++number));
    MeasuredStep step = vtrain ? vtrain_step(row) : megatron_step(row, root);
    if (const Status read = row.status(); !read) return read.error();
    if (const Status can_be = check_workload(step.model, step.plan); !can_be)
      return Error{
          fmt::format("{}: {}", row.location(), can_be.error().message), {}, can_be.error().fix};
    set_label(step);
    // A table whose plans all fit 8 GPUs was measured on one node, and has its own calibration.
    one_node = one_node && step.plan.ranks() <= 8;
    table.steps.push_back(std::move(step));
  }
  table.machine_type = !vtrain ? "dgx-a100" : one_node ? "a100-node" : "a100-cluster";
  return table;
}

// torchtitan's tables: Llama 3 under FSDP, with tensor, context and pipeline parallelism.

namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

void set_parallelism(MeasuredStep& step, TableRow& row) {
  TrainingPlan& plan = step.plan;
  plan.tensor = static_cast<std::int32_t>(row.count("tp", 1));
  plan.context = static_cast<std::int32_t>(row.count("cp", 1));
  plan.pipeline = static_cast<std::int32_t>(row.count("pp", 1));
  // Checked before they are multiplied.
  for (const std::int32_t ranks : {plan.tensor, plan.context, plan.pipeline})
    if (ranks > 1 << 15) {
      row.refuse("tp, cp or pp is above 32768", "correct the row");
      return;
    }
  const std::int64_t rest = std::int64_t{plan.tensor} * plan.context * plan.pipeline;
  const std::int64_t gpus = row.count("gpus");
  if (gpus % rest != 0)
    row.refuse(fmt::format("{} GPUs do not divide by tp x cp x pp", gpus), "correct the row");
  plan.data = static_cast<std::int32_t>(std::max<std::int64_t>(1, gpus / rest));
  const std::int64_t local = row.count("local_batch");
  plan.global_batch = local * plan.data;
  // Without a pipeline a local batch is one micro-batch. With one it is split into as many as there
  // are stages: the default of torchtitan's pipeline_parallel_microbatches.
  plan.micro_batch = plan.pipeline > 1 ? std::max<std::int64_t>(1, local / plan.pipeline) : local;
  plan.sequence = row.count("seq", 8192);
  if (row.text("schedule").starts_with("Interleaved")) {
    plan.schedule = PipelineSchedule::interleaved;
    plan.chunks = 2;
  }
}

Result<MeasuredStep> read_step(TableRow& row) {
  MeasuredStep step;
  const std::string name = row.text("model");
  // "8B" gives "llama3-8b".
  const bool billions = name.ends_with('B');
  const auto known = published_model(fmt::format("llama3-{}b", name.substr(0, name.find('B'))));
  if (billions && known)
    step.model = *known;
  else
    row.refuse(fmt::format("model \"{}\" is not known", printable(name)),
               "known are 8B, 70B and 405B");
  set_parallelism(step, row);
  TrainingPlan& plan = step.plan;
  plan.sharding = Sharding::zero3;
  plan.sequence_parallel = plan.tensor > 1;
  const std::string kept = row.text("ac", "none");
  plan.recompute = kept == "full"        ? Recompute::full
                   : kept == "selective" ? Recompute::selective
                                         : Recompute::none;
  // For example tech "FSDP + compile + fp8", quant "float8".
  const std::string how = fmt::format("{} {}", row.text("tech"), row.text("quant"));
  plan.plain_kernels = true;
  plan.compiled = how.find("compile") != std::string::npos || row.has("vanilla");
  plan.fp8 = how.find("fp8") != std::string::npos || how.find("float8") != std::string::npos;
  plan.overlapped_tensor = how.find("asyncTP") != std::string::npos;
  if (const auto gib = row.number_if_there("mem_gib")) step.memory_bytes = *gib * kGiB;
  step.as_tokens = true;
  step.label = fmt::format(
      "{}, {} GPUs, seq {}, b {}, t {} c {} d {} p {}{}{}{}{}", row.text("model"),
      row.count("gpus"), plan.sequence, row.count("local_batch"), plan.tensor, plan.context,
      plan.data, plan.pipeline, plan.chunks > 1 ? " x 2" : "", plan.compiled ? ", compiled" : "",
      plan.fp8 ? ", fp8" : "", plan.overlapped_tensor ? ", async" : "");
  if (const Status read = row.status(); !read) return read.error();
  if (const Status can_be = check_workload(step.model, plan); !can_be)
    return Error{
        fmt::format("{}: {}", row.location(), can_be.error().message), {}, can_be.error().fix};
  return step;
}

void add_step(MeasuredTable& table, MeasuredStep step, double tokens_per_second) {
  step.seconds = static_cast<double>(step.plan.global_batch) *
                 static_cast<double>(step.plan.sequence) / tokens_per_second /
                 static_cast<double>(step.plan.ranks());
  table.steps.push_back(std::move(step));
}

}  // namespace

Result<MeasuredTable> read_torchtitan(const json& root, const std::string& file) {
  MeasuredTable table;
  table.file = file;
  const std::string hardware = TableRow(root, file).text("hardware");
  table.machine_type = hardware.find("H200") != std::string::npos ? "h200-cluster" : "h100-cluster";
  std::size_t number = 0;
  for (const json& values : root["rows"]) {
    TableRow row(values, fmt::format("{}, row {}", file, ++number));
    // A row with both columns has two measurements: without and with async tensor parallelism.
    const bool both = row.has("vanilla") && row.has("async_");
    const double first = row.number(both ? "vanilla" : "tps_gpu");
    const double second = both ? row.number("async_") : 1;
    Result<MeasuredStep> step = read_step(row);
    if (!step) return step.error();
    add_step(table, *step, first);
    if (!both) continue;
    step->plan.overlapped_tensor = true;
    step->label += ", async";
    add_step(table, std::move(*step), second);
  }
  return table;
}

// NVIDIA's tables of Megatron under NeMo: transformers of published shapes on DGX machines.

namespace {

// {"model": "llama3-405b", "layers": 42, "gpus": 192, "tp": 8, "pp": 3, "cp": 2, "vp": 7,
//  "mbs": 1, "gbs": 252, "seq": 8192, "dtype": "bf16", "step_s": 16.93}; layers, cp, vp and mbs may
// be left out.
MeasuredStep nemo_step(TableRow& row) {
  MeasuredStep step;
  const std::string name = row.text("model");
  if (const auto known = published_model(name))
    step.model = *known;
  else
    row.refuse(fmt::format("model \"{}\" is not known", printable(name)),
               fmt::format("known are {}", join_and(published_model_names())));
  step.model.layers = row.count("layers", std::max<std::int64_t>(step.model.layers, 1));
  // Transformer Engine's attention is fused, also for GPTs.
  step.model.fused_attention = step.model.causal = true;
  TrainingPlan& plan = step.plan;
  plan.tensor = static_cast<std::int32_t>(std::min<std::int64_t>(row.count("tp"), 1 << 15));
  plan.pipeline = static_cast<std::int32_t>(std::min<std::int64_t>(row.count("pp"), 1 << 15));
  plan.context = static_cast<std::int32_t>(std::min<std::int64_t>(row.count("cp", 1), 1 << 15));
  plan.chunks = static_cast<std::int32_t>(std::min<std::int64_t>(row.count("vp", 1), 1 << 14));
  if (plan.chunks > 1) plan.schedule = PipelineSchedule::interleaved;
  const std::int64_t gpus = row.count("gpus");
  const std::int64_t rest = std::int64_t{plan.tensor} * plan.context * plan.pipeline;
  if (gpus % rest != 0)
    row.refuse(fmt::format("{} GPUs do not divide by tp x cp x pp", gpus), "correct the row");
  plan.data =
      static_cast<std::int32_t>(std::clamp<std::int64_t>(gpus / rest, 1, std::int64_t{1} << 30U));
  plan.micro_batch = row.count("mbs", 1);
  plan.global_batch = row.count("gbs");
  plan.sequence = row.count("seq");
  const std::string dtype = row.text("dtype", "bf16");
  if (dtype != "bf16" && dtype != "fp8")
    row.refuse(fmt::format("dtype \"{}\" is not known", printable(dtype)), "write bf16 or fp8");
  plan.fp8 = dtype == "fp8";
  // NeMo's recipes: Megatron's distributed optimizer, all communication overlapped where possible,
  // and kernels fused by Transformer Engine.
  plan.sharding = Sharding::zero1;
  plan.sequence_parallel = plan.overlapped_tensor = plan.tensor > 1;
  plan.overlapped_gradients = plan.overlapped_context = true;
  plan.overlapped_pipeline = plan.chunks > 1;
  plan.compiled = true;
  step.seconds = row.number("step_s");
  step.label = fmt::format("{}, {} layers, {} GPUs, B {}, b {}, t {} c {} d {} p {} x {}, {}", name,
                           step.model.layers, gpus, plan.global_batch, plan.micro_batch,
                           plan.tensor, plan.context, plan.data, plan.pipeline, plan.chunks, dtype);
  return step;
}

}  // namespace

Result<MeasuredTable> read_nemo(const json& root, const std::string& file) {
  MeasuredTable table;
  table.file = file;
  table.machine_type = TableRow(root, file).text("machine", "dgx-h100");
  std::size_t number = 0;
  for (const json& values : root["rows"]) {
    TableRow row(values, fmt::format("{}, row {}", file, ++number));
    MeasuredStep step = nemo_step(row);
    if (const Status read = row.status(); !read) return read.error();
    if (const Status can_be = check_workload(step.model, step.plan); !can_be)
      return Error{
          fmt::format("{}: {}", row.location(), can_be.error().message), {}, can_be.error().fix};
    table.steps.push_back(std::move(step));
  }
  return table;
}

// nccl-tests' tables, in two shapes: a machine of one size, {"gpus": 8, "rows": [[bytes, time],
// …]}, or a machine with a list of rows per size, {"8": [[bytes, time], …], "16": …}.

namespace {

struct MeasuredMachine {
  std::string name;
  std::int64_t ranks = 1, nodes = 1;
};

Status add_rows(MeasuredTable& table, const json& rows, const json& columns,
                const MeasuredMachine& machine) {
  // The unit is in the column's name: time_oop_ns or time_oop_us.
  const bool nanos = [&] {
    for (const json& column : columns)
      if (column == "time_oop_ns") return true;
    return false;
  }();
  std::size_t number = 0;
  for (const json& values : rows) {
    TableRow row(values, columns,
                 fmt::format("{}, {}, row {}", table.file, printable(machine.name), ++number));
    MeasuredCollective measured;
    measured.machine = machine.name;
    measured.ranks = machine.ranks;
    measured.nodes = machine.nodes;
    const double bytes = row.number("bytes");
    measured.seconds = row.number(nanos ? "time_oop_ns" : "time_oop_us") * (nanos ? 1e-9 : 1e-6);
    if (bytes > 1e15) row.refuse("\"bytes\" is above 10^15", "correct the value");
    if (const Status read = row.status(); !read) return read;
    measured.bytes = static_cast<std::int64_t>(bytes);
    measured.label =
        fmt::format("{}, {} GPUs, {}", machine.name, machine.ranks, bytes_text(measured.bytes));
    if (table.collectives.size() == kMaxTableRows)
      return Error{fmt::format("the table has more than {} rows", kMaxTableRows),
                   {table.file},
                   "give it in parts"};
    table.collectives.push_back(std::move(measured));
  }
  return Status::ok();
}

}  // namespace

Result<MeasuredTable> read_nccl_tests(const json& root, const std::string& file) {
  if (!root.contains("columns") || !root["columns"].is_array())
    return Error{"the table has no \"columns\"", {file}, "name them"};
  MeasuredTable table;
  table.file = file;
  table.machine_type = "nccl";
  for (const auto& [name, machine] : root["machines"].items()) {
    const std::string location = fmt::format("{}, {}", file, printable(name));
    if (!machine.is_object())
      return Error{fmt::format("{}: the machine is not an object", location),
                   {},
                   "give it \"gpus\" and \"rows\""};
    if (machine.contains("rows")) {
      TableRow about(machine, location);
      const MeasuredMachine one{name, about.count("gpus"), about.count("nodes", 1)};
      if (const Status read = about.status(); !read) return read.error();
      if (!is_list_of_lists(machine["rows"]))
        return Error{
            fmt::format("{}: \"rows\" is not a list of lists", location), {}, "correct it"};
      if (const Status s = add_rows(table, machine["rows"], root["columns"], one); !s)
        return s.error();
      continue;
    }
    for (const auto& [gpus, rows] : machine.items()) {
      const auto ranks = parse_number<std::int64_t>(gpus).value_or(0);
      if (ranks < 2 || ranks > 1 << 20 || !is_list_of_lists(rows))
        return Error{fmt::format("{}: \"{}\" is not a number of GPUs with its rows", location,
                                 printable(gpus)),
                     {},
                     "write \"8\": [[bytes, time, …], …]"};
      if (const Status s = add_rows(table, rows, root["columns"], {name, ranks, 1}); !s)
        return s.error();
    }
  }
  return table;
}

Result<MeasuredTable> load_measured_table(const std::string& path) {
  const Result<std::string> text = read_file(path, std::size_t{256} << 20U);
  if (!text) return text.error();
  return parse_measured_table(*text, path);
}

}  // namespace lockstep::sim
