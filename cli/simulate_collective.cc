// lockstep simulate collective: how long one collective takes, by formula or message by message.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/quantities.h"
#include "base/text.h"
#include "cli/cmd_simulate.h"
#include "cli/report_options.h"
#include "reports/forecasts/collectives.h"
#include "sim/collectives/closed_form.h"
#include "sim/machine/machine.h"
#include "sim/machine/work_time.h"
#include "sim/messages/message_level.h"

namespace lockstep::cli {
namespace {

constexpr const char* kCollectiveFooter = R"(Examples:
  By the formula, exactly:
    lockstep simulate collective --op all_reduce --algorithm ring \
      --ranks 64 --bytes 1MiB --alpha 500ns --beta 50GB/s
  Eight nodes of eight; the inner level of links comes first:
    lockstep simulate collective --op all_reduce --algorithm hierarchical \
      --ranks 64 --ranks-per-node 8 --bytes 256MiB \
      --alpha 1us,5us --beta 400GB/s,50GB/s
  Two at the same time on the same links, message by message:
    lockstep simulate collective --ranks 8 --bytes 1MiB,2MiB --alpha 0ns \
      --beta 50GB/s --level message
  On a machine, by the algorithm and protocol that NCCL would choose:
    lockstep simulate collective --machine dgx-h100 --ranks 32 \
      --bytes 64KiB,1MiB,16MiB,1GiB
  For other programs:
    lockstep simulate collective … --output json=-

--bytes is the whole buffer, as in nccl-tests: what each rank has after an
all-gather and before a reduce-scatter. alpha is the latency of a hop, beta the
bandwidth of a rank's port in each direction, gamma that of the reduction.
Exit status: 0 predicted, 2 bad usage, 4 the tool failed.
docs/simulate.md lists the formulas and their sources;
docs/simulate-scenarios.md explains what a machine file says about NCCL,
docs/simulate-networks.md what it says about switches.)";

struct CollectiveCommand {
  std::string op = "all_reduce";
  std::string algorithm = "ring";
  std::int64_t ranks = 0;
  std::optional<std::int64_t> ranks_per_node;
  std::optional<std::int64_t> segments;
  std::string bytes, alpha, beta, gamma, machine;
  std::string level = "closed-form";  // CLI11 has checked it, and the next one
  std::optional<std::string> wiring;
  SimulationOutput output;
};

// The links of each level, the inner one first.
Result<sim::Links> parse_links(const CollectiveCommand& command) {
  // "400GB/s,50GB/s": a value for each level.
  const std::vector<std::string_view> alphas = split(command.alpha, ',');
  const std::vector<std::string_view> betas = split(command.beta, ',');
  const std::vector<std::string_view> gammas = split(command.gamma, ',');
  const bool reduces = !command.gamma.empty();
  if (alphas.size() != betas.size() || (reduces && gammas.size() != betas.size())) {
    return Error{"--alpha, --beta and --gamma describe different numbers of levels",
                 {},
                 "give one value for each level of links, the inner level first"};
  }
  sim::Links links;
  for (std::size_t i = 0; i < betas.size(); ++i) {
    const Result<sim::LinkCost> link =
        parse_link(alphas[i], betas[i], reduces ? std::optional(gammas[i]) : std::nullopt);
    if (!link) return link.error();
    links.push_back(*link);
  }
  return links;
}

// formulas() has a row per algorithm and operation; each name is listed once.
std::string algorithm_names() {
  std::vector<std::string> names;
  for (const sim::Formula& formula : sim::formulas()) {
    const std::string name(sim::algorithm_name(formula.algorithm));
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return join_and(names);
}

Result<trace::Op> op_of(const CollectiveCommand& command) {
  const std::optional<trace::Op> op = trace::op_from_name(command.op);
  if (op) return *op;
  return Error{
      fmt::format("--op: no operation \"{}\"", printable(command.op)), {}, "try all_reduce"};
}

// A barrier moves nothing; all else needs a size.
Result<std::vector<Bytes>> sizes_of(const CollectiveCommand& command, trace::Op op) {
  if (command.bytes.empty()) {
    if (op == trace::Op::barrier) return std::vector<Bytes>{Bytes{}};
    return Error{"--bytes is missing", {}, "add --bytes 1MiB"};
  }
  Result<std::vector<Bytes>> sizes = parse_sizes(command.bytes);
  if (!sizes) return with_option("--bytes", sizes.error());
  return sizes;
}

// What an algorithm or a level does not have must not look as if it made no difference.
Status check_options(const CollectiveCommand& command, sim::Algorithm algorithm) {
  const bool in_nodes = algorithm == sim::Algorithm::hierarchical;
  if (in_nodes && !command.ranks_per_node)
    return Error{"--ranks-per-node is missing, and hierarchical has two levels of links",
                 {},
                 "add --ranks-per-node 8"};
  const auto without = [&](const char* option, const char* for_what) {
    return Error{fmt::format("{} makes no difference to {}", option, command.algorithm),
                 {},
                 fmt::format("leave it out, or take {}", for_what)};
  };
  if (!in_nodes && command.ranks_per_node)
    return without("--ranks-per-node", "--algorithm hierarchical");
  if (command.segments && algorithm != sim::Algorithm::chain &&
      algorithm != sim::Algorithm::double_binary_tree)
    return without("--segments", "--algorithm chain or double_binary_tree");
  if (command.wiring && command.level != "message")
    return Error{"--wiring makes no difference to a formula", {}, "add --level message"};
  return Status::ok();
}

// One collective for each of the sizes, all at once.
Result<std::vector<sim::Collective>> parse_collectives(const CollectiveCommand& command) {
  const Result<trace::Op> op = op_of(command);
  if (!op) return op.error();
  const std::optional<sim::Algorithm> algorithm = sim::algorithm_named(command.algorithm);
  if (!algorithm) {
    return Error{fmt::format("--algorithm: no algorithm \"{}\"", printable(command.algorithm)),
                 {},
                 fmt::format("algorithms: {}", algorithm_names())};
  }
  if (const Status options = check_options(command, *algorithm); !options) return options.error();
  const Result<std::vector<Bytes>> sizes = sizes_of(command, *op);
  if (!sizes) return sizes.error();
  // A formula assumes that its collective has the links for itself.
  if (sizes->size() > 1 && command.level != "message") {
    return Error{
        fmt::format("--bytes: {} collectives at once share their links, which no formula knows",
                    sizes->size()),
        {},
        "add --level message"};
  }
  std::vector<sim::Collective> collectives;
  for (const Bytes bytes : *sizes) {
    collectives.push_back({*op, *algorithm, command.ranks, bytes,
                           command.ranks_per_node.value_or(1), command.segments.value_or(1)});
  }
  return collectives;
}

// The times of all collectives. At the message level they share links, so one simulation times all;
// otherwise there is only one, which a formula times.
Result<reports::CollectiveTimes> times_of(const CollectiveCommand& command,
                                          const std::vector<sim::Collective>& collectives,
                                          const sim::Links& links) {
  if (command.level == "message") {
    const sim::Wiring wiring = command.wiring == "pairs" ? sim::Wiring::pairs : sim::Wiring::ports;
    Result<sim::MessageResult> result = sim::message_level(collectives, links, wiring);
    if (!result) return result.error();
    return reports::CollectiveTimes{result->finished, *result};
  }
  const Result<Picos> time = sim::closed_form(collectives.front(), links);
  if (!time) return time.error();
  return reports::CollectiveTimes{{*time}, std::nullopt};
}

reports::ExitStatus simulate_collective(const CollectiveCommand& command) {
  if (const Status outputs = check_simulation_output(command.output); !outputs)
    return reports::fail(outputs.error());
  if (command.alpha.empty() || command.beta.empty())
    return reports::fail(
        {fmt::format("{} is missing", command.alpha.empty() ? "--alpha" : "--beta"),
         {},
         "add --alpha 500ns --beta 50GB/s, or --machine dgx-h100"});
  const Result<sim::Links> links = parse_links(command);
  if (!links) return reports::fail(links.error());
  const Result<std::vector<sim::Collective>> collectives = parse_collectives(command);
  if (!collectives) return reports::fail(collectives.error());
  const Result<reports::CollectiveTimes> times = times_of(command, *collectives, *links);
  if (!times) return reports::fail(times.error());
  return write_simulation(
      [&](std::size_t width) { return reports::collectives_text(*collectives, *times, width); },
      reports::collectives_json(*collectives, *times), command.output);
}

// The prices of the calls on --machine.
Result<sim::PricedCalls> price_on_machine(const CollectiveCommand& command) {
  const Result<trace::Op> op = op_of(command);
  if (!op) return op.error();
  if (command.ranks < 2 || command.ranks > sim::kMaxRanks)
    return Error{
        fmt::format("--ranks: {} cannot do a collective",
                    command.ranks == 1 ? "1 rank" : fmt::format("{} ranks", command.ranks)),
        {},
        fmt::format("give from 2 to {}", sim::kMaxRanks)};
  const Result<std::vector<Bytes>> sizes = sizes_of(command, *op);
  if (!sizes) return sizes.error();
  const Result<sim::Machine> machine = sim::load_machine(command.machine);
  if (!machine) return machine.error();
  return sim::price_calls(*op, command.ranks, *sizes, *machine);
}

// With --machine. The machine's file sets what the other options would.
reports::ExitStatus simulate_for_machine(const CLI::App& parsed, const CollectiveCommand& command) {
  for (const char* option : {"--algorithm", "--alpha", "--beta", "--gamma", "--ranks-per-node",
                             "--segments", "--level", "--wiring"})
    // count(): an option with a default has a value although nobody gave one.
    if (parsed.get_option(option)->count() > 0)
      return reports::fail(
          {fmt::format("{} cannot be combined with --machine, which sets it", option),
           {},
           "leave one of the two out"});
  if (const Status outputs = check_simulation_output(command.output); !outputs)
    return reports::fail(outputs.error());
  const Result<sim::PricedCalls> answer = price_on_machine(command);
  if (!answer) return reports::fail(answer.error());
  return write_simulation(
      [&](std::size_t width) { return reports::priced_calls_text(*answer, width); },
      reports::priced_calls_json(*answer), command.output);
}

}  // namespace

void add_simulate_collective(CLI::App& simulate, reports::ExitStatus& status) {
  CLI::App* command = simulate.add_subcommand("collective", "Time one collective");
  const auto options = std::make_shared<CollectiveCommand>();
  command->add_option("--op", options->op, "all_reduce, all_gather, broadcast, …")
      ->type_name("OP")
      ->capture_default_str();
  command->add_option("--algorithm", options->algorithm, "ring, hierarchical, nvls, direct, …")
      ->type_name("NAME")
      ->capture_default_str();
  command->add_option("--ranks", options->ranks, "Number of ranks")->type_name("N")->required();
  command
      ->add_option("--bytes", options->bytes,
                   "Size of the whole buffer: 1MiB, 25MB; several sizes\n(with --level message): "
                   "collectives at the same time; not for a barrier")
      ->type_name("SIZE,…");
  command->add_option("--alpha", options->alpha, "Latency of a hop, for each level: 500ns")
      ->type_name("TIME,…");
  command->add_option("--beta", options->beta, "Bandwidth, for each level: 50GB/s")
      ->type_name("RATE,…");
  command
      ->add_option("--gamma", options->gamma,
                   "Bandwidth of the reduction, for each level;\ndefault: it takes no time")
      ->type_name("RATE,…");
  command
      ->add_option("--ranks-per-node", options->ranks_per_node,
                   "hierarchical: ranks that share the inner level")
      ->type_name("K");
  command
      ->add_option("--segments", options->segments,
                   "chain and double_binary_tree: messages per hop;\ndefault: 1")
      ->type_name("S");
  command
      ->add_option(
          "--level", options->level,
          "closed-form: by formula. message: simulates\nevery message, and links that are shared")
      ->check(CLI::IsMember({"closed-form", "message"}).description(""))
      ->type_name("closed-form|message")
      ->capture_default_str();
  command
      ->add_option(
          "--wiring", options->wiring,
          "message level: a port for each rank, or a link\nfor each pair of ranks; default: "
          "ports")
      ->check(CLI::IsMember({"ports", "pairs"}).description(""))
      ->type_name("ports|pairs");
  command
      ->add_option("--machine", options->machine,
                   "Take algorithm and links from this machine: a file, or\nthe name of a shipped "
                   "one: dgx-h100; several sizes then\nrun one after the other")
      ->type_name("NAME|FILE");
  add_simulation_output(*command, options->output);
  command->footer(kCollectiveFooter);
  command->callback([command, options, &status] {
    status = options->machine.empty() ? simulate_collective(*options)
                                      : simulate_for_machine(*command, *options);
  });
}

}  // namespace lockstep::cli
