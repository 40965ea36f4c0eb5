#include <algorithm>
#include <map>
#include <vector>

#include "base/text.h"
#include "verify/checker/check_certificate.h"
#include "verify/checker/checked_parts.h"
#include "verify/checker/situation.h"
#include "verify/checker/statements.h"

namespace lockstep {

namespace {

using checked::word;

class RunChecker {
 public:
  RunChecker(std::string_view text, const std::string& file, const Run& run)
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
    for (const RankTrace& trace : run_.ranks) {
      const bool begins = std::all_of(trace.first_seq.begin(), trace.first_seq.end(),
                                      [](const auto& first) { return first.second == 0; });
      const bool lost = trace.damaged_count > 0 || trace.dropped > 0 || trace.open_ended ||
                        trace.snapshot || !begins;
      if (lost || trace.end != End::clean || !trace.exceptions.empty()) {
        return text_.refuse("the trace of rank " + std::to_string(trace.rank.value) +
                            (lost ? " is not complete" : " does not end well"));
      }
    }
  }

  void read() {
    reader_.declare(run_);
    reader_.enter(run_);
    for (const RankTrace& trace : run_.ranks) {
      if (reader_.error()) return;
      bool posts = false;
      bool waits = false;
      for (const Event& event : trace.events) {
        posts = posts || (event.kind == EventKind::issue && trace.calls[event.index].has(kAsync));
        waits = waits || event.kind == EventKind::wait;
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
    for (const RankTrace& trace : run_.ranks) {
      for (const Call& call : trace.calls) {
        const Signature& s = run_.tables.signatures[call.signature];
        if (s.op == Op::barrier) continue;
        const bool no_size = s.in_elements < 0 && s.out_elements < 0;
        const bool no_root = s.root < 0 && (s.op == Op::broadcast || s.op == Op::reduce ||
                                            s.op == Op::gather || s.op == Op::scatter);
        if (call.what.value == 0 && !is_point_to_point(s.op)) ++out["names"];
        if (no_size && s.op != Op::other) ++out["sizes"];
        if (s.dtypes.value == 0) ++out["types"];
        if (s.redop.value == 0 && is_reduction(s.op)) ++out["reduce-operations"];
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
    for (const std::string& unknown : run_.unknown) text_.expect("assume " + word(unknown));
    const std::map<std::string, std::uint64_t> unrecorded = gaps();
    for (const char* what : {"names", "sizes", "types", "reduce-operations", "roots"}) {
      if (const auto calls = unrecorded.find(what); calls != unrecorded.end())
        text_.expect("unrecorded " + calls->first + " " + std::to_string(calls->second));
    }
    if (!without_waits_.empty()) text_.expect("unrecorded waits ranks " + ranges(without_waits_));
    for (const auto& [name, members] : reader_.table().groups) {
      std::string list;
      for (const Rank r : members) list += (list.empty() ? "" : ",") + std::to_string(r.value);
      text_.expect("group " + word(name) + " members " + (list.empty() ? "-" : list));
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
  const Run& run_;
  checked::PartReader reader_;
  checked::Options options_;
  std::vector<std::int32_t> without_waits_;
};

}  // namespace

Status check_run_certificate(std::string_view text, const std::string& file, const Run& run) {
  return RunChecker(text, file, run).check();
}

}  // namespace lockstep
