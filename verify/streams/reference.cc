#include "verify/streams/reference.h"

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "verify/streams/left_out.h"
#include "verify/streams/loops.h"
#include "verify/streams/past.h"
#include "verify/streams/programs.h"
#include "verify/streams/rounds.h"
#include "verify/streams/sister_groups.h"
#include "verify/streams/step_counts.h"

namespace lockstep::verify {

namespace {

class Choice {
 public:
  Choice(Alignment& alignment, const std::vector<Party>& parties, bool is_first)
      : at_(alignment), parties_(parties), is_first_(is_first) {
    for (std::size_t p = 0; p < parties.size(); ++p) {
      if (largest_.empty() || at_.weight(parties[p]) > at_.weight(parties[largest_[0]]))
        largest_ = {p};
      else if (at_.weight(parties[p]) == at_.weight(parties[largest_[0]]))
        largest_.push_back(p);
    }
  }

  // The largest party, unless it left out a call. On a tie, the one that break_tie() finds. If it
  // finds none, the one with the lowest rank, so that the report does not depend on the order of
  // files; the report then names the difference but no culprit.
  Reference choose() {
    if (largest_.size() == 1) {
      const std::size_t large = largest_[0];
      if (parties_.size() != 2) return {large};
      const std::size_t small = 1 - large;
      if (most_left_out(at_, parties_, small)) return {small, true, /*left_out_by_most=*/true};
      const bool either = is_first_ && may_be_left_out_in_first_round(at_, parties_, small);
      return {large, /*singled_out=*/!either};
    }
    if (const auto party = break_tie())
      return {*party, /*singled_out=*/!(by_habit_ && may_have_left_loop(*party))};
    return {lowest(), /*singled_out=*/false};
  }

 private:
  // Applies criteria to the largest parties (two ranks, or two halves of a group), from strong
  // evidence to weak, until exactly one party meets one. A party is judged by its first cursor: all
  // its cursors agree on their next call.
  std::optional<std::size_t> break_tie() {
    // If one side may have left out a call, a call that it did not make before is not a sign of an
    // error, and the batches may explain it. Batches cannot explain a wrong size of the same call.
    const std::size_t first = parties_[largest_[0]][0];
    const std::size_t second = parties_[largest_[1]][0];
    const bool in_other_steps =
        at_.judges_steps() && at_.next_token(first).step != at_.next_token(second).step;
    const bool may_be_skip = in_other_steps || at_.skip_explains(first, second);
    if (const auto p = only([&](std::size_t c) { return !at_.has_deviated(c); })) return p;
    if (const auto p = vote_of_sister_groups(at_, parties_, largest_)) return p;
    if (may_be_skip) {
      if (const auto p = fullest_batch()) return p;
    }
    // The criteria below use the ranks' other calls. A dump of open calls alone has too few.
    if (!std::all_of(largest_.begin(), largest_.end(),
                     [&](std::size_t p) { return at_.knows_its_past(at_.rank(parties_[p][0])); })) {
      return std::nullopt;
    }
    // Where there are no other ranks, their programs show what these two did before.
    by_habit_ =
        at_.weight(parties_[largest_[0]]).second + at_.weight(parties_[largest_[1]]).second ==
        at_.run().ranks.size();
    if (const auto p = as_other_programs()) return p;
    if (const auto p = by_counts()) return p;
    if (const auto p = by_later_rounds()) return p;
    by_habit_ = true;
    const bool forms_of_one =
        !differ_in(first, second, kDifferentOp) ||
        (!differ_in(first, second, kDifferentSize) && has_tensors(first) && has_tensors(second));
    // A loop that ran now more, now less often: nothing tells how often it was to run this time.
    const bool loop_varies = do_counts_vary(first, second);
    const bool new_part = may_be_skip && (may_begin_new_part(first) || may_begin_new_part(second));
    if (!loop_varies && !new_part &&
        !are_both_usual(at_.run(), at_.agreement(), at_.next_call(first), at_.next_call(second))) {
      const auto ends_anywhere = [&](std::size_t c) {
        return only_goes_on(c) && (!forms_of_one || repeats_before_other(c));
      };
      if (const auto p = only([&](std::size_t c) {
            return follows_habit(c) && !ends_anywhere(c) && !is_barrier_like_others(c);
          }))
        return p;
    }
    // If both are forms of one call, the form that the rank used before. Not if a call may be
    // missing: a rank that left out the last call of its first round makes a familiar call next.
    if (!may_be_skip) {
      const auto p =
          only([&](std::size_t c) { return at_.was_made_before(c) && !is_barrier_like_others(c); });
      if (p && !repeats_before_other(parties_[*p][0])) return p;
    }
    // A new call that is made again is usual, and one that is not is one too many. A familiar one
    // may just be the last of several in a row. Where one blocks in its call, only the other one
    // has calls after it.
    const bool other_operations = differ_in(first, second, kDifferentOp);
    const bool all_go_on = std::all_of(largest_.begin(), largest_.end(), [&](std::size_t p) {
      const std::size_t c = at_.longest(parties_[p]);
      return at_.calls_left(c) > 1 && !at_.was_made_before(c);
    });
    if (all_go_on) {
      if (const auto p = only([&](std::size_t c) { return is_made_again(c, other_operations); }))
        return p;
    }
    // If all calls begin a step, the one that is the first of its stream.
    if (std::all_of(largest_.begin(), largest_.end(),
                    [&](std::size_t p) { return begins_step(parties_[p][0]); })) {
      if (const auto p = only([&](std::size_t c) {
            return at_.sequence(c).starts_again(at_.cursors()[c].next, at_.next_token(c));
          }))
        return p;
    }
    // If two new calls have different operations, the more common one is no more right: a metric
    // may be summed or gathered. Nor is one after which comes the other one: it is not in its
    // place. Nor one of another step, nor of one operation one of another line: these are two
    // calls, of which one was left out. That the next round begins as the one before says nothing
    // about it.
    const bool are_two_calls =
        in_other_steps || (!other_operations && come_from_other_lines(first, second));
    if (!new_part && may_differ_in_commonness(first, second) && !are_two_calls &&
        !comes_next(first, second) && !comes_next(second, first)) {
      if (const auto p = only([&](std::size_t c) {
            return is_of_common_form(c) && !is_barrier_like_others(c) &&
                   (!other_operations || (at_.was_made_before(c) && !is_from_new_line(c) &&
                                          (forms_of_one || !only_goes_on(c))));
          }))
        return p;
    }
    // The call of the earliest step: the other parties skipped it and are in a later step.
    if (loop_varies || !at_.are_steps_comparable()) return std::nullopt;
    const auto earliest = only([&](std::size_t c) {
      return std::all_of(largest_.begin(), largest_.end(), [&](std::size_t p) {
        return at_.next_token(c).step <= at_.next_token(parties_[p][0]).step;
      });
    });
    return earliest && was_skipped(*earliest) ? earliest : std::nullopt;
  }

  // The one of two largest parties that makes the usual number of calls in the step where they
  // diverge, and the other one does not.
  std::optional<std::size_t> by_counts() {
    if (largest_.size() != 2) return std::nullopt;
    const auto call = [&](std::size_t p) { return at_.next_call(at_.longest(parties_[p])); };
    switch (expected_by_counts(at_.run(), at_.agreement(), call(largest_[0]), call(largest_[1]))) {
      case Expected::first:
        return largest_[0];
      case Expected::second:
        return largest_[1];
      case Expected::unknown:
        break;
    }
    return std::nullopt;
  }

  // The one of two largest parties whose call the other one makes in its place later.
  std::optional<std::size_t> by_later_rounds() {
    if (largest_.size() != 2) return std::nullopt;
    const auto lacks = [&](std::size_t p, std::size_t other) {
      return later_rounds_make(at_.run(), at_.agreement(), at_.next_call(at_.longest(parties_[p])),
                               at_.next_call(at_.longest(parties_[other])));
    };
    const bool first_lacks = lacks(largest_[0], largest_[1]);
    if (first_lacks == lacks(largest_[1], largest_[0])) return std::nullopt;
    return largest_[first_lacks ? 1 : 0];
  }

  // Whether the others, which are in a later step, skipped the call of this party, and it is not
  // one too many: it is familiar, and not just the one before it once more, or the others make it
  // in a step to come. In a first step nothing else shows which of the two it is.
  bool was_skipped(std::size_t party) {
    const std::size_t cursor = parties_[party][0];
    const std::size_t next = at_.cursors()[cursor].next;
    const Token call = at_.next_token(cursor);
    if (next > 0 &&
        same_call(at_.agreement(), at_.sequence(cursor).token(next - 1), call, /*with_step=*/true))
      return false;
    if (at_.was_made_before(cursor)) return true;
    return std::any_of(largest_.begin(), largest_.end(), [&](std::size_t p) {
      const std::size_t other = at_.longest(parties_[p]);
      return p != party && at_.sequence(other).seen_after(at_.cursors()[other].next, call);
    });
  }

  // For two equally large parties: whether the other one may as well have left a loop where this
  // one makes another round: after whole rounds it blocks in such a call from a line of its own.
  // Then the one may make a round too many, or the other one too few, or a call too many. Not of
  // calls that gather: those are mostly a checkpoint or a validation that one rank makes alone.
  bool may_have_left_loop(std::size_t party) {
    if (largest_.size() != 2) return false;
    const std::size_t on = parties_[party][0];
    const std::size_t off = at_.longest(parties_[largest_[0] == party ? largest_[1] : largest_[0]]);
    const std::size_t next = at_.cursors()[off].next;
    Sequence& sequence = at_.sequence(off);
    const trace::StringId usual = at_.sequence(on).location(at_.cursors()[on].next);
    const trace::StringId line = sequence.location(next);
    if (usual.value == 0 || line.value == 0 || at_.calls_left(off) > 1 || at_.ended_cleanly(off) ||
        !at_.skip_explains(on, off) || !reduces(at_.next_token(off)) ||
        !sequence.was_at(next, usual) || sequence.was_at(next, line)) {
      return false;
    }
    // Their programs may have parted before, where calls still paired: one averages its
    // model a step later than the other. Then what comes late at the end may be early on the other
    // side.
    const bool parted_before =
        common_start(at_.run(), at_.agreement(), at_.rank(on), at_.rank(off)).has_value() &&
        !at_.diverged_between(at_.position(on), at_.position(off));
    return parted_before ||
           comes_after_whole_rounds(at_.run(), at_.agreement(), at_.next_call(off)) ||
           at_.sequence(on).starts_again(at_.cursors()[on].next, at_.next_token(on));
  }

  bool reduces(const Token& call) const {
    const trace::Op op = at_.run().tables.signatures[call.signature].op;
    return op == trace::Op::all_reduce || op == trace::Op::reduce;
  }

  // The one of the largest parties for which `holds`; nothing if there is none, or more than one.
  template <typename Predicate>
  std::optional<std::size_t> only(Predicate&& holds) const {
    std::optional<std::size_t> fit;
    for (const std::size_t p : largest_) {
      if (!holds(parties_[p][0])) continue;
      if (fit) return std::nullopt;
      fit = p;
    }
    return fit;
  }

  // The party whose batch held what every other one lacked, and lacked nothing. With image batches
  // on ranks 0 and 1 and text only on 2 and 3, the ranks without images skipped the branch.
  std::optional<std::size_t> fullest_batch() const {
    for (const std::size_t p : largest_) {
      const bool fullest = std::all_of(largest_.begin(), largest_.end(), [&](std::size_t q) {
        return q == p || (at_.lacks_modality(parties_[q][0], parties_[p][0]) &&
                          !at_.lacks_modality(parties_[p][0], parties_[q][0]));
      });
      if (fullest) return p;
    }
    return std::nullopt;
  }

  // Whether the cursor's next call is the first of a step.
  bool begins_step(std::size_t cursor) {
    const std::size_t next = at_.cursors()[cursor].next;
    const std::int32_t step = at_.next_token(cursor).step;
    if (next == 0 || step == trace::kNone) return false;
    const std::int32_t before = at_.sequence(cursor).token(next - 1).step;
    return before != trace::kNone && before < step;
  }

  // The one of the largest parties that has the lowest rank.
  std::size_t lowest() const {
    return *std::min_element(largest_.begin(), largest_.end(), [&](std::size_t a, std::size_t b) {
      return at_.ranks(parties_[a])[0] < at_.ranks(parties_[b])[0];
    });
  }

  bool may_begin_new_part(std::size_t cursor) const {
    return verify::may_begin_new_part(at_.run(), at_.agreement(), at_.next_call(cursor));
  }

  // Whether a call like the cursor's next one comes later. Between two operations it must not come
  // directly after: an evaluation that gathers twice in a row shows nothing. Between two sizes of
  // one operation that is evidence.
  bool is_made_again(std::size_t cursor, bool other_operations) {
    Sequence& sequence = at_.sequence(cursor);
    const Token call = at_.next_token(cursor);
    std::size_t last = at_.cursors()[cursor].next;
    while (other_operations && last + 1 < sequence.size() &&
           same_call(at_.agreement(), sequence.token(last + 1), call, /*with_step=*/false)) {
      ++last;
    }
    return sequence.seen_after(last, call);
  }

  // Whether the calls differ in what is_of_common_form() looks at. If not, it would favour the rank
  // with more calls.
  bool may_differ_in_commonness(std::size_t a, std::size_t b) {
    return differ_in(a, b, kDifferentOp | kDifferentDtype | kDifferentRedop);
  }

  // Whether none of the class's calls before came from the line of the cursor's next call.
  bool is_from_new_line(std::size_t cursor) {
    Sequence& sequence = at_.sequence(cursor);
    const std::size_t next = at_.cursors()[cursor].next;
    const trace::StringId line = sequence.location(next);
    const bool are_lines_known = next > 0 && sequence.location(next - 1).value != 0;
    return are_lines_known && line.value != 0 && !sequence.was_at(next, line);
  }

  // Whether the cursor's next call is the one before it once more, and such calls came in no other
  // place: in a first row of them, an evaluation's batches, nothing shows how long it should be. A
  // row ends with its step.
  bool only_goes_on(std::size_t cursor) {
    Sequence& sequence = at_.sequence(cursor);
    const Token call = at_.next_token(cursor);
    std::size_t first = at_.cursors()[cursor].next;
    const auto is_alike = [&](std::size_t i) {
      return same_call(at_.agreement(), sequence.token(i), call, /*with_step=*/true);
    };
    if (first == 0 || !is_alike(first - 1)) return false;
    while (first > 0 && is_alike(first - 1)) --first;
    return !sequence.seen_before(first, call);
  }

  // Whether `a` makes the next call of `b` right after its own.
  bool comes_next(std::size_t a, std::size_t b) {
    const std::size_t then = at_.cursors()[a].next + 1;
    return then < at_.sequence(a).size() &&
           at_.match(at_.sequence(a).token(then), at_.next_token(b));
  }

  // Whether both lines are known, and differ.
  bool come_from_other_lines(std::size_t a, std::size_t b) {
    const trace::StringId one = at_.sequence(a).location(at_.cursors()[a].next);
    const trace::StringId other = at_.sequence(b).location(at_.cursors()[b].next);
    return one.value != 0 && other.value != 0 && one != other;
  }

  // Whether the next calls differ in one of these (kDifferentOp …).
  bool differ_in(std::size_t a, std::size_t b, unsigned what) {
    const unsigned form =
        at_.agreement().differences(at_.next_token(a).signature, at_.next_token(b).signature);
    return (form & what) != 0;
  }

  bool has_tensors(std::size_t cursor) const {
    return at_.run().tables.signatures[at_.next_token(cursor).signature].op != trace::Op::barrier;
  }

  // Whether the cursor's next call is a barrier where the past does not predict one, or not alone.
  // That a program has barriers elsewhere does not make one usual here: frameworks make them around
  // all that they do.
  bool is_barrier_like_others(std::size_t cursor) const {
    if (has_tensors(cursor)) return false;
    const CallRef call = at_.next_call(cursor);
    const std::vector<std::uint32_t> usual = usual_calls(at_.run(), at_.agreement(), call);
    return usual.size() != 1 ||
           at_.run().tables.op(at_.run().ranks[call.rank].calls[usual[0]]) != trace::Op::barrier;
  }

  // The one of two largest parties that does what ranks of other groups do where the programs of
  // the two parties diverge.
  std::optional<std::size_t> as_other_programs() {
    if (largest_.size() != 2) return std::nullopt;
    const std::size_t a = parties_[largest_[0]][0];
    const std::size_t b = parties_[largest_[1]][0];
    // They must diverge at this call, and not at an earlier or later one of the group. Before the
    // first deviation that was found, they may have diverged unnoticed: in the source line of a
    // call whose form agrees.
    const auto diverged = common_start(at_.run(), at_.agreement(), at_.rank(a), at_.rank(b));
    const auto between = [&](std::size_t cursor) {
      const Stream& stream = at_.stream(cursor);
      const std::size_t next = at_.cursors()[cursor].next;
      return *diverged <= stream.calls[next] &&
             (is_first_ || next == 0 || *diverged > stream.calls[next - 1]);
    };
    if (!diverged || !between(a) || !between(b)) return std::nullopt;
    const auto divergence =
        find_program_divergence(at_.run(), at_.agreement(), at_.rank(a), at_.rank(b));
    if (!divergence) return std::nullopt;
    return divergence->usual == at_.rank(a) ? largest_[0] : largest_[1];
  }

  // Whether the rank uses the operation, reduction and type of the cursor's next call elsewhere, in
  // any group. In a first step there is no past, and only this shows which of two forms is unusual:
  // a rank that reduces everything in bfloat16 is more likely to be wrong about one float32 call.
  // The program's first call does not count: most begin with a single broadcast.
  bool is_of_common_form(std::size_t cursor) {
    constexpr std::size_t kMaxCalls = 4096;  // a few steps of a large model
    const Stream& mine = at_.stream(cursor);
    const std::vector<trace::Call>& calls = at_.run().ranks[mine.rank_index].calls;
    const std::uint32_t self = mine.calls[at_.cursors()[cursor].next];
    const trace::Signature& form = at_.run().tables.signatures[calls[self].signature];
    for (std::size_t c = 1; c < calls.size() && c < kMaxCalls; ++c) {
      const trace::Signature& other = at_.run().tables.signatures[calls[c].signature];
      if (c != self && other.op == form.op && other.redop == form.redop &&
          other.dtypes == form.dtypes) {
        return true;
      }
    }
    return false;
  }

  // Whether steps other than `disputed` that made calls like the cursor's next one made different
  // numbers of them. `to_the_end`: later steps count, too.
  bool does_count_vary(std::size_t cursor, std::int32_t disputed, bool to_the_end) {
    Sequence& sequence = at_.sequence(cursor);
    const std::size_t next = at_.cursors()[cursor].next;
    const std::size_t end =
        to_the_end ? std::min(sequence.size(), next + Sequence::kHistory) : next;
    const Token call = at_.next_token(cursor);
    std::map<std::int32_t, std::size_t> by_step;
    for (std::size_t i = next - std::min(next, Sequence::kHistory); i < end; ++i) {
      const Token token = sequence.token(i);
      if (token.step != trace::kNone && token.step != disputed &&
          same_call(at_.agreement(), token, call, /*with_step=*/false)) {
        ++by_step[token.step];
      }
    }
    if (by_step.empty()) return false;
    // The rank may have stopped within its last step, which may then lack calls.
    const std::int32_t last = sequence.token(sequence.size() - 1).step;
    const std::size_t first = by_step.begin()->second;
    return std::any_of(by_step.begin(), by_step.end(), [&](const auto& step) {
      const bool may_lack = step.first == last && !at_.ended_cleanly(cursor);
      return may_lack ? step.second > first : step.second != first;
    });
  }

  // Whether steps make as many of these calls as their data ask for. Where a rank deviates, its
  // later steps may differ for that reason, so they count only where those of both ranks do.
  bool do_counts_vary(std::size_t one, std::size_t other) {
    const std::int32_t step = std::min(at_.next_token(one).step, at_.next_token(other).step);
    const auto varies = [&](std::size_t cursor, bool to_the_end) {
      return does_count_vary(cursor, step, to_the_end);
    };
    return varies(one, false) || varies(other, false) || (varies(one, true) && varies(other, true));
  }

  // Whether the cursor's next call is the one that the class's own past predicts, in the step that
  // it predicts: "a | a a" goes on as before only if the last a is of a third step. Nor is a call
  // from a line that made none before what was made there.
  bool follows_habit(std::size_t cursor) {
    if (is_from_new_line(cursor)) return false;
    const auto habit = at_.sequence(cursor).habit(at_.cursors()[cursor].next);
    const Token call = at_.next_token(cursor);
    const bool in_step = !habit || habit->step == trace::kNone || call.step == trace::kNone ||
                         habit->step == call.step;
    return habit && in_step && at_.match(*habit, call);
  }

  // Whether the cursor's next call is the one before once more, and what another party makes
  // already comes after it: one call too many here is as likely as one too few there.
  //
  //   a a a b      a a b
  bool repeats_before_other(std::size_t cursor) {
    Sequence& sequence = at_.sequence(cursor);
    std::size_t next = at_.cursors()[cursor].next;
    if (next == 0) return false;
    const Token before = sequence.token(next - 1);
    const std::size_t first = next;
    const std::size_t end = std::min(sequence.size(), next + Sequence::kHistory);
    while (next < end &&
           same_call(at_.agreement(), sequence.token(next), before, /*with_step=*/true))
      ++next;
    return next > first && next < sequence.size() &&
           std::any_of(largest_.begin(), largest_.end(), [&](std::size_t p) {
             const std::size_t other = parties_[p][0];
             return other != cursor && at_.match(sequence.token(next), at_.next_token(other));
           });
  }

  Alignment& at_;
  const std::vector<Party>& parties_;
  std::vector<std::size_t> largest_;  // of the parties, by weight
  const bool is_first_;
  bool by_habit_ = false;  // break_tie() came to what the parties' own calls show
};

}  // namespace

Reference choose_reference(Alignment& alignment, const std::vector<Party>& parties, bool is_first) {
  return Choice(alignment, parties, is_first).choose();
}

}  // namespace lockstep::verify
