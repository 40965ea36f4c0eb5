#include "cli/simulate_on_machine.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/quantities.h"
#include "base/tables.h"
#include "base/text.h"
#include "cli/report_options.h"
#include "sim/collectives/closed_form.h"
#include "sim/machine/work_time.h"

namespace lockstep {
namespace {

// One size: how long it takes, and the pairs that NCCL had to choose from, if it is NCCL's.
struct Line {
  sim::Bytes bytes;
  sim::Picos time;
  std::optional<sim::NcclCost> chosen;
  std::vector<sim::NcclCost> pairs;
};

struct MachineAnswer {
  sim::Machine machine;
  Op op = Op::all_reduce;
  sim::GroupPlace place;
  std::vector<Line> lines;
};

Result<MachineAnswer> price(const OnMachine& command) {
  MachineAnswer out;
  const std::optional<Op> op = op_from_name(command.op);
  if (!op)
    return Error{"--op: no operation \"" + printable(command.op) + "\"", {}, "try all_reduce"};
  out.op = *op;
  if (command.ranks < 2 || command.ranks > sim::kMostRanks)
    return Error{"--ranks: " + std::to_string(command.ranks) + " ranks",
                 {},
                 "give from 2 to " + std::to_string(sim::kMostRanks)};
  const Result<std::vector<sim::Bytes>> sizes = sim::parse_sizes(command.bytes);
  if (!sizes) return with_option("--bytes", sizes.error());
  const Result<sim::Machine> machine = sim::load_machine(command.machine);
  if (!machine) return machine.error();
  out.machine = *machine;
  std::vector<std::int32_t> members(static_cast<std::size_t>(command.ranks));
  std::iota(members.begin(), members.end(), 0);
  out.place = sim::place_of(members, machine->ranks_per_node);
  for (const sim::Bytes bytes : *sizes) {
    sim::ProgramCall call;
    call.op = *op;
    call.bytes = bytes;
    const Result<sim::Picos> time = sim::call_time(call, out.place, *machine);
    if (!time) return time.error();
    const bool barrier = sim::plain_op(*op) == Op::barrier;  // it has no buffer
    Line line{barrier ? sim::Bytes{} : bytes, *time, sim::nccl_call(call, out.place, *machine), {}};
    if (line.chosen)
      line.pairs = sim::nccl_costs(*op, {out.place.ranks, out.place.nodes, machine->ranks_per_node},
                                   bytes, *machine->nccl);
    out.lines.push_back(std::move(line));
  }
  return out;
}

double line_bandwidth(const Line& line) {
  return line.time.value == 0 ? 0 : static_cast<double>(line.bytes.value) / line.time.seconds();
}

std::string duration(double seconds) {
  if (seconds < 1e-3) return fixed(seconds * 1e6, 2) + " us";
  return seconds < 1 ? fixed(seconds * 1e3, 2) + " ms" : fixed(seconds, 2) + " s";
}

std::string formula_name(Op op) {
  return std::string(
      sim::algorithm_name(sim::default_algorithm(op).value_or(sim::Algorithm::ring)));
}

// NCCL's estimates of one size: a row for each algorithm, a column for each protocol.
std::string estimates(const Line& line) {
  static constexpr std::array kProtocols = {sim::NcclProtocol::ll, sim::NcclProtocol::ll128,
                                            sim::NcclProtocol::simple};
  std::string out =
      "\nWhat NCCL's tuning model estimates; it takes the least:\n\n" + pad_right("", 12);
  for (const auto protocol : kProtocols)
    out += pad_left(std::string(sim::protocol_name(protocol)), 12);
  out += "\n";
  std::vector<sim::NcclAlgorithm> shown;
  for (const sim::NcclCost& pair : line.pairs)
    if (std::find(shown.begin(), shown.end(), pair.algorithm) == shown.end())
      shown.push_back(pair.algorithm);
  for (const sim::NcclAlgorithm algorithm : shown) {
    out += "  " + pad_right(std::string(sim::algorithm_name(algorithm)), 10);
    for (const auto protocol : kProtocols) {
      std::string cell = "-";
      for (const sim::NcclCost& pair : line.pairs)
        if (pair.algorithm == algorithm && pair.protocol == protocol)
          cell = duration(pair.estimate);
      out += pad_left(cell, 12);
    }
    out += "\n";
  }
  return out;
}

std::string machine_answer_text(const MachineAnswer& answer) {
  std::string out = std::string(op_name(answer.op)) + " on " + printable(answer.machine.name) +
                    ", " + plural(static_cast<std::uint64_t>(answer.place.ranks), "rank") + " on " +
                    plural(static_cast<std::uint64_t>(answer.place.nodes), "node") + "\n\n";
  out += "  bytes       algorithm   protocol          time   algbw GB/s   busbw GB/s\n";
  for (const Line& line : answer.lines) {
    const double algbw = line_bandwidth(line) / 1e9;
    out += "  " + pad_right(bytes_in_words(static_cast<std::uint64_t>(line.bytes.value)), 12);
    if (line.chosen)
      out += pad_right(std::string(sim::algorithm_name(line.chosen->algorithm)), 12) +
             pad_right(std::string(sim::protocol_name(line.chosen->protocol)), 8);
    else
      out += pad_right(formula_name(answer.op), 20);
    out += pad_left(duration(line.time.seconds()), 14) + pad_left(fixed(algbw, 2), 13) +
           pad_left(fixed(algbw * sim::bus_factor(answer.op, answer.place.ranks), 2), 13) + "\n";
  }
  if (answer.lines.size() == 1 && answer.lines[0].chosen) out += estimates(answer.lines[0]);
  return out;
}

std::string machine_answer_json(const MachineAnswer& answer) {
  nlohmann::ordered_json out;
  out["machine"] = printable(answer.machine.name);
  out["op"] = op_name(answer.op);
  out["ranks"] = answer.place.ranks;
  out["nodes"] = answer.place.nodes;
  for (const Line& line : answer.lines) {
    nlohmann::ordered_json one;
    one["bytes"] = line.bytes.value;
    one["time_ps"] = line.time.value;
    if (line.chosen) {
      one["algorithm"] = sim::algorithm_name(line.chosen->algorithm);
      one["protocol"] = sim::protocol_name(line.chosen->protocol);
    } else {
      one["algorithm"] = formula_name(answer.op);
    }
    one["algbw_bytes_per_s"] = line_bandwidth(line);
    one["busbw_bytes_per_s"] =
        line_bandwidth(line) * sim::bus_factor(answer.op, answer.place.ranks);
    for (const sim::NcclCost& pair : line.pairs)
      one["estimates"].push_back({{"algorithm", sim::algorithm_name(pair.algorithm)},
                                  {"protocol", sim::protocol_name(pair.protocol)},
                                  {"seconds", pair.estimate}});
    out["collectives"].push_back(std::move(one));
  }
  return out.dump(2) + "\n";
}

}  // namespace

ExitStatus simulate_on_machine(const OnMachine& command) {
  const Result<MachineAnswer> answer = price(command);
  if (!answer) return fail(answer.error());
  const Status written =
      write_simulation(machine_answer_text(*answer), machine_answer_json(*answer), command.output);
  return written ? ExitStatus::clean : fail(written.error(), ExitStatus::own_failure);
}

}  // namespace lockstep
