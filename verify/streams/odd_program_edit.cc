#include "verify/streams/odd_program_edit.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "verify/streams/past.h"
#include "verify/streams/programs.h"

namespace lockstep::verify {

namespace {

// Calls left out or added in a row that are looked for.
constexpr std::uint32_t kMaxCallsEdited = 256;
// Calls after an edit that have to agree.
constexpr std::uint32_t kEnough = 32;
// Calls searched backwards for what repeats.
constexpr std::uint32_t kLooksBack = 4096;

class EditSearch {
 public:
  EditSearch(RankPrograms& programs, OddProgram& odd) : programs_(programs), odd_(odd) {}

  // Tries edits from small to large, on the deviant with most calls.
  bool run() {
    const std::uint32_t d =
        *std::max_element(odd_.deviants.begin(), odd_.deviants.end(),
                          [&](auto a, auto b) { return calls(a).size() < calls(b).size(); });
    std::swap(odd_.deviants[0], *std::find(odd_.deviants.begin(), odd_.deviants.end(), d));
    const std::uint32_t own = period_of(d);
    const std::uint32_t usual = period_of(odd_.usual);
    const auto try_edit = [&](OddProgram::Kind kind, std::uint32_t count, std::uint32_t mine,
                              std::uint32_t theirs) {
      const std::uint32_t again = kind == OddProgram::Kind::missing ? count : 0;
      const std::uint32_t n = agree_from(odd_.index + mine, odd_.index + theirs, own, usual, again);
      if (n == 0) return false;
      odd_.kind = kind;
      odd_.count = count;
      return true;
    };
    const auto find = [&] {
      if (odd_.index + 1 < std::min(size(d), size(odd_.usual)) &&
          same(d, odd_.index, odd_.usual, odd_.index + 1) &&
          same(d, odd_.index + 1, odd_.usual, odd_.index)) {
        odd_.kind = OddProgram::Kind::swapped;
        odd_.count = 2;
        return true;
      }
      for (std::uint32_t k = 1; k <= kMaxCallsEdited; ++k) {
        const std::uint32_t left = static_cast<std::uint32_t>(calls(d).size()) - odd_.index;
        // Nobody leaves out what was not recorded of the usual program either.
        if (odd_.index + k <= size(odd_.usual) && try_edit(OddProgram::Kind::missing, k, 0, k))
          return true;
        if (k < left && try_edit(OddProgram::Kind::extra, k, k, 0)) {
          if (begins_next_round(d)) odd_.kind = OddProgram::Kind::missing, odd_.count = 1;
          return true;
        }
        if (k == 1 && left > 1 && try_edit(OddProgram::Kind::replaced, 1, 1, 1)) return true;
      }
      return false;
    };
    odd_.is_certain = find();
    if (!odd_.is_certain) guess_edit(d);
    std::sort(odd_.deviants.begin(), odd_.deviants.end());
    return odd_.is_certain;
  }

 private:
  const std::vector<trace::Call>& calls(std::uint32_t r) const { return programs_.calls(r); }
  std::uint32_t size(std::uint32_t r) const { return programs_.size(r); }
  bool same(std::uint32_t a, std::uint32_t i, std::uint32_t b, std::uint32_t j) {
    return programs_.same(a, i, b, j);
  }

  // What they did where no single edit makes the rest agree: they left out what comes before the
  // next call that they make, or made more calls before the usual one.
  void guess_edit(std::uint32_t d) {
    odd_.kind = OddProgram::Kind::replaced;
    odd_.count = 1;
    for (std::uint32_t k = 1; k <= kMaxCallsEdited; ++k) {
      if (odd_.index + k < size(odd_.usual) && same(d, odd_.index, odd_.usual, odd_.index + k)) {
        odd_.kind = OddProgram::Kind::missing;
        odd_.count = k;
        return;
      }
      if (odd_.index + k < size(d) && same(d, odd_.index + k, odd_.usual, odd_.index)) {
        odd_.kind = OddProgram::Kind::extra;
        odd_.count = k;
        return;
      }
    }
    if (size(d) == odd_.index + 1) odd_.kind = OddProgram::Kind::extra;
  }

  // Whether calls that look added are the next round, because the last call of this one was left
  // out:
  //
  //   usual     … d a b c d
  //   deviant   … d a b c a b c d      d was left out; a b c were not added
  //
  // The usual program must end with that call. If it made that call before (as here), a round is
  // what lies between the two, and as many calls must look added. Otherwise the deviant must have
  // made the first of them before, but not all of them right before: that would be a loop that ran
  // once too often.
  bool begins_next_round(std::uint32_t d) {
    if (odd_.index + 1 != size(odd_.usual) || odd_.count > odd_.index) return false;
    const auto is_known = [&](std::uint32_t call) {
      for (std::uint32_t i = 0; i < odd_.index; ++i)
        if (same(d, i, d, call)) return true;
      return false;
    };
    for (std::uint32_t i = odd_.index; i-- > 0;)
      if (same(odd_.usual, i, odd_.usual, odd_.index)) return odd_.count == odd_.index - i - 1;
    bool repeats = true;
    for (std::uint32_t i = 0; i < odd_.count && repeats; ++i)
      repeats = same(d, odd_.index + i, d, odd_.index + i - odd_.count);
    return !repeats && is_known(odd_.index);
  }

  // How many of the deviant's calls from `mine` on are those of the usual one from `theirs` on; at
  // most kEnough. 0 if a recorded call of the deviant does not agree. One that is only predicted,
  // by repetition, ends the comparison. `again`: the deviant may leave out as many calls, like
  // those that the usual program makes where they diverge, in later rounds, too.
  std::uint32_t agree_from(std::uint32_t mine, std::uint32_t theirs, std::uint32_t own_period,
                           std::uint32_t usual_period, std::uint32_t again) {
    const std::uint32_t d = odd_.deviants[0];
    std::uint32_t agreeing = 0;
    const auto left_out_again = [&](std::uint32_t from) {
      for (std::uint32_t k = 0; k < again; ++k) {
        const auto call = at(odd_.usual, from + k, usual_period);
        if (!call || !same(odd_.usual, *call, odd_.usual, odd_.index + k)) return false;
      }
      return again > 0;
    };
    for (std::uint32_t n = 0; n < kEnough; ++n) {
      if (mine + n >= calls(d).size() && theirs + n >= calls(odd_.usual).size()) break;
      const auto i = at(d, mine + n, own_period);
      auto j = at(odd_.usual, theirs + n, usual_period);
      if (!i || !j) break;
      if (!same(d, *i, odd_.usual, *j)) {
        if (mine + n >= calls(d).size()) return agreeing;
        if (agreeing == 0 || !left_out_again(theirs + n)) return 0;
        theirs += again;
        j = at(odd_.usual, theirs + n, usual_period);
        if (!j) break;
        if (!same(d, *i, odd_.usual, *j)) return 0;
      }
      ++agreeing;
    }
    return agreeing;
  }

  // The call of a rank at an index; beyond the end by the repetition of its last calls. Nothing
  // where nothing repeats.
  std::optional<std::uint32_t> at(std::uint32_t r, std::uint32_t index,
                                  std::uint32_t period) const {
    const std::uint32_t end = size(r);
    if (index < end) return index;
    if (period == 0 || index - end > kMaxCallsEdited) return std::nullopt;
    return end - period + (index - end) % period;
  }

  // The number of calls after which the newest ones came before; 0: they did not.
  std::uint32_t period_of(std::uint32_t r) {
    const std::uint32_t end = size(r);
    std::uint32_t longest = 0, out = 0;
    for (std::uint32_t back = 1; back < end && back <= kLooksBack && longest < kEnough; ++back) {
      std::uint32_t length = 0;
      while (length < kEnough && back + length < end &&
             is_same_of_program(programs_.agreement(), calls(r)[end - 1 - length],
                                calls(r)[end - 1 - length - back])) {
        ++length;
      }
      if (length > longest) longest = length, out = back;
    }
    return out;
  }

  RankPrograms& programs_;
  OddProgram& odd_;
};

}  // namespace

bool find_smallest_edit(RankPrograms& programs, OddProgram& odd) {
  return EditSearch(programs, odd).run();
}

}  // namespace lockstep::verify
