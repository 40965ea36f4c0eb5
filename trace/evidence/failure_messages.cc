#include "trace/evidence/failure_messages.h"

#include <algorithm>
#include <initializer_list>

#include <fmt/format.h>

#include "base/text.h"
#include "trace/evidence/exceptions.h"
#include "trace/formats/log_lines.h"

namespace lockstep::trace {

namespace {

constexpr std::string_view kMonitored = "failed to pass monitoredBarrier";
constexpr std::string_view kStoreAddress = "while trying to connect to (";
constexpr std::string_view kModelsDiffer = "DDP expects same model across all ranks";

bool mentions_any(std::string_view text, std::initializer_list<std::string_view> signs) {
  return std::any_of(signs.begin(), signs.end(),
                     [&](std::string_view sign) { return contains_text(text, sign); });
}

}  // namespace

PeerFailure peer_failure_in(std::string_view message) {
  const auto says = [&](std::string_view sign) { return contains_text(message, sign); };
  if (says("ChildFailedError")) return PeerFailure::child_failed;
  if (says("Watchdog caught")) return PeerFailure::call_timed_out;
  if (says("Detected mismatch between collectives")) return PeerFailure::calls_differ;
  // Whom it waited for. A message may have several of these: the first here says most.
  if (says(kMonitored)) return PeerFailure::barrier_not_met;
  if (says(kStoreAddress)) return PeerFailure::store_not_reached;
  if (says("elastic.rendezvous.api.Rendezvous")) return PeerFailure::nodes_not_met;
  if (hccl_peer_in(message)) return PeerFailure::hccl_peer_missing;
  if (says("setting up NCCL communicator and retr")) return PeerFailure::group_not_met;
  if (mentions_any(message, {"store based barrier", "waiting for clients", "remote rank:"}))
    return PeerFailure::ranks_not_met;
  if (says("flag on TCPStore")) return PeerFailure::store_lost;
  if (says("got signal")) return PeerFailure::told_to_end;
  return mentions_any(message, {"No route to host", "etwork is unreachable", "onnection timed out"})
             ? PeerFailure::peer_unreachable
             : PeerFailure::connection_lost;
}

std::string absent_from_barrier(std::string_view message) {
  const std::size_t at = message.find(kMonitored);
  const std::size_t who = at == kNpos ? kNpos : message.rfind("Rank", at);
  if (who == kNpos) return {};
  return fmt::format("r{}", trimmed(message.substr(who + 1, at - who - 1)));
}

std::string_view store_address_in(std::string_view message) {
  const std::size_t at = message.find(kStoreAddress);
  if (at == kNpos) return {};
  const std::string_view rest = message.substr(at + kStoreAddress.size());
  return rest.substr(0, rest.find(')'));
}

std::optional<std::int64_t> hccl_peer_in(std::string_view message) {
  return number_after(message, "remote rank: [");
}

std::int64_t group_root_in(std::string_view message) {
  return number_after(message, "ncclUniqueId from [").value_or(0);
}

std::optional<Arrivals> arrivals_in(std::string_view message) {
  auto expected = number_after(message, "world_size=");
  auto came = number_after(message, "worker_count=");
  // "waiting for clients. 1/2 clients joined."
  if (!came) came = number_after(message, "clients. ");
  if (!expected && came) expected = number_after(message, fmt::format("{}/", *came));
  if (!expected || !came) return std::nullopt;
  return Arrivals{*came, *expected};
}

std::optional<DifferingRanks> differing_ranks_in(std::string_view message) {
  const auto one = number_after(message, "Rank ");
  const auto other = number_after(message, "but Rank ");
  if (!one || !other) return std::nullopt;
  return DifferingRanks{*one, *other};
}

TimedOutCall timed_out_call_in(std::string_view message) {
  TimedOutCall out{.seq = number_after(message, "SeqNum="),
                   .operation = word_after(message, "OpType="),
                   .open_for = std::nullopt};
  constexpr std::string_view kRan = " ran for ";
  if (const std::size_t at = message.find(kRan);
      at != kNpos && contains_text(message.substr(at), "milliseconds"))
    out.open_for = number_after(message.substr(at), kRan);
  return out;
}

bool only_says_nccl_failed(std::string_view exception) {
  return mentions_any(exception, {"unhandled cuda error", "unhandled system error",
                                  "internal error - please report", "ncclInternalError",
                                  "ncclUnhandledCudaError", "NCCL Error "});
}

bool is_failure_of_its_own(std::string_view nccl_warning) {
  return mentions_any(
      nccl_warning, {"Cuda failure", "CUDA calloc", "Got completion", "async event",
                     "Duplicate GPU", "ismatch", "no socket interface", "No space left on device"});
}

bool says_peer_closed(std::string_view exception) {
  return mentions_a_peer(exception) &&
         mentions_any(exception, {"onnection closed by peer", "onnection reset by peer"});
}

bool says_sizes_differ(std::string_view exception) {
  return contains_text(exception, "Received data size doesn't match expected size");
}

bool says_models_differ(std::string_view exception) {
  return contains_text(exception, kModelsDiffer);
}

std::optional<std::int64_t> inconsistent_rank_in(std::string_view exception) {
  if (!says_models_differ(exception)) return std::nullopt;
  return number_after(exception, "params, while rank ");
}

}  // namespace lockstep::trace
