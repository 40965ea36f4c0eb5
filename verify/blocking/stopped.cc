#include "verify/blocking/stopped.h"

#include <algorithm>
#include <ctime>
#include <optional>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/quantities.h"
#include "base/text.h"
#include "trace/evidence/failure_messages.h"
#include "trace/groups.h"
#include "verify/blocking/witnesses.h"

namespace lockstep::verify {

namespace {

constexpr trace::Nanos kSecond = 1'000'000'000;
// Times since 1970 are larger than this (the year 2001), times since a machine's start are not.
constexpr trace::Nanos kWallClock = 1'000'000'000 * kSecond;

bool meets(const std::vector<std::uint32_t>& ascending, const std::vector<std::uint32_t>& ranks) {
  return std::any_of(ranks.begin(), ranks.end(), [&](std::uint32_t r) {
    return std::binary_search(ascending.begin(), ascending.end(), r);
  });
}

const Stream* stream_in(const Context& context, trace::GroupId group, std::uint32_t rank,
                        std::uint64_t& first_seq) {
  for (const GroupStreams& g : context.groups) {
    if (g.group != group) continue;
    first_seq = g.first_seq;
    if (const Stream* const stream = stream_of(g, rank)) return stream;
  }
  return nullptr;
}

// Whether `rank` had issued the call of `point` before the one in which it waits: that call itself,
// or the one with its number in another group of the same purpose and size. Nothing where it is in
// no such group.
std::optional<bool> issued_before(const Context& context, std::uint32_t rank,
                                  const WaitPoint& point) {
  const GroupStreams& group = context.groups[point.group];
  const auto* role = trace::membership(context.run.ranks[point.waiting[0]], group.group);
  const std::uint32_t waits_in = context.where.positions[rank].waiting_in();
  const auto issued_in = [&](trace::GroupId id) -> std::optional<bool> {
    std::uint64_t first = 0;
    const Stream* stream = stream_in(context, id, rank, first);
    const std::uint64_t seq = context.seq_of(point);
    if (stream == nullptr || seq < first) return std::nullopt;
    return seq - first < stream->calls.size() && stream->calls[seq - first] < waits_in;
  };
  if (trace::membership(context.run.ranks[rank], group.group) != nullptr)
    return issued_in(group.group);
  if (role == nullptr) return std::nullopt;
  const std::string_view purpose = role_of(context.run.tables, *role);
  if (purpose.empty()) return std::nullopt;
  for (const auto& m : context.run.ranks[rank].groups) {
    if (m.ranks.size() == role->ranks.size() && role_of(context.run.tables, m) == purpose)
      return issued_in(m.group);
  }
  return std::nullopt;
}

// Whether point `a` comes before `b` in the program, by the ranks that wait in them.
std::optional<bool> comes_before(const Context& context, const WaitPoint& a, const WaitPoint& b) {
  constexpr std::size_t kAsked = 16;  // ranks that did the same say the same
  int votes = 0;
  const auto ask = [&](const WaitPoint& there, const WaitPoint& about, int yes) {
    for (std::size_t i = 0; i < std::min(kAsked, there.waiting.size()); ++i)
      if (const auto before = issued_before(context, there.waiting[i], about))
        votes += *before ? yes : -yes;
  };
  ask(b, a, 1);
  ask(a, b, -1);
  if (votes == 0) return std::nullopt;
  return votes > 0;
}

// When the first of the waiting ranks issued the call, by a clock that all machines share.
std::optional<trace::Nanos> issued_at(const Context& context, const WaitPoint& point) {
  std::optional<trace::Nanos> out;
  for (const std::uint32_t r : point.waiting) {
    const std::uint32_t call = context.where.positions[r].waiting_in();
    for (const trace::Event& e : context.run.ranks[r].events) {
      if (e.kind != trace::EventKind::issue || e.index != call) continue;
      if (e.time >= kWallClock && (!out || e.time < *out)) out = e.time;
      break;
    }
  }
  return out;
}

// The time of the newest event of a rank's host: completions of devices may be noticed later.
trace::Nanos last_on_host(const trace::RankTrace& trace) {
  trace::Nanos out = trace::kNoTime;
  for (const trace::Event& e : trace.events)
    if (e.kind != trace::EventKind::start && e.kind != trace::EventKind::complete)
      out = std::max(out, e.time);
  return out;
}

// How long a call was open when PyTorch's watchdog gave it up.
std::optional<trace::Nanos> timed_out_after(const trace::Run& run) {
  std::optional<trace::Nanos> out;
  for (const trace::RankNote& note : run.notes) {
    if (note.kind != trace::RankNote::Kind::watchdog) continue;
    constexpr std::int64_t kMax = 1'000'000'000'000;
    const std::int64_t ms = trace::timed_out_call_in(note.text).open_for.value_or(-1);
    if (ms < 0 || ms > kMax) continue;
    out = std::max(out.value_or(0), ms * (kSecond / 1000));
  }
  return out;
}

// " 10 min ago", seen from the newest record; otherwise " at 14:28:39 UTC on 2026-11-21"; empty
// where no time is known, or the clocks of two machines would have to be compared.
std::string time_words(const Context& context, const std::vector<trace::Rank>& ranks,
                       const WaitPoint& point) {
  trace::Nanos last = trace::kNoTime;
  std::set<std::string> hosts;
  bool traced = true;
  for (const trace::Rank r : ranks) {
    const trace::RankTrace* trace = context.run.find(r);
    traced &= trace != nullptr;
    if (trace != nullptr) last = std::max(last, last_on_host(*trace));
  }
  // For ranks without a trace, take the time of the first rank that waits for them.
  if (!traced) last = std::max(last, issued_at(context, point).value_or(trace::kNoTime));
  trace::Nanos newest = trace::kNoTime;
  for (const trace::RankTrace& trace : context.run.ranks) {
    hosts.insert(trace.host);
    for (const trace::Event& e : trace.events) newest = std::max(newest, e.time);
  }
  const bool one_machine = hosts.size() == 1 && !hosts.begin()->empty();
  const bool comparable = last >= kWallClock || (one_machine && last > 0);
  trace::Nanos ago = comparable ? newest - last : 0;
  // The watchdog's text may tell of a longer wait than the records do.
  ago = std::max(ago, timed_out_after(context.run).value_or(0));
  if (ago >= kSecond)
    return fmt::format(" {} ago", duration_text(static_cast<double>(ago) / kSecond));
  if (last < kWallClock) return "";
  const std::time_t seconds = last / kSecond;
  std::tm utc{};
  std::string out(64, '\0');
  if (gmtime_r(&seconds, &utc) == nullptr) return "";
  out.resize(std::strftime(out.data(), out.size(), " at %H:%M:%S UTC on %Y-%m-%d", &utc));
  return out;
}

// A host's name without a port; empty where a shell or a person could take it for something else.
std::string plain_host(std::string_view name) {
  const std::string_view host = name.substr(0, name.find(':'));
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '-' || c == '_';
  };
  const bool usable = std::all_of(host.begin(), host.end(), plain) && !host.starts_with('-');
  return usable ? std::string(host) : "";
}

// Where a rank ran: by its trace, and where it left none by what other sources say of it.
struct Whereabouts {
  bool traced = false;
  std::string host;      // empty: not known
  bool guessed = false;  // the host
  std::int64_t pid = trace::kNone;
  std::int32_t gpu = trace::kNone;
};

// The host of the nearest ranks below and above, where these agree: launchers number the ranks of a
// host in a row. Empty otherwise.
std::string host_of_neighbours(const trace::Run& run, trace::Rank rank) {
  const auto above = std::find_if(run.ranks.begin(), run.ranks.end(),
                                  [&](const trace::RankTrace& trace) { return trace.rank > rank; });
  if (above == run.ranks.begin() || above == run.ranks.end()) return "";
  const std::string& host = std::prev(above)->host;
  return host == above->host ? plain_host(host) : "";
}

Whereabouts whereabouts(const trace::Run& run, trace::Rank rank) {
  if (const trace::RankTrace* trace = run.find(rank); trace != nullptr)
    return {.traced = true, .host = plain_host(trace->host), .pid = trace->pid, .gpu = trace->gpu};
  Whereabouts out;
  for (const trace::RankNote& note : run.notes) {
    if (note.rank != rank) continue;
    if (out.host.empty()) out.host = plain_host(note.host);
    if (out.pid == trace::kNone) out.pid = note.pid;
    if (out.gpu == trace::kNone) out.gpu = note.gpu;
  }
  if (out.host.empty()) {
    out.host = host_of_neighbours(run, rank);
    out.guessed = !out.host.empty();
  }
  return out;
}

// Whether the program ran on several hosts, as far as known, or elsewhere than here.
bool hosts_matter(const trace::Run& run) {
  return std::any_of(run.ranks.begin(), run.ranks.end(), [&](const trace::RankTrace& trace) {
    return trace.snapshot || trace.host != run.ranks[0].host;
  });
}

// " (node4, GPU 5)", " (no trace; node4)", " (no trace; probably node4)"; of several ranks only the
// hosts, " (node1, node2)". Empty where nothing is known, or all ranks were on one host and the GPU
// is not known.
std::string where_words(const Context& context, const std::vector<trace::Rank>& ranks) {
  constexpr std::size_t kHosts = 3;
  std::vector<std::string> parts, guessed;
  bool traced = true, hosts_known = true;
  for (const trace::Rank r : ranks) {
    const Whereabouts at = whereabouts(context.run, r);
    traced &= at.traced;
    hosts_known &= !at.host.empty();
    std::vector<std::string>& hosts = at.guessed ? guessed : parts;
    if (std::find(hosts.begin(), hosts.end(), at.host) == hosts.end()) hosts.push_back(at.host);
  }
  for (const std::string& host : guessed)
    if (std::find(parts.begin(), parts.end(), host) == parts.end())
      parts.push_back(fmt::format("probably {}", host));
  const bool name_hosts = hosts_known && parts.size() <= kHosts && hosts_matter(context.run);
  if (!name_hosts) parts.clear();
  if (ranks.size() == 1) {
    const std::int32_t gpu = whereabouts(context.run, ranks[0]).gpu;
    if (gpu != trace::kNone) parts.push_back(fmt::format("GPU {}", gpu));
  }
  const std::string known = fmt::format("{}", fmt::join(parts, ", "));
  if (traced) return known.empty() ? "" : fmt::format(" ({})", known);
  return known.empty() ? " (no trace)" : fmt::format(" (no trace; {})", known);
}

// The command that shows where a process is: "ssh node4 py-spy dump --pid 4711".
std::string command_for(const Context& context, trace::Rank rank) {
  const Whereabouts at = whereabouts(context.run, rank);
  const bool remote = !at.host.empty() && hosts_matter(context.run);
  return fmt::format(
      "{}py-spy dump --pid {}", remote ? fmt::format("ssh {} ", at.host) : "",
      at.pid > 0 ? fmt::format("{}", at.pid) : fmt::format("<PID of rank {}>", rank.value));
}

// "mappings.py:226".
std::string file_and_line(std::string_view at) {
  const std::size_t slash = at.find_last_of("/\\");
  return printable(slash == kNpos ? at : at.substr(slash + 1));
}

bool is_send(const Context& context, CallRef ref) { return context.op(ref) == trace::Op::send; }

// Where the stopped rank made its side of such a message last: its receive from the rank that waits
// in a send, or its send to the one that waits in a receive. Where it never did, the line of the
// waiting rank.
trace::StringId other_side_at(const Context& context, trace::Rank stopped, CallRef waiting) {
  const trace::RankTrace* const trace = context.run.find(stopped);
  if (trace != nullptr) {
    const trace::Rank peer = context.run.ranks[waiting.rank].rank;
    const bool sends = is_send(context, waiting);
    for (std::size_t c = trace->calls.size(); c-- > 0;) {
      const trace::Call& call = trace->calls[c];
      const trace::Op op = context.run.tables.op(call);
      const bool is_other_side = sends ? op == trace::Op::recv : op == trace::Op::send;
      if (is_other_side && call.peer == peer && call.at.value != 0) return call.at;
    }
  }
  return context.call(waiting).at;
}

// " before call 318 of TENSOR_MODEL_PARALLEL (mappings.py:226)".
std::string call_words_of(const Context& context, const Stopped& stopped) {
  const CallRef ref = stopped.missed.call;
  const trace::Call& call = context.call(ref);
  if (context.where.wait_points[stopped.point].group == WaitPoint::kPointToPoint) {
    const std::string at =
        file_and_line(context.run.tables.str(other_side_at(context, stopped.ranks.front(), ref)));
    return fmt::format(
        " before {} rank {}{}", is_send(context, ref) ? "receiving from" : "sending to",
        context.run.ranks[ref.rank].rank.value, at.empty() ? "" : fmt::format(" ({})", at));
  }
  const std::string at = file_and_line(context.run.tables.str(call.at));
  std::string out = fmt::format(" before {}", context.describe_numbered(ref, stopped.missed.seq));
  if (call.step != trace::kNone) out += fmt::format(", step {}", call.step);
  // Where a watchdog's counters tell of a call, only its number is known.
  if (at.empty() && call.signature == trace::SignatureId{}) return out;
  return fmt::format("{} ({})", out, at.empty() ? context.describe_call(ref) : at);
}

}  // namespace

std::vector<std::uint32_t> lacked_by(const WaitPoint& point) {
  return united(point.missing, point.behind);
}

std::vector<trace::Rank> absent_at(const Context& context, const WaitPoint& point) {
  if (point.group != WaitPoint::kPointToPoint) return context.groups[point.group].absent;
  if (point.any_source || point.waiting.empty()) return {};
  const trace::Rank peer = context.call(waiting_call(context, point.waiting[0])).peer;
  const bool absent = peer.value >= 0 && context.run.find(peer) == nullptr;
  return absent ? std::vector{peer} : std::vector<trace::Rank>();
}

std::vector<std::size_t> by_distance(const Context& context,
                                     const std::vector<std::uint32_t>& culprits,
                                     const std::vector<std::size_t>& points) {
  std::vector<std::size_t> left = points;
  std::vector<std::size_t> out;
  std::vector<std::uint32_t> reached = culprits;
  while (!left.empty()) {
    std::vector<std::uint32_t> next;
    std::vector<std::size_t> farther;
    for (const std::size_t p : left) {
      const WaitPoint& point = context.where.wait_points[p];
      // In a cycle, the ranks that wait in the call are among the culprits themselves.
      if (meets(reached, lacked_by(point)) || (point.mismatched && meets(reached, point.waiting))) {
        out.push_back(p);
        next = united(next, point.waiting);
      } else {
        farther.push_back(p);
      }
    }
    if (farther.size() == left.size()) break;
    left = std::move(farther);
    reached = united(reached, next);
  }
  out.insert(out.end(), left.begin(), left.end());
  return out;
}

std::size_t first_missed(const Context& context, const std::vector<std::size_t>& points) {
  const auto point_at = [&](std::size_t p) -> const WaitPoint& {
    return context.where.wait_points[p];
  };
  const auto comes_first = [&](std::size_t p, std::size_t q) {
    const WaitPoint& a = point_at(p);
    const WaitPoint& b = point_at(q);
    const std::int32_t step_of_a = context.call(waiting_call(context, a.waiting[0])).step;
    const std::int32_t step_of_b = context.call(waiting_call(context, b.waiting[0])).step;
    if (step_of_a != trace::kNone && step_of_b != trace::kNone && step_of_a != step_of_b)
      return step_of_a < step_of_b;
    const bool messages =
        a.group == WaitPoint::kPointToPoint || b.group == WaitPoint::kPointToPoint;
    if (!messages)
      if (const auto before = comes_before(context, a, b)) return *before;
    // Times do not decide: a digest of the same traces has none, and says the same.
    return a.waiting.size() > b.waiting.size();
  };
  std::size_t best = points[0];
  for (const std::size_t p : points)
    if (p != best && comes_first(p, best)) best = p;
  return best;
}

MissedCall missed_call(const Context& context, const std::vector<std::uint32_t>& ranks,
                       const WaitPoint& point) {
  MissedCall out{shown_call(context, point), seq_at(context, point)};
  if (point.group == WaitPoint::kPointToPoint) return out;
  const GroupStreams& group = context.groups[point.group];
  std::uint64_t first = 0;
  const Stream* const waiting = stream_in(context, group.group, point.waiting[0], first);
  if (!group.comparable || waiting == nullptr) return out;
  for (const std::uint32_t r : ranks) {
    const Stream* const own = stream_in(context, group.group, r, first);
    if (own == nullptr || own->calls.size() >= waiting->calls.size()) continue;
    const std::uint64_t seq = first + own->calls.size();
    if (seq < out.seq) out = {{point.waiting[0], waiting->calls[own->calls.size()]}, seq};
  }
  return out;
}

std::vector<std::uint32_t> all_waiting(const Context& context,
                                       const std::vector<std::size_t>& points) {
  std::vector<std::uint32_t> out;
  for (const std::size_t p : points) out = united(out, context.where.wait_points[p].waiting);
  std::vector<std::size_t> left(context.where.wait_points.size());
  for (std::size_t p = 0; p < left.size(); ++p) left[p] = p;
  for (bool grew = true; grew;) {
    grew = false;
    std::erase_if(left, [&](std::size_t p) {
      const WaitPoint& point = context.where.wait_points[p];
      if (!meets(out, lacked_by(point))) return false;
      out = united(out, point.waiting);
      return grew = true;
    });
  }
  return out;
}

void tell_stopped(const Context& context, const Stopped& stopped, Finding& finding) {
  const WaitPoint& point = context.where.wait_points[stopped.point];
  std::vector<std::uint32_t> waiting = point.waiting;
  if (point.group == WaitPoint::kPointToPoint) {
    // Each side of a message waits by itself: a stage's neighbours on both sides wait for it.
    const auto stopped_here = [&](trace::Rank rank) {
      return std::binary_search(stopped.ranks.begin(), stopped.ranks.end(), rank);
    };
    for (const WaitPoint& other : context.where.wait_points) {
      std::vector<trace::Rank> lacked = context.ranks(lacked_by(other));
      unite(lacked, absent_at(context, other));
      const bool lacks = std::any_of(lacked.begin(), lacked.end(), stopped_here);
      if (lacks) waiting = united(waiting, other.waiting);
    }
  }
  finding.waiting = context.ranks(waiting);
  finding.headline = fmt::format(
      "{}{} {}{}{}; {} {} for {}", describe_ranks(stopped.ranks),
      where_words(context, stopped.ranks), stopped.verb, time_words(context, stopped.ranks, point),
      call_words_of(context, stopped), plural(stopped.waiting, "rank"),
      stopped.waiting == 1 ? "waits" : "wait", stopped.ranks.size() == 1 ? "it" : "them");
  if (stopped.alive) finding.next = command_for(context, stopped.ranks[0]);
}

}  // namespace lockstep::verify
