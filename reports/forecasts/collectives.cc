#include "reports/forecasts/collectives.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/tables.h"
#include "base/text.h"
#include "sim/collectives/closed_form.h"

namespace lockstep::reports {
namespace {

// Bytes per second, as nccl-tests shows them: of the buffer, and of the busiest link.
double algorithm_bandwidth(const sim::Collective& collective, Picos time) {
  return time.value == 0 ? 0 : static_cast<double>(collective.bytes.value) / time.seconds();
}
double bus_bandwidth(const sim::Collective& collective, Picos time) {
  return algorithm_bandwidth(collective, time) * sim::bus_factor(collective.op, collective.ranks);
}

double call_bandwidth(const sim::PricedCall& call) {
  return call.time.value == 0 ? 0 : static_cast<double>(call.bytes.value) / call.time.seconds();
}

std::string call_duration(double seconds) {
  if (seconds < 1e-3) return fixed(seconds * 1e6, 2) + " us";
  return seconds < 1 ? fixed(seconds * 1e3, 2) + " ms" : fixed(seconds, 2) + " s";
}

std::string formula_name(trace::Op op) {
  return std::string(
      sim::algorithm_name(sim::default_algorithm(op).value_or(sim::Algorithm::ring)));
}

// NCCL's estimates for one size: a row per algorithm, a column per protocol.
std::string estimates(const sim::PricedCall& call) {
  static constexpr std::array kProtocols = {sim::NcclProtocol::ll, sim::NcclProtocol::ll128,
                                            sim::NcclProtocol::simple};
  std::string out =
      "\nWhat NCCL's tuning model estimates; it takes the least:\n\n" + pad_right("", 12);
  for (const auto protocol : kProtocols)
    out += pad_left(std::string(sim::protocol_name(protocol)), 12);
  out += "\n";
  std::vector<sim::NcclAlgorithm> shown;
  for (const sim::NcclCost& pair : call.pairs)
    if (std::find(shown.begin(), shown.end(), pair.algorithm) == shown.end())
      shown.push_back(pair.algorithm);
  for (const sim::NcclAlgorithm algorithm : shown) {
    out += "  " + pad_right(std::string(sim::algorithm_name(algorithm)), 10);
    for (const auto protocol : kProtocols) {
      std::string cell = "-";
      for (const sim::NcclCost& pair : call.pairs)
        if (pair.algorithm == algorithm && pair.protocol == protocol)
          cell = call_duration(pair.estimate);
      out += pad_left(cell, 12);
    }
    out += "\n";
  }
  return out;
}

// "by measurements (64KiB), by NCCL's tuning (1MiB to 16MiB)".
std::string sources_of(const sim::PricedCalls& answer) {
  std::vector<std::string> out;
  for (const sim::PricedCall& call : answer.calls) {
    const std::string by = fmt::format("by {}", sim::source_name(call.source));
    if (std::find(out.begin(), out.end(), by) == out.end()) out.push_back(by);
  }
  return fmt::format("{}", fmt::join(out, ", or "));
}

}  // namespace

std::string collectives_text(const std::vector<sim::Collective>& collectives,
                             const CollectiveTimes& times) {
  const sim::Collective& first = collectives.front();
  const sim::Formula& formula = *sim::find_formula(first.op, first.algorithm);
  std::ostringstream out;
  for (std::size_t i = 0; i < collectives.size(); ++i) {
    const sim::Collective& collective = collectives[i];
    const Picos time = times.ends[i];
    out << trace::op_name(collective.op) << " by " << sim::algorithm_name(collective.algorithm)
        << ", " << collective.ranks << " ranks, "
        << bytes_in_words(static_cast<std::uint64_t>(collective.bytes.value)) << "\n"
        << "  time     " << lockstep::to_string(time) << "\n";
    if (collective.bytes.value > 0 && time.value > 0) {
      out << "  algbw    " << fixed(algorithm_bandwidth(collective, time) / 1e9, 2) << " GB/s\n"
          << "  busbw    " << fixed(bus_bandwidth(collective, time) / 1e9, 2) << " GB/s\n";
    }
  }
  if (times.messages) {
    out << "  level    " << plural(times.messages->messages, "message") << ", "
        << times.messages->shared << " of them on links that they shared\n";
  } else {
    out << "  formula  " << wrap(formula.text, 69, 11) << "\n"
        << "  source   " << wrap(formula.source, 69, 11) << "\n";
  }
  return out.str();
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
  return out.dump(2) + "\n";
}

std::string priced_calls_text(const sim::PricedCalls& answer) {
  std::string out = std::string(trace::op_name(answer.op)) + " on " +
                    printable(answer.machine.name) + ", " +
                    plural(static_cast<std::uint64_t>(answer.layout.ranks), "rank") + " on " +
                    plural(static_cast<std::uint64_t>(answer.layout.nodes), "node") + "\n\n";
  out += "  bytes       algorithm   protocol          time   algbw GB/s   busbw GB/s\n";
  for (const sim::PricedCall& call : answer.calls) {
    const double algbw = call_bandwidth(call) / 1e9;
    out += "  " + pad_right(bytes_in_words(static_cast<std::uint64_t>(call.bytes.value)), 12);
    if (call.chosen)
      out += pad_right(std::string(sim::algorithm_name(call.chosen->algorithm)), 12) +
             pad_right(std::string(sim::protocol_name(call.chosen->protocol)), 8);
    else
      out += pad_right(formula_name(answer.op), 20);
    out += pad_left(call_duration(call.time.seconds()), 14) + pad_left(fixed(algbw, 2), 13) +
           pad_left(fixed(algbw * sim::bus_factor(answer.op, answer.layout.ranks), 2), 13) + "\n";
  }
  out += fmt::format("\n  times: {}\n", sources_of(answer));
  if (answer.calls.size() == 1 && answer.calls[0].chosen) out += estimates(answer.calls[0]);
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
    if (call.chosen) {
      one["algorithm"] = sim::algorithm_name(call.chosen->algorithm);
      one["protocol"] = sim::protocol_name(call.chosen->protocol);
    } else {
      one["algorithm"] = formula_name(answer.op);
    }
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
  return out.dump(2) + "\n";
}

}  // namespace lockstep::reports
