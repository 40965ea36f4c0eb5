#include "verify/job_evidence.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"
#include "trace/evidence/failure_messages.h"
#include "trace/run.h"
#include "verify/advice.h"
#include "verify/context.h"
#include "verify/described_notes.h"
#include "verify/first_cause.h"

namespace lockstep::verify {

namespace {

using NoteKind = trace::RankNote::Kind;

constexpr std::size_t kShownToAFinding = 6;
constexpr std::size_t kShownOfOthers = 4;

// A note as evidence. Its location is part of the text, since it is none in the user's program.
Evidence evidence_of(const trace::RankNote& note) {
  return {note.rank, std::nullopt, "",
          fmt::format("{}: {} ({})", trace::to_string(note.kind), printable(note.text),
                      printable(note.location.str()))};
}

// The notes by rank, in the order of Run::notes: what ended a rank comes first. Remembers which
// have been shown.
class Notes {
 public:
  explicit Notes(const trace::Run& run) : notes_(run.notes), reported_(run.notes.size()) {}

  // The notes of a rank, marked as shown from now on. `also_reported`: with those already shown.
  std::vector<const trace::RankNote*> take(trace::Rank rank, bool also_reported) {
    std::vector<const trace::RankNote*> out;
    const auto [first, last] = std::equal_range(notes_.begin(), notes_.end(), rank, ByRank());
    for (auto note = first; note != last; ++note) {
      const auto n = static_cast<std::size_t>(note - notes_.begin());
      if (also_reported || !reported_[n]) out.push_back(&*note);
      reported_[n] = true;
    }
    return out;
  }
  std::vector<const trace::RankNote*> left() const {
    std::vector<const trace::RankNote*> out;
    for (std::size_t n = 0; n < notes_.size(); ++n) {
      if (!reported_[n]) out.push_back(&notes_[n]);
    }
    return out;
  }

 private:
  struct ByRank {
    bool operator()(const trace::RankNote& note, trace::Rank rank) const {
      return note.rank < rank;
    }
    bool operator()(trace::Rank rank, const trace::RankNote& note) const {
      return rank < note.rank;
    }
  };
  const std::vector<trace::RankNote>& notes_;
  std::vector<bool> reported_;
};

// "; rank 3, out of memory: … (rank_3.log:12)": notes of a report show their message alone.
std::string describe_note(const trace::RankNote& note) {
  constexpr std::size_t kTextShown = 160;
  std::string text = printable(note.text.substr(0, kTextShown));
  if (note.text.size() > kTextShown) text += " …";
  return fmt::format("; {}, {}: {} ({})",
                     note.rank.value == trace::kNone && note.pid == trace::kNone
                         ? "some rank"
                         : describe_subject(note),
                     trace::to_string(note.kind), text, printable(note.location.str()));
}

// Adds notes to a finding as evidence.
void support(Finding& finding, Notes& notes) {
  const std::vector<trace::Rank>& about =
      finding.culprits.empty() ? finding.ranks : finding.culprits;
  std::size_t shown = 0;
  for (const trace::Rank rank : about) {
    if (shown >= kShownToAFinding) return;
    // Errors and warnings repeat what others show; the note about missing ranks does not.
    for (const trace::RankNote* note : notes.take(rank, finding.severity != Severity::note)) {
      if (shown++ >= kShownToAFinding) continue;
      finding.evidence.push_back(evidence_of(*note));
      if (finding.severity == Severity::note) finding.message += describe_note(*note);
      // A tool that stops the process to look at it would hang, too.
      if (finding.rule == RuleId::host_stall &&
          note->says == trace::RankNote::Says::in_the_kernel) {
        Advice advice = advice_about_blocked(*note);
        finding.fix = std::move(advice.fix);
        finding.next = std::move(advice.next);
      }
    }
  }
}

// Whether a finding may be why ranks ended, or follow from it. What the ranks read is neither.
bool bears_on_ends(const Finding& f) { return rule(f.rule).family != "data"; }

// Ranks that an error names as culprits, or whose exception it reports.
std::vector<trace::Rank> explained(const std::vector<Finding>& findings) {
  std::vector<trace::Rank> out;
  for (const Finding& f : findings) {
    if (f.severity != Severity::error || !bears_on_ends(f)) continue;
    const std::vector<trace::Rank>& ranks =
        f.culprits.empty() && f.rule == RuleId::rank_exception ? f.ranks : f.culprits;
    out.insert(out.end(), ranks.begin(), ranks.end());
    for (const Finding& below : f.consequences) {
      if (below.rule != RuleId::rank_exception) continue;
      out.insert(out.end(), below.ranks.begin(), below.ranks.end());
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

// Ranks that an error concerns in any way: their exceptions may be its consequence. (Gloo aborts
// every process that receives a message of another size.)
std::vector<trace::Rank> concerned(const std::vector<Finding>& findings) {
  std::vector<trace::Rank> out;
  for (const Finding& f : findings) {
    if (f.severity == Severity::error && bears_on_ends(f))
      out.insert(out.end(), f.ranks.begin(), f.ranks.end());
  }
  std::sort(out.begin(), out.end());
  return out;
}

// The note's text with each number replaced by '#': equal for ranks that ended for the same reason,
// "Tried to allocate 2.00 GiB" and "Tried to allocate 1.50 GiB".
std::string shape_of(const trace::RankNote& note) {
  std::string out(trace::to_string(note.kind));
  for (const char c : note.text) {
    if (c < '0' || c > '9') {
      out += c;
    } else if (!out.ends_with('#')) {
      out += '#';
    }
  }
  return out;
}

std::string describe_end(NoteKind kind, bool one) {
  switch (kind) {
    case NoteKind::out_of_memory:
      return " ran out of memory";
    case NoteKind::killed:
      return one ? " was killed" : " were killed";
    case NoteKind::crashed:
      return " crashed";
    case NoteKind::gpu_fault:
      return one ? " lost its GPU" : " lost their GPUs";
    default:
      return one ? " raised an exception" : " raised exceptions";
  }
}

// One finding for all ranks that ended in the same way.
Finding explain_end(const trace::Run& run, const std::vector<const trace::RankNote*>& ends) {
  constexpr std::size_t kTextShown = 200;
  const trace::RankNote& first = *ends.front();
  // A signal does not show who sent it, or why: scancel, or the kernel that ran out of memory.
  Finding f =
      make_finding(first.kind == NoteKind::killed                  ? RuleId::rank_killed
                   : first.kind == NoteKind::gpu_fault             ? RuleId::device_stall
                   : trace::mentions_unused_parameters(first.text) ? RuleId::unused_parameter
                                                                   : RuleId::rank_exception);
  if (f.rule == RuleId::rank_exception) {
    Advice advice = advice_about(first.text, first.host);
    if (!advice.fix.empty()) f.fix = std::move(advice.fix);
    f.next = std::move(advice.next);
  }
  for (const trace::RankNote* note : ends) f.ranks.push_back(note->rank);
  std::string text = printable(first.text);
  if (text.size() > kTextShown) text = printable(text.substr(0, kTextShown)) + " …";
  const bool in_one_place = !first.raised_at.empty() &&
                            std::all_of(ends.begin(), ends.end(), [&](const trace::RankNote* note) {
                              return note->raised_at == first.raised_at;
                            });
  f.message = fmt::format("{}{}: {}{}", describe_ranks(f.ranks),
                          describe_end(first.kind, f.ranks.size() == 1), text,
                          in_one_place ? fmt::format(" ({})", printable(first.raised_at)) : "");
  std::vector<trace::Rank> untraced;
  std::copy_if(f.ranks.begin(), f.ranks.end(), std::back_inserter(untraced),
               [&](trace::Rank rank) { return run.find(rank) == nullptr; });
  if (!untraced.empty()) {
    const bool all = untraced.size() == f.ranks.size();
    f.message += fmt::format("; no trace of {} was given", !all ? describe_ranks(untraced)
                                                           : untraced.size() == 1 ? "it"
                                                                                  : "them");
  }
  const bool of_two_ranks = trace::says_sizes_differ(first.text);
  if (of_two_ranks)
    f.why =
        "Gloo ends a process to which another rank sends more than its call expects: the two "
        "called "
        "with different sizes or types, or made different calls. The log does not show which of "
        "them is wrong.";
  if (trace::raised_by_all(first.text)) {
    std::vector<std::string_view> exceptions;
    for (const trace::RankNote* note : ends) exceptions.emplace_back(note->text);
    f.culprits = trace::odd_ranks(exceptions, run.world_size);
  } else if (first.kind != NoteKind::killed && !of_two_ranks) {
    f.culprits = f.ranks;
  }
  set_fingerprint(f, shape_of(first));
  return f;
}

// Findings for ranks that ended by themselves and that no finding names, one per reason.
std::vector<Finding> unexplained_ends(const trace::Run& run, const std::vector<Finding>& findings) {
  const std::vector<trace::Rank> known = explained(findings);
  const std::vector<trace::Rank> reported = concerned(findings);
  const bool any_error = std::any_of(findings.begin(), findings.end(), [](const Finding& f) {
    return f.severity == Severity::error && bears_on_ends(f);
  });
  std::map<std::string, std::vector<const trace::RankNote*>> by_reason;
  trace::Rank last(trace::kNone);
  for (const trace::RankNote& note : run.notes) {  // by rank: the first that ends it counts
    if (!note.ends() || note.rank.value == trace::kNone || note.rank == last) continue;
    last = note.rank;
    const trace::RankTrace* trace = run.find(note.rank);
    // The rank's own trace ended cleanly: reported as a contradiction.
    if (trace != nullptr && trace->end == trace::End::clean && !trace->snapshot) continue;
    // It was alive when the job hung: what it raised later may be a consequence of the hang.
    if (trace != nullptr && trace->end == trace::End::hung && any_error) continue;
    if (trace != nullptr && std::binary_search(reported.begin(), reported.end(), note.rank))
      continue;
    if (std::binary_search(known.begin(), known.end(), note.rank)) continue;
    by_reason[shape_of(note)].push_back(&note);
  }
  std::vector<Finding> out;
  out.reserve(by_reason.size());
  for (const auto& [shape, ends] : by_reason) out.push_back(explain_end(run, ends));
  return out;
}

Finding note_others(const std::vector<const trace::RankNote*>& left) {
  Finding f = make_finding(RuleId::job_evidence);
  std::string shown;
  std::map<NoteKind, std::size_t> counts;
  for (const trace::RankNote* note : left) {
    ++counts[note->kind];
    if (note->rank.value != trace::kNone && (f.ranks.empty() || f.ranks.back() != note->rank)) {
      f.ranks.push_back(note->rank);
    }
    if (f.evidence.size() == kShownOfOthers) continue;
    f.evidence.push_back(evidence_of(*note));
    shown += describe_note(*note);
  }
  std::vector<std::string> parts;
  parts.reserve(counts.size());
  for (const auto& [kind, count] : counts) {
    parts.push_back(fmt::format("{} × {}", count, trace::to_string(kind)));
  }
  f.message = fmt::format("also reported about the ranks: {}{}", join_and(parts), shown);
  set_fingerprint(f, "");
  return f;
}

}  // namespace

void add_job_evidence(const trace::Run& run, Report& report) {
  report.sources = run.sources;
  if (run.notes.empty()) return;
  std::vector<Finding> ends = unexplained_ends(run, report.findings);
  std::move(ends.begin(), ends.end(), std::back_inserter(report.findings));
  Notes notes(run);
  for (const Severity severity : {Severity::error, Severity::warning, Severity::note}) {
    for (Finding& f : report.findings) {
      if (f.severity == severity && bears_on_ends(f)) support(f, notes);
    }
  }
  if (const std::vector<const trace::RankNote*> left = notes.left(); !left.empty()) {
    report.findings.push_back(note_others(left));
  }
  tell_first_cause(run, report);
}

}  // namespace lockstep::verify
