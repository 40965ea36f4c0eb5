#include "runtime/job/launch_settings.h"

#include <string_view>

#include <fmt/format.h>

#include "base/text.h"

namespace lockstep::runtime {
namespace {

constexpr int kLargestPort = 65535;

Error not_a_number(const char* variable, const char* text) {
  return Error{fmt::format("{} is {}, which is not a number from 0", variable, printable(text)),
               {},
               "correct the variable, or give --rank and --world-size without it"};
}

// The number in an environment variable; `otherwise` if it is not set.
Result<int> number_in(const Environment& get, const char* variable, int otherwise) {
  const char* text = get(variable);
  if (text == nullptr) return otherwise;
  const auto value = launcher_number(text);
  if (!value) return not_a_number(variable, text);
  return *value;
}

// The launcher's value. If the option is given, too, it must be the same.
Result<int> agreed_value(const std::optional<int>& option, const char* flag, int found,
                         const char* variable) {
  if (!option || *option == found) return found;
  return Error{fmt::format("{} is {}, but {} is {}", flag, *option, variable, found),
               {},
               "leave the option out, or start the worker without the launcher"};
}

Status find_ranks(const LaunchOptions& options, const Environment& get, LaunchSettings& out) {
  // Without a launcher, the options decide; without options, this is the only process.
  const Launcher* launcher = find_launcher(get);
  if (launcher == nullptr) {
    out.launcher = options.rank || options.world_size ? "options" : "a single process";
    out.rank = options.rank.value_or(0);
    out.world_size = options.world_size.value_or(1);
    out.local_rank = out.rank;
    return Status::ok();
  }
  out.launcher = launcher->name;
  const Result<int> rank = number_in(get, launcher->rank, 0);
  if (!rank) return rank.error();
  const Result<int> size = number_in(get, launcher->world_size, 1);
  if (!size) return size.error();
  const Result<int> chosen_rank = agreed_value(options.rank, "--rank", *rank, launcher->rank);
  if (!chosen_rank) return chosen_rank.error();
  const Result<int> chosen_size =
      agreed_value(options.world_size, "--world-size", *size, launcher->world_size);
  if (!chosen_size) return chosen_size.error();
  const Result<int> local = number_in(get, launcher->local_rank, *chosen_rank);
  if (!local) return local.error();
  out.rank = *chosen_rank;
  out.world_size = *chosen_size;
  out.local_rank = *local;
  return Status::ok();
}

Status find_master(const std::string& master, const Environment& get, LaunchSettings& out) {
  // "host:29500"; the last colon, because IPv6 addresses contain colons.
  const auto colon = master.rfind(':');
  if (!master.empty() && colon == std::string::npos) {
    return Error{
        fmt::format("--master is {}, which has no port", printable(master)), {}, "HOST:PORT"};
  }
  const char* host = get("MASTER_ADDR");
  const char* port = get("MASTER_PORT");
  if (master.empty() && (host == nullptr || port == nullptr)) return Status::ok();
  out.master_host = master.empty() ? host : master.substr(0, colon);
  const std::string port_text = master.empty() ? port : master.substr(colon + 1);
  const auto number = launcher_number(port_text);
  if (!number || *number < 1 || *number > kLargestPort) {
    return Error{fmt::format("the port of the master is {}", printable(port_text)),
                 {},
                 "a number from 1 to 65535"};
  }
  out.master_port = *number;
  // torchrun's agent already serves a TCPStore on that port, and keeps it over restarts.
  const char* agent = get("TORCHELASTIC_USE_AGENT_STORE");
  out.store_is_served = master.empty() && agent != nullptr && std::string_view(agent) == "True";
  if (!out.store_is_served) return Status::ok();
  const Result<int> attempt = number_in(get, "TORCHELASTIC_RESTART_COUNT", 0);
  if (!attempt) return attempt.error();
  out.attempt = *attempt;
  return Status::ok();
}

// Lockstep's own variables, which are not the launcher's.
Status find_lockstep_variables(const Environment& get, LaunchSettings& out) {
  const auto text_of = [&](const char* variable) {
    const char* text = get(variable);
    return std::string_view(text == nullptr ? "" : text);
  };
  const auto refuse = [&](const char* variable, const char* values) {
    return Error{fmt::format("{} is {}", variable, printable(text_of(variable))),
                 {},
                 fmt::format("unset it, or set it to {}", values)};
  };
  const std::string_view share = text_of(kShareGpusVariable);
  if (!share.empty() && share != "0" && share != "1") {
    return refuse(kShareGpusVariable, "0 or 1");
  }
  out.share_gpus = share == "1";
  const std::string_view queued = text_of(kQueuedCallsVariable);
  if (queued.empty()) return Status::ok();
  if (queued != "per-group" && queued != "one-at-a-time") {
    return refuse(kQueuedCallsVariable, "per-group or one-at-a-time");
  }
  out.queued = queued == "per-group" ? QueuedCalls::per_group : QueuedCalls::one_at_a_time;
  return Status::ok();
}

}  // namespace

Result<LaunchSettings> find_launch_settings(const LaunchOptions& options, const Environment& get) {
  LaunchSettings out;
  if (const Status ok = find_lockstep_variables(get, out); !ok) return ok.error();
  if (const Status ok = find_ranks(options, get, out); !ok) return ok.error();
  if (out.rank >= out.world_size) {
    return Error{fmt::format("rank {} is not one of {} (from {})", out.rank,
                             plural(out.world_size, "rank"), out.launcher),
                 {},
                 "ranks count from 0; give both --rank and --world-size"};
  }
  if (!options.store.empty() && !options.master.empty()) {
    return Error{
        fmt::format("--store names the file {}, and --master {}: the ranks can use only one",
                    printable(options.store), printable(options.master)),
        {},
        "give one of the two"};
  }
  out.store_file = options.store;
  if (out.store_file.empty()) {
    if (const Status ok = find_master(options.master, get, out); !ok) return ok.error();
    if (out.master_host.empty() && out.world_size > 1) {
      return Error{fmt::format("nothing says where the {} ranks rendezvous", out.world_size),
                   {},
                   "give --store FILE or --master HOST:PORT, or set MASTER_ADDR and MASTER_PORT"};
    }
  }
  return out;
}

}  // namespace lockstep::runtime
