#include "verify/wait_words.h"

#include "base/text.h"

namespace lockstep {

namespace {

constexpr std::size_t kExceptionShown = 200;  // characters of an exception's text in a message

// The last exception's text, shortened.
std::string exception_text(const Context& context, std::uint32_t rank) {
  const RankTrace& trace = context.run.ranks[rank];
  if (trace.exceptions.empty()) return "";
  std::string text = printable(trace.exceptions.back().what);
  if (text.size() > kExceptionShown) {
    std::size_t cut = kExceptionShown;
    while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0U) == 0x80U) --cut;
    text = text.substr(0, cut) + " …";
  }
  return text;
}

}  // namespace

CallRef waiting_call(const Context& context, std::uint32_t rank) {
  return {rank, context.where.positions[rank].waiting_in()};
}

std::uint64_t seq_at(const Context& context, const WaitPoint& point) {
  if (point.group != WaitPoint::kPointToPoint) return context.seq_of(point);
  return context.call(waiting_call(context, point.waiting[0])).seq;
}

std::string waiting_words(const Context& context, const WaitPoint& point) {
  const CallRef call = waiting_call(context, point.waiting[0]);
  if (point.mismatched) {
    return context.rank_words(point.waiting) + " met in calls that do not fit together (" +
           context.place_words(call, seq_at(context, point)) + ")";
  }
  const bool one = point.waiting.size() == 1;
  std::string out = context.rank_words(point.waiting) + (one ? " waits in " : " wait in ") +
                    context.call_words(call);
  if (point.group == WaitPoint::kPointToPoint) {
    const Call& c = context.call(call);
    const bool sends = context.run.tables.signatures[c.signature].op == Op::send;
    out += (sends ? " to rank " : " from rank ") + std::to_string(c.peer.value);
  }
  return out + " (" + context.place_words(call, seq_at(context, point)) + ")";
}

std::string waiting_for_words(const Context& context, const WaitPoint& point) {
  std::string out = waiting_words(context, point);
  if (!point.missing.empty()) out += " for " + context.rank_words(point.missing);
  return out;
}

void place_at(const Context& context, const WaitPoint& point, Cause& cause) {
  const CallRef call = waiting_call(context, point.waiting[0]);
  Finding& f = cause.finding;
  cause.step = context.call(call).step;
  cause.seq = seq_at(context, point);
  f.seq = cause.seq;
  if (cause.step != kNone) f.step = cause.step;
  f.group = printable(context.run.tables.str(context.call(call).group));
  if (point.group != WaitPoint::kPointToPoint) cause.group = point.group;
  for (const std::string& name : context.run.tables.names(context.call(call).what)) {
    f.what.push_back(name);
  }
}

std::string state_words(const Context& context, std::uint32_t rank) {
  using State = Position::State;
  switch (context.where.positions[rank].state) {
    case State::finished:
      return "finished its program";
    case State::running:
      return "is still running";
    case State::cut:
      return "stopped without an end mark: its process died, or its trace was cut off";
    case State::killed:
      return "was killed";
    case State::raised: {
      const std::string text = exception_text(context, rank);
      return "raised an exception" + (text.empty() ? "" : ": " + text);
    }
    case State::hung:
      return "hung outside of any collective";
  }
  return "";
}

std::string last_seen(const Context& context, std::uint32_t rank) {
  const RankTrace& trace = context.run.ranks[rank];
  if (trace.calls.empty()) return "it issued no call at all";
  const CallRef last{rank, static_cast<std::uint32_t>(trace.calls.size() - 1)};
  return "its last call was " + context.call_words(last) + " (" +
         context.place_words(last, context.call(last).seq) + ")";
}

}  // namespace lockstep
