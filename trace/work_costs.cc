#include "trace/work_costs.h"

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/files/read_file.h"
#include "base/text.h"

namespace lockstep::trace {
namespace {

namespace dom = simdjson::dom;
using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxBytes = std::size_t{1} << 30U;
constexpr std::int64_t kCostsVersion = 2;
constexpr std::size_t kMaxDtypes = 64;  // of one segment
// The limit of one category, so that the sum of all fits.
constexpr std::int64_t kMaxMemory = (std::int64_t{1} << 62U) / kMemoryCategories;

// By WorkCost::Before.
constexpr std::array<std::string_view, 5> kBefore = {"call", "wait", "step", "checkpoint",
                                                     "evaluation"};

std::string_view name_of(WorkCost::Before before) {
  return kBefore[static_cast<std::size_t>(before)];
}

// "bfloat16".
bool is_dtype(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

// What is 0 is left out.
Json by_category(const MemoryUse& use) {
  Json out = Json::object();
  for (std::size_t c = 0; c < kMemoryCategories; ++c)
    if (use.bytes[c] != 0) out[kMemoryCategoryNames[c]] = use.bytes[c];
  return out;
}

Json segment_json(const WorkCost& work) {
  Json flops = Json::object();
  for (const WorkCost::Flops& one : work.flops)
    flops[one.dtype] = {{"matmul", one.matmul}, {"convolution", one.convolution}};
  Json out = {{"before", name_of(work.before)},
              {"id", work.id},
              {"step", work.step},
              {"flops", std::move(flops)},
              {"product_bytes", work.product_bytes},
              {"memory_bytes", work.memory_bytes},
              {"kernels", work.kernels},
              {"operations", work.operations},
              {"nanos", work.nanos}};
  if (work.memory)
    out["memory"] = {{"peak", by_category(work.memory->peak)},
                     {"end", by_category(work.memory->end)}};
  return out;
}

// Reads one file; the first thing that is wrong is kept.
class CostsReader {
 public:
  explicit CostsReader(const std::string& file) : file_(file) {}

  Result<RankCosts> read(std::string_view text) {
    dom::parser parser(kMaxBytes);
    dom::element root;
    dom::object object;
    if (parser.parse(text.data(), text.size()).get(root) != simdjson::SUCCESS ||
        root.get(object) != simdjson::SUCCESS) {
      return failure("this is not a JSON object");
    }
    RankCosts out;
    if (whole(object, "work_costs") != kCostsVersion) {
      return failure("\"work_costs\" is not 2, the version that is known");
    }
    out.rank = static_cast<std::int32_t>(whole(object, "rank", INT32_MAX));
    out.state_bytes = amount(object, "state_bytes");
    out.other_threads_nanos = whole(object, "beside_nanos");
    dom::array work;
    if (object["work"].get(work) != simdjson::SUCCESS) return failure("\"work\" is not a list");
    for (const dom::element element : work) {
      if (problem_) break;
      out.work.push_back(segment(element));
    }
    if (problem_) return failure(*problem_);
    return out;
  }

 private:
  Error failure(const std::string& why) const {
    return {why, {file_}, "record the costs again: they are written next to the traces"};
  }

  void complain(std::string what) {
    if (!problem_) problem_ = std::move(what);
  }

  std::int64_t whole(dom::object object, const char* key, std::int64_t most = INT64_MAX,
                     std::int64_t least = 0) {
    std::int64_t out = 0;
    if (object[key].get(out) != simdjson::SUCCESS || out < least || out > most) {
      complain(fmt::format("\"{}\" is missing, or no whole number in its bounds", key));
      return 0;
    }
    return out;
  }

  double amount(dom::object object, const char* key) {
    double out = 0;
    if (object[key].get(out) != simdjson::SUCCESS || !std::isfinite(out) || out < 0) {
      complain(fmt::format("\"{}\" is missing, or no number from 0", key));
      return 0;
    }
    return out;
  }

  void read_flops(dom::object by_type, std::vector<WorkCost::Flops>& out) {
    for (const auto [dtype, of_kinds] : by_type) {
      dom::object kinds;
      if (of_kinds.get(kinds) != simdjson::SUCCESS || !is_dtype(dtype))
        return complain("\"flops\" is not by names of types");
      if (out.size() == kMaxDtypes) return complain("\"flops\" names too many types");
      if (std::any_of(out.begin(), out.end(),
                      [name = dtype](const WorkCost::Flops& one) { return one.dtype == name; }))
        return complain("\"flops\" names a type twice");
      out.push_back({std::string(dtype), amount(kinds, "matmul"), amount(kinds, "convolution")});
    }
  }

  MemoryUse memory_use(dom::object memory, const char* when) {
    MemoryUse out;
    dom::object by_category;
    if (memory[when].get(by_category) != simdjson::SUCCESS) {
      complain(fmt::format("\"memory\" has no \"{}\"", when));
      return out;
    }
    for (const auto [name, bytes] : by_category) {
      const auto* known = std::find(kMemoryCategoryNames.begin(), kMemoryCategoryNames.end(), name);
      std::int64_t value = 0;
      if (known == kMemoryCategoryNames.end() || bytes.get(value) != simdjson::SUCCESS ||
          value < 0 || value > kMaxMemory) {
        complain("\"memory\" is not bytes by category");
        return out;
      }
      out.bytes[static_cast<std::size_t>(known - kMemoryCategoryNames.begin())] = value;
    }
    return out;
  }

  std::optional<SegmentMemory> memory_of(dom::object segment) {
    dom::element given;
    if (segment["memory"].get(given) != simdjson::SUCCESS) return std::nullopt;
    dom::object memory;
    if (given.get(memory) != simdjson::SUCCESS) {
      complain("\"memory\" is not an object");
      return std::nullopt;
    }
    const SegmentMemory out{memory_use(memory, "peak"), memory_use(memory, "end")};
    if (out.peak.total() < out.end.total()) complain("\"memory\" ends above its peak");
    return out;
  }

  WorkCost segment(dom::element element) {
    WorkCost out;
    dom::object object;
    std::string_view before;
    if (element.get(object) != simdjson::SUCCESS ||
        object["before"].get(before) != simdjson::SUCCESS) {
      complain("a segment of work has no \"before\"");
      return out;
    }
    const auto* known = std::find(kBefore.begin(), kBefore.end(), before);
    if (known == kBefore.end()) {
      complain(
          fmt::format("\"before\" is \"{}\", and not call, wait, step, checkpoint or evaluation",
                      printable(before)));
      return out;
    }
    out.before = static_cast<WorkCost::Before>(known - kBefore.begin());
    out.id = whole(object, "id");
    out.step = whole(object, "step", INT64_MAX, -1);
    if (dom::object flops; object["flops"].get(flops) == simdjson::SUCCESS) {
      read_flops(flops, out.flops);
    } else {
      complain("\"flops\" is missing");
    }
    out.product_bytes = amount(object, "product_bytes");
    out.memory_bytes = amount(object, "memory_bytes");
    out.kernels = whole(object, "kernels");
    out.operations = whole(object, "operations");
    out.nanos = whole(object, "nanos");
    out.memory = memory_of(object);
    return out;
  }

  const std::string& file_;
  std::optional<std::string> problem_;
};

}  // namespace

std::string costs_file(const std::string& folder, std::int32_t rank) {
  return fmt::format("{}/rank_{}.costs.json", folder, rank);
}

std::string work_costs_text(const RankCosts& costs) {
  Json work = Json::array();
  for (const WorkCost& one : costs.work) work.push_back(segment_json(one));
  const Json out = {{"work_costs", kCostsVersion},
                    {"rank", costs.rank},
                    {"state_bytes", costs.state_bytes},
                    {"beside_nanos", costs.other_threads_nanos},
                    {"work", std::move(work)}};
  return fmt::format("{}\n", out.dump());
}

Result<RankCosts> parse_work_costs(std::string_view text, const std::string& file) {
  return CostsReader(file).read(text);
}

Result<RankCosts> read_work_costs(const std::string& file) {
  const Result<std::string> text = read_file(file, kMaxBytes);
  if (!text) return text.error();
  return parse_work_costs(*text, file);
}

}  // namespace lockstep::trace
