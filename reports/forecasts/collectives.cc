#include "reports/forecasts/collectives.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/quantities.h"
#include "base/tables.h"
#include "base/text.h"
#include "reports/table.h"
#include "sim/collectives/closed_form.h"

namespace lockstep::reports {
namespace {

// Bytes per second, as nccl-tests shows them: of the buffer, and of the busiest link.
double algorithm_bandwidth(const sim::Collective& collective, Picos time) {
  return time.value == 0 ? 0 : static_cast<double>(collective.bytes.value) / time.seconds();
}
double bus_bandwidth(const sim::Collective& collective, Picos time) {
  // busbw compares collectives with each other: an all-reduce of n ranks moves every byte 2 (n - 1)
  // / n times over the busiest link, an all-gather (n - 1) / n times.
  return algorithm_bandwidth(collective, time) * sim::bus_factor(collective.op, collective.ranks);
}

double call_bandwidth(const sim::PricedCall& call) {
  return call.time.value == 0 ? 0 : static_cast<double>(call.bytes.value) / call.time.seconds();
}

std::string formula_name(trace::Op op) {
  return std::string(
      sim::algorithm_name(sim::default_algorithm(op).value_or(sim::Algorithm::ring)));
}

std::string algorithm_of(const sim::PricedCalls& answer, const sim::PricedCall& call) {
  if (call.chosen) return std::string(sim::algorithm_name(call.chosen->algorithm));
  const bool in_network = answer.machine.network && answer.machine.network->sharp &&
                          sim::goes_in_rings(answer.op, answer.layout) &&
                          sim::plain_op(answer.op) == trace::Op::all_reduce;
  return in_network ? "in_network" : formula_name(answer.op);
}

// NCCL's estimates for one size: a row per algorithm, a column per protocol.
std::string estimates(const sim::PricedCall& call, std::size_t width) {
  static constexpr std::array kProtocols = {sim::NcclProtocol::ll, sim::NcclProtocol::ll128,
                                            sim::NcclProtocol::simple};
  std::vector<std::string> names;
  for (const auto protocol : kProtocols) names.emplace_back(sim::protocol_name(protocol));
  Table table(columns({""}, names));
  std::vector<sim::NcclAlgorithm> shown;
  for (const sim::NcclCost& pair : call.pairs)
    if (std::find(shown.begin(), shown.end(), pair.algorithm) == shown.end())
      shown.push_back(pair.algorithm);
  for (const sim::NcclAlgorithm algorithm : shown) {
    std::vector<std::string> cells = {std::string(sim::algorithm_name(algorithm))};
    for (const auto protocol : kProtocols) {
      // NCCL has no such pair: NVLS, say, has only Simple.
      cells.emplace_back("-");
      for (const sim::NcclCost& pair : call.pairs)
        if (pair.algorithm == algorithm && pair.protocol == protocol)
          cells.back() = duration_text(pair.estimate);
    }
    table.add(std::move(cells));
  }
  return fmt::format("\nWhat NCCL's tuning model estimates; it takes the least:\n\n{}",
                     table.text(width, 2));
}

// "by measurements (64KiB), by NCCL's tuning (1MiB to 16MiB)".
std::string sources_of(const sim::PricedCalls& answer) {
  std::vector<std::string> out;
  for (const sim::PricedCall& call : answer.calls) {
    const std::string by = fmt::format("by {}", sim::source_name(call.source));
    // In the order of the sizes: measurements usually cover the small ones.
    if (std::find(out.begin(), out.end(), by) == out.end()) out.push_back(by);
  }
  return fmt::format("{}", fmt::join(out, ", or "));
}

}  // namespace

std::string collectives_text(const std::vector<sim::Collective>& collectives,
                             const CollectiveTimes& times, std::size_t width) {
  const sim::Collective& first = collectives.front();
  const sim::Formula& formula = *sim::find_formula(first.op, first.algorithm);
  std::string out;
  for (std::size_t i = 0; i < collectives.size(); ++i) {
    const sim::Collective& collective = collectives[i];
    const Picos time = times.ends[i];
    out += fmt::format("{} by {}, {}, {}\n  time     {}\n", trace::op_name(collective.op),
                       sim::algorithm_name(collective.algorithm), plural(collective.ranks, "rank"),
                       bytes_text(collective.bytes), duration_text(time));
    // A barrier moves no bytes and has no bandwidth.
    if (collective.bytes.value > 0 && time.value > 0)
      out += fmt::format("  algbw    {} GB/s\n  busbw    {} GB/s\n",
                         number_text(algorithm_bandwidth(collective, time) / 1e9),
                         number_text(bus_bandwidth(collective, time) / 1e9));
  }
  if (times.messages)
    return out + fmt::format("  level    {}, {} of them on links that they shared\n",
                             plural(times.messages->messages, "message"), times.messages->shared);
  return out + fmt::format("  formula  {}\n  source   {}\n", wrap(formula.text, width, 11, 11),
                           wrap(formula.source, width, 11, 11));
}

std::string collectives_json(const std::vector<sim::Collective>& collectives,
                             const CollectiveTimes& times) {
  const sim::Collective& first = collectives.front();
  const sim::Formula& formula = *sim::find_formula(first.op, first.algorithm);
  nlohmann::ordered_json out;
  out["time_ps"] = std::max_element(times.ends.begin(), times.ends.end())->value;
  out["op"] = trace::op_name(first.op);
  out["algorithm"] = sim::algorithm_name(first.algorithm);
  out["ranks"] = first.ranks;
  out["level"] = times.messages ? "message" : "closed-form";
  for (std::size_t i = 0; i < collectives.size(); ++i) {
    nlohmann::ordered_json one;
    one["bytes"] = collectives[i].bytes.value;
    one["time_ps"] = times.ends[i].value;
    one["algbw_bytes_per_s"] = algorithm_bandwidth(collectives[i], times.ends[i]);
    one["busbw_bytes_per_s"] = bus_bandwidth(collectives[i], times.ends[i]);
    out["collectives"].push_back(std::move(one));
  }
  if (times.messages) {
    out["messages"] = times.messages->messages;
    out["shared_messages"] = times.messages->shared;
  }
  out["formula"] = formula.text;
  out["source"] = formula.source;
  return fmt::format("{}\n", out.dump(2));
}

std::string priced_calls_text(const sim::PricedCalls& answer, std::size_t width) {
  std::string out = fmt::format("{} on {}, {} on {}\n\n", trace::op_name(answer.op),
                                printable(answer.machine.name), plural(answer.layout.ranks, "rank"),
                                plural(answer.layout.nodes, "node"));
  Table table(columns({"bytes", "algorithm", "protocol"}, {"time", "algbw GB/s", "busbw GB/s"}));
  for (const sim::PricedCall& call : answer.calls) {
    const double algbw = call_bandwidth(call) / 1e9;
    table.add({bytes_text(call.bytes), algorithm_of(answer, call),
               call.chosen ? std::string(sim::protocol_name(call.chosen->protocol)) : "",
               duration_text(call.time), number_text(algbw),
               number_text(algbw * sim::bus_factor(answer.op, answer.layout.ranks))});
  }
  out += table.text(width, 2);
  out += fmt::format("\n  times: {}\n", sources_of(answer));
  for (const sim::PricedCall& call : answer.calls)
    if (call.slowed > 1)
      out += fmt::format(
          "  {}\n",
          wrap(fmt::format("{}: {} times as long as on wider links: the {} is full",
                           bytes_text(call.bytes), number_text(call.slowed), call.narrowest),
               width, 4, 2));
  // Why that pair was chosen, for one size; of many sizes the tables would bury the answer.
  if (answer.calls.size() == 1 && answer.calls[0].chosen) out += estimates(answer.calls[0], width);
  return out;
}

std::string priced_calls_json(const sim::PricedCalls& answer) {
  nlohmann::ordered_json out;
  out["machine"] = printable(answer.machine.name);
  out["op"] = trace::op_name(answer.op);
  out["ranks"] = answer.layout.ranks;
  out["nodes"] = answer.layout.nodes;
  for (const sim::PricedCall& call : answer.calls) {
    nlohmann::ordered_json one;
    one["bytes"] = call.bytes.value;
    one["time_ps"] = call.time.value;
    one["algorithm"] = algorithm_of(answer, call);
    if (call.chosen) one["protocol"] = sim::protocol_name(call.chosen->protocol);
    if (call.slowed > 1) one["slowed"] = {{"factor", call.slowed}, {"by", call.narrowest}};
    one["priced_by"] = sim::source_name(call.source);
    one["algbw_bytes_per_s"] = call_bandwidth(call);
    one["busbw_bytes_per_s"] =
        call_bandwidth(call) * sim::bus_factor(answer.op, answer.layout.ranks);
    for (const sim::NcclCost& pair : call.pairs)
      one["estimates"].push_back({{"algorithm", sim::algorithm_name(pair.algorithm)},
                                  {"protocol", sim::protocol_name(pair.protocol)},
                                  {"seconds", pair.estimate}});
    out["collectives"].push_back(std::move(one));
  }
  return fmt::format("{}\n", out.dump(2));
}

}  // namespace lockstep::reports
