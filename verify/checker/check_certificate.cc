#include "verify/checker/check_certificate.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "base/text.h"
#include "verify/checker/parts.h"
#include "verify/checker/statements.h"

namespace lockstep::verify {

namespace {

using checked::Options;
using checked::ProgramParts;
using checked::word;

template <class List, class Show>
std::string comma(const List& list, Show show) {
  std::string out;
  for (const auto& item : list) out += (out.empty() ? "" : ",") + show(item);
  return out.empty() ? "-" : out;
}

class Checker {
 public:
  Checker(std::string_view text, const std::string& file, const trace::ProductSpec& spec,
          const checked::ProgramParts& parts)
      : text_(text, file), spec_(spec), parts_(parts) {
    recordings_.resize(spec_.conditions.size());
    for (const std::uint32_t c : spec_.steps) ++recordings_[c];
    history_of_.resize(spec_.conditions.size(), kNoHistory);
    for (std::size_t h = 0; h < spec_.histories.size(); ++h)
      history_of_[spec_.histories[h].first] = h;
  }

  Status check() {
    statements();
    situations();
    text_.expect_end();
    return text_.status();
  }

 private:
  static constexpr std::size_t kNoHistory = SIZE_MAX;
  void statements() {
    const auto number = [](std::int64_t n) { return std::to_string(n); };
    const bool agreed = spec_.choice == trace::ProductSpec::Choice::agreed;
    text_.expect("lockstep-certificate 1");
    text_.expect("kind program");
    text_.expect("digest sha256");
    text_.expect("program " + checked::word(spec_.program));
    text_.expect("ranks " + number(spec_.world_size));
    text_.expect(parts_.table.nccl ? "order device" : "order host");
    text_.expect(agreed ? "choice agreed" : "choice free");
    text_.expect("steps " + (spec_.only_steps ? number(*spec_.only_steps) : "any"));
    for (const auto& c : spec_.conditions)
      text_.expect("condition " + checked::word(c.name) + " phase " + checked::word(c.phase) +
                   " has " + comma(c.has, checked::word));
    for (const auto& a : spec_.allowed)
      text_.expect("allowed ranks " + (a.ranks.empty() ? "all" : ranges(a.ranks)) + " steps " +
                   (a.steps.empty() ? "all" : comma(a.steps, number)) + " conditions " +
                   comma(a.conditions, number));
    for (const auto& c : spec_.classes)
      text_.expect("class " + number(c.rank) + " ranks " + ranges(c.ranks));
    for (const auto& h : spec_.histories)
      text_.expect("history first " + number(h.first) + " folder " + checked::word(h.folder));
    text_.expect("recorded " + comma(spec_.steps, number));
    for (const std::string& text : spec_.assumptions) text_.expect("assume " + checked::word(text));
    for (const auto& [name, members] : parts_.table.groups)
      text_.expect("group " + checked::word(name) + " members " +
                   comma(members, [](trace::Rank r) { return std::to_string(r.value); }));
    for (std::size_t h = 0; h < parts_.of.size(); ++h) {
      for (std::size_t part = 0;
           part < checked::ProgramParts::kFirstCondition + spec_.conditions.size(); ++part)
        sequences(h, part);
    }
  }

  void sequences(std::size_t h, std::size_t part) {
    std::vector<std::uint32_t> order;
    std::map<std::uint32_t, std::vector<std::int32_t>> ranks;
    for (std::size_t r = 0; r < parts_.of[h].size(); ++r) {
      const std::uint32_t body = parts_.of[h][r][part];
      if (body == checked::ProgramParts::kMissing) continue;
      if (ranks[body].empty()) order.push_back(body);
      ranks[body].push_back(static_cast<std::int32_t>(r));
    }
    const std::string name = part == checked::ProgramParts::kStart    ? "start"
                             : part == checked::ProgramParts::kFirst  ? "step0"
                             : part == checked::ProgramParts::kSecond ? "step1"
                             : part == checked::ProgramParts::kEnd
                                 ? "end"
                                 : std::to_string(part - checked::ProgramParts::kFirstCondition);
    for (const std::uint32_t body : order)
      text_.expect("sequence " + std::to_string(h) + " " + name + " ranks " + ranges(ranks[body]) +
                   " " + parts_.table.all[body].digest);
  }

  // Which conditions the rank may be in at a step, of those that may meet there.
  std::vector<std::uint32_t> may(std::int32_t rank, std::int64_t step,
                                 const std::vector<std::uint32_t>& meet) const {
    for (const auto& rule : spec_.allowed) {
      const bool fits =
          (rule.ranks.empty() || std::binary_search(rule.ranks.begin(), rule.ranks.end(), rank)) &&
          (rule.steps.empty() || std::binary_search(rule.steps.begin(), rule.steps.end(), step));
      if (!fits) continue;
      std::vector<std::uint32_t> out;
      for (const std::uint32_t c : meet) {
        if (std::count(rule.conditions.begin(), rule.conditions.end(), c) > 0) out.push_back(c);
      }
      return out;
    }
    return meet;
  }

  // The situation of that name, if each rank has an option in it. False: some rank has none.
  bool situation(const std::string& name, const Options& options) {
    if (options.empty()) return false;
    text_.expect("situation " + name);
    if (!text_.refused()) checked::check_situation(text_, parts_.table, options, parts_.table.nccl);
    return true;
  }

  // What comes before step 0 and after the last step.
  Options fixed(std::size_t part) {
    Options out;
    for (std::int32_t r = 0; r < spec_.world_size; ++r) {
      out.emplace_back();
      for (const auto& history : parts_.of)
        out.back().insert(history[static_cast<std::size_t>(r)][part]);
      if (out.back().size() != 1) text_.refuse("the start or the end depends on the first step");
    }
    return out;
  }

  // What a rank does at a later step under a condition; `mine`: its parts in a history.
  std::uint32_t later(const std::vector<std::uint32_t>& mine, std::int64_t step,
                      std::uint32_t condition) const {
    const std::uint32_t second = mine[checked::ProgramParts::kSecond];
    if (step != 1 || second == checked::ProgramParts::kMissing)
      return mine[checked::ProgramParts::kFirstCondition + condition];
    return condition == spec_.steps.front() ? second : checked::ProgramParts::kMissing;
  }

  // The parts that each rank may do; empty where some rank has no condition.
  Options at_step(std::int64_t step, const std::vector<std::uint32_t>& meet,
                  const std::vector<std::uint32_t>& first) {
    Options out;
    for (std::int32_t r = 0; r < spec_.world_size && !text_.refused(); ++r) {
      out.emplace_back();
      const std::vector<std::uint32_t> now = may(r, step, meet);
      for (const std::uint32_t f : step == 0 ? now : may(r, 0, first)) {
        if (history_of_[f] == kNoHistory) {
          text_.refuse("no history begins with condition " + std::to_string(f));
          return {};
        }
        const auto& mine = parts_.of[history_of_[f]][static_cast<std::size_t>(r)];
        if (step == 0) {
          out.back().insert(mine[checked::ProgramParts::kFirst]);
          continue;
        }
        for (const std::uint32_t c : now) {
          if (recordings_[c] < 2)
            text_.refuse("condition " + std::to_string(c) + " was not recorded twice");
          out.back().insert(later(mine, step, c));
        }
      }
      if (out.back().empty()) return {};
    }
    return out;
  }

  // The sets of conditions that may meet in a step.
  std::vector<std::vector<std::uint32_t>> meets() const {
    std::vector<std::vector<std::uint32_t>> out;
    std::map<std::string, std::size_t> phases;
    for (std::uint32_t c = 0; c < spec_.conditions.size(); ++c) {
      const std::string key = spec_.choice == trace::ProductSpec::Choice::agreed
                                  ? std::to_string(c)
                                  : spec_.conditions[c].phase;
      const auto [meet, fresh] = phases.emplace(key, out.size());
      if (fresh) out.emplace_back();
      out[meet->second].push_back(c);
    }
    return out;
  }

  // No certificate is written for a program that it would take minutes to check.
  void check_size(std::size_t meets) {
    double steps = 2;
    for (const auto& rule : spec_.allowed) steps += static_cast<double>(rule.steps.size());
    const auto squared = [](std::size_t n) {
      return static_cast<double>(n) * static_cast<double>(n);
    };
    const double rules = 1 + static_cast<double>(spec_.allowed.size());
    const double ways = rules * squared(meets) + squared(spec_.conditions.size());
    if (steps * spec_.world_size * ways > 1 << 28)
      text_.refuse("there are too many ways to look at");
  }

  // All situations, in the order of the certificate.
  void situations() {
    const std::vector<std::vector<std::uint32_t>> meet = meets();
    check_size(meet.size());
    if (text_.refused()) return;
    situation("start", fixed(checked::ProgramParts::kStart));
    std::vector<std::size_t> pasts;
    for (std::size_t m = 0; m < meet.size() && !text_.refused(); ++m) {
      if (situation("step 0 meet " + std::to_string(m), at_step(0, meet[m], {})))
        pasts.push_back(m);
    }
    if (pasts.empty()) text_.refuse("step 0 is possible for no choice of conditions");
    std::set<std::int64_t> steps;  // those that are like no other
    for (const auto& rule : spec_.allowed) steps.insert(rule.steps.begin(), rule.steps.end());
    if (parts_.second_alone) steps.insert(1);
    steps.erase(0);
    std::int64_t other = 1;
    while (steps.contains(other)) ++other;
    steps.insert(other);
    for (const std::int64_t step : steps) {
      if (text_.refused() || (spec_.only_steps && step >= *spec_.only_steps)) break;
      const std::string name =
          "step " + std::to_string(step) + (step == other ? " and-others" : "") + " meet ";
      bool any = false;
      for (std::size_t m = 0; m < meet.size(); ++m) {
        for (const std::size_t past : pasts) {
          any |= situation(name + std::to_string(m) + " after " + std::to_string(past),
                           at_step(step, meet[m], meet[past]));
        }
      }
      if (!any) text_.refuse("step " + std::to_string(step) + " is possible for no choice");
    }
    situation("end", fixed(checked::ProgramParts::kEnd));
  }

  checked::Statements text_;
  const trace::ProductSpec& spec_;
  const checked::ProgramParts& parts_;
  std::vector<std::size_t> recordings_;  // by condition, in later steps
  std::vector<std::size_t> history_of_;  // by condition
};

}  // namespace

std::optional<CertificateKind> certificate_kind(std::string_view text) {
  constexpr std::string_view kFirst = "lockstep-certificate 1\n";
  if (!text.starts_with(kFirst)) return std::nullopt;
  text.remove_prefix(kFirst.size());
  if (text.starts_with("kind program\n")) return CertificateKind::program;
  if (text.starts_with("kind run\n")) return CertificateKind::run;
  return std::nullopt;
}

Status check_certificate(std::string_view text, const std::string& file,
                         const trace::Derivation& derivation) {
  const Result<checked::ProgramParts> parts = checked::read_program(derivation);
  if (!parts) return parts.error();
  return Checker(text, file, derivation.spec, *parts).check();
}

namespace {

using checked::word;

class RunChecker {
 public:
  RunChecker(std::string_view text, const std::string& file, const trace::Run& run)
      : text_(text, file), run_(run), reader_(run.world_size) {}

  Status check() {
    whole();
    if (text_.refused()) return text_.status();
    read();
    if (reader_.error()) return *reader_.error();
    const bool device = statements();
    checked::check_situation(text_, reader_.table(), options_, device);
    text_.expect_end();
    return text_.status();
  }

 private:
  // A proof about what is not there would be none.
  void whole() {
    if (!run_.unreadable.empty()) text_.refuse("a file could not be read");
    if (!run_.header_conflicts.empty()) text_.refuse("the traces contradict each other");
    if (run_.ranks.empty()) text_.refuse("there is no trace");
    for (std::size_t r = 0; r < run_.ranks.size(); ++r) {
      if (run_.ranks[r].rank.value != static_cast<std::int32_t>(r))
        return text_.refuse("rank " + std::to_string(r) + " has no trace");
    }
    if (run_.world_size != static_cast<std::int32_t>(run_.ranks.size()))
      text_.refuse("some rank has no trace");
    for (const trace::RankTrace& trace : run_.ranks) {
      const bool begins = std::all_of(trace.first_seq.begin(), trace.first_seq.end(),
                                      [](const auto& first) { return first.second == 0; });
      const bool lost = trace.damaged_count > 0 || trace.dropped > 0 || trace.open_ended ||
                        trace.snapshot || !begins;
      if (lost || trace.end != trace::End::clean || !trace.exceptions.empty()) {
        return text_.refuse("the trace of rank " + std::to_string(trace.rank.value) +
                            (lost ? " is not complete" : " does not end well"));
      }
    }
  }

  void read() {
    reader_.declare(run_);
    reader_.enter(run_);
    for (const trace::RankTrace& trace : run_.ranks) {
      if (reader_.error()) return;
      bool posts = false;
      bool waits = false;
      for (const trace::Event& event : trace.events) {
        posts = posts || (event.kind == trace::EventKind::issue &&
                          trace.calls[event.index].has(trace::kAsync));
        waits = waits || event.kind == trace::EventKind::wait;
      }
      checked::Stretch stretch;
      stretch.end = static_cast<std::uint32_t>(trace.events.size());
      stretch.all_block = posts && !waits;
      if (stretch.all_block) without_waits_.push_back(trace.rank.value);
      options_.push_back({reader_.read(trace, stretch)});
    }
  }

  // Calls by what is not known of them.
  std::map<std::string, std::uint64_t> gaps() const {
    std::map<std::string, std::uint64_t> out;
    for (const trace::RankTrace& trace : run_.ranks) {
      for (const trace::Call& call : trace.calls) {
        const trace::Signature& s = run_.tables.signatures[call.signature];
        if (s.op == trace::Op::barrier) continue;
        const bool no_size = s.in_elements < 0 && s.out_elements < 0;
        const bool no_root =
            s.root < 0 && (s.op == trace::Op::broadcast || s.op == trace::Op::reduce ||
                           s.op == trace::Op::gather || s.op == trace::Op::scatter);
        if (call.what.value == 0 && !trace::is_point_to_point(s.op)) ++out["names"];
        if (no_size && s.op != trace::Op::other) ++out["sizes"];
        if (s.dtypes.value == 0) ++out["types"];
        if (s.redop.value == 0 && trace::is_reduction(s.op)) ++out["reduce-operations"];
        if (no_root) ++out["roots"];
      }
    }
    return out;
  }

  // All lines but those of the order. True: the order holds for devices, too.
  bool statements() {
    text_.expect("lockstep-certificate 1");
    text_.expect("kind run");
    text_.expect("digest sha256");
    text_.expect("ranks " + std::to_string(run_.world_size));
    // Who holds for devices holds for hosts.
    const bool device = reader_.table().nccl || text_.peek() == "order device";
    text_.expect(device ? "order device" : "order host");
    for (const std::string& unknown : run_.unknown)
      text_.expect("assume " + checked::word(unknown));
    const std::map<std::string, std::uint64_t> unrecorded = gaps();
    for (const char* what : {"names", "sizes", "types", "reduce-operations", "roots"}) {
      if (const auto calls = unrecorded.find(what); calls != unrecorded.end())
        text_.expect("unrecorded " + calls->first + " " + std::to_string(calls->second));
    }
    if (!without_waits_.empty()) text_.expect("unrecorded waits ranks " + ranges(without_waits_));
    for (const auto& [name, members] : reader_.table().groups) {
      std::string list;
      for (const trace::Rank r : members)
        list += (list.empty() ? "" : ",") + std::to_string(r.value);
      text_.expect("group " + checked::word(name) + " members " + (list.empty() ? "-" : list));
    }
    std::map<std::uint32_t, std::vector<std::int32_t>> ranks;
    for (std::size_t r = 0; r < options_.size(); ++r)
      ranks[*options_[r].begin()].push_back(static_cast<std::int32_t>(r));
    for (const auto& [part, mine] : ranks) {
      text_.expect("sequence ranks " + ranges(mine) + " " + reader_.table().all[part].digest);
    }
    return device;
  }

  checked::Statements text_;
  const trace::Run& run_;
  checked::PartReader reader_;
  checked::Options options_;
  std::vector<std::int32_t> without_waits_;
};

}  // namespace

Status check_run_certificate(std::string_view text, const std::string& file,
                             const trace::Run& run) {
  return RunChecker(text, file, run).check();
}

}  // namespace lockstep::verify
