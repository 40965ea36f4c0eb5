#include "trace/derivation.h"

#include <filesystem>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/files/read_file.h"
#include "base/text.h"
#include "trace/load.h"
#include "trace/trace_builder.h"

namespace lockstep::trace {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLargestProduct = std::size_t{16} << 20U;

// One rank's trace is used for all ranks of its class only if all of them are in its groups and no
// call names a rank. Groups and messages within the rank's own copy of the model are exempt.
Status check_class(const Run& run, const ProductSpec::RankClass& one, std::int32_t copy_ranks) {
  const RankTrace& trace = *run.find(Rank(one.rank));
  const auto refuse = [&](const std::string& why) {
    return Error{fmt::format("the trace of rank {} cannot be used for ranks {}: {}", one.rank,
                             ranges(one.ranks), why),
                 {trace.source},
                 "give each of them a trace"};
  };
  if (one.ranks.size() < 2) return Status::ok();
  const auto is_in_copy = [&](Rank rank) {
    return copy_ranks > 0 && rank.value / copy_ranks == one.rank / copy_ranks;
  };
  for (const RankTrace::Membership& membership : trace.groups) {
    if (is_in_copy(membership.ranks.lowest()) && is_in_copy(membership.ranks.highest())) continue;
    for (const std::int32_t rank : one.ranks) {
      if (!membership.ranks.contains(Rank(rank))) {
        return refuse(fmt::format("group {} does not have them all",
                                  printable(run.tables.str(membership.group))));
      }
    }
  }
  for (const Call& call : trace.calls) {
    if (run.tables.is_message(call) && !is_in_copy(call.peer)) {
      return refuse("it sends or receives messages");
    }
  }
  return Status::ok();
}

// A proof needs complete traces: one that lost something is refused.
Status check_whole(const Run& run, const ProductSpec& spec, const std::string& folder) {
  const auto error = [&](std::string message, const std::string& file) {
    return Error{std::move(message), {file}, "derive the program again"};
  };
  if (!run.unreadable.empty()) return run.unreadable.front().error;
  if (!run.header_conflicts.empty())
    return error(fmt::format("the traces contradict each other: {}",
                             printable(run.header_conflicts.front())),
                 folder);
  if (run.world_size != spec.world_size)
    return error(fmt::format("the traces are of a world of {} ranks, product.json says {}",
                             run.world_size, spec.world_size),
                 folder);
  const std::vector<std::int32_t> traced = traced_ranks(spec);
  for (std::int32_t r = 0; r < spec.world_size; ++r) {
    if (traced[static_cast<std::size_t>(r)] != r) continue;
    const RankTrace* trace = run.find(Rank(r));
    if (trace == nullptr) return error(fmt::format("rank {} has no trace", r), folder);
    if (trace->damaged_count > 0 || trace->dropped > 0 || trace->open_ended)
      return error(fmt::format("records of rank {} were lost or are damaged", r), trace->source);
    if (trace->end != End::clean && trace->end != End::exception)
      return error(
          fmt::format("the trace of rank {} ends neither cleanly nor with an exception", r),
          trace->source);
  }
  for (const ProductSpec::RankClass& one : spec.classes) {
    if (const Status stands = check_class(run, one, spec.copy_ranks); !stands) return stands;
  }
  return Status::ok();
}

}  // namespace

std::vector<std::int32_t> traced_ranks(const ProductSpec& spec) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(spec.world_size));
  std::iota(out.begin(), out.end(), 0);
  for (const ProductSpec::RankClass& one : spec.classes) {
    for (const std::int32_t rank : one.ranks) out[static_cast<std::size_t>(rank)] = one.rank;
  }
  return out;
}

Result<Derivation> make_derivation(ProductSpec spec, std::vector<Run> runs,
                                   const std::string& folder) {
  LOCKSTEP_CHECK(runs.size() == spec.histories.size(), "every history has its run");
  for (std::size_t h = 0; h < runs.size(); ++h) {
    const std::string path = (fs::path(folder) / spec.histories[h].folder).string();
    if (const Status whole = check_whole(runs[h], spec, path); !whole) return whole.error();
  }
  Derivation out;
  out.spec = std::move(spec);
  out.folder = folder;
  out.runs = std::move(runs);
  return out;
}

Result<Derivation> load_derivation(const std::string& folder) {
  const std::string file = (fs::path(folder) / "product.json").string();
  const Result<std::string> text = read_file(file, kLargestProduct);
  if (!text) {
    Error error = text.error();
    error.fix =
        "give a folder that `lockstep derive --output-dir` or "
        "runtime/record/python/lockstep_record.py wrote";
    return error;
  }
  Result<ProductSpec> spec = parse_product(*text, file);
  if (!spec) return spec.error();
  std::vector<Run> runs;
  for (const ProductSpec::History& history : spec->histories) {
    Result<Run> run = load_run({(fs::path(folder) / history.folder).string()});
    if (!run) return run.error();
    runs.push_back(std::move(*run));
  }
  return make_derivation(std::move(*spec), std::move(runs), folder);
}

}  // namespace lockstep::trace
