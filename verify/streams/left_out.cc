#include "verify/streams/left_out.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "verify/streams/loops.h"
#include "verify/streams/past.h"
#include "verify/streams/programs.h"
#include "verify/streams/rounds.h"
#include "verify/streams/sister_groups.h"
#include "verify/streams/step_counts.h"

namespace lockstep::verify {

namespace {

// Ranks whose past is searched for the call. Their streams agree up to there, so a few are enough.
constexpr std::size_t kMaxVoters = 64;

// As many ranks are not all wrong where one differs in a first round.
constexpr std::size_t kFarTooMany = 16;

// A call that `few` make next and `most` do not.
class LeftOut {
 public:
  LeftOut(Alignment& alignment, const std::vector<Party>& parties, std::size_t small)
      : at_(alignment),
        parties_(parties),
        small_(small),
        few_(alignment.longest(parties[small])),
        most_(parties[1 - small]) {}

  // See most_left_out().
  bool by_most() {
    const auto deviated = [&](std::size_t c) { return at_.has_deviated(c); };
    // Ranks that left out one call of a branch leave out its other calls too, so either all of them
    // have deviated before or none has.
    if (deviated(few_) || (std::any_of(most_.begin(), most_.end(), deviated) &&
                           !std::all_of(most_.begin(), most_.end(), deviated))) {
      return false;
    }
    // The same call, but of a later step, shows it as well: the call of this step was left out.
    const std::int32_t step = at_.next_token(few_).step;
    const bool may_be_left_out = std::all_of(most_.begin(), most_.end(), [&](std::size_t cursor) {
      return at_.skip_explains(few_, cursor) ||
             (at_.judges_steps() && step != trace::kNone && step < at_.next_token(cursor).step);
    });
    if (!may_be_left_out || !was_expected()) return false;
    return std::all_of(most_.begin(), most_.end(), [&](std::size_t cursor) {
      const EditKind kind = at_.find_edit(few_, cursor).kind;
      return kind == EditKind::missing || kind == EditKind::replaced;
    });
  }

  // See may_be_left_out_in_first_round().
  bool maybe_in_first_round() {
    const std::size_t next = at_.cursors()[few_].next;
    const Token call = at_.next_token(few_);
    const auto occurs = [&](std::size_t cursor, const Token& like) {
      Sequence& sequence = at_.sequence(cursor);
      const std::size_t at = at_.cursors()[cursor].next;
      return sequence.seen_before(at, like) || sequence.seen_after(at, like);
    };
    const auto is_whole = [&](std::size_t cursor) {
      return is_known_from_its_start(at_.run().ranks[at_.rank(cursor)]) &&
             at_.knows_its_past(at_.rank(cursor)) && !at_.has_deviated(cursor);
    };
    if (call.what.value != 0 || at_.sequence(few_).location(next).value != 0 || !is_whole(few_) ||
        occurs(few_, call) || as_sister_groups()) {
      return false;
    }
    return std::all_of(most_.begin(), most_.end(), [&](std::size_t cursor) {
      if (!is_whole(cursor) || !at_.skip_explains(few_, cursor) || occurs(cursor, call) ||
          occurs(cursor, at_.next_token(cursor))) {
        return false;
      }
      const Edit edit = at_.find_edit(few_, cursor);
      return edit.kind == EditKind::missing && edit.count > 1;
    });
  }

 private:
  // Whether something other than the number of ranks shows that most had to make the call: the
  // batches, the sister groups, the past, or the other parts of the model.
  bool was_expected() {
    const auto habit = at_.sequence(few_).habit(at_.cursors()[few_].next);
    const bool breaks_habit = habit && !at_.match(*habit, at_.next_token(few_));
    if (!breaks_habit && at_.do_batches_tell(parties_[small_], most_)) return true;
    if (const auto usual = as_sister_groups()) return *usual == small_;
    if (past_expects() || counts_expect()) return true;
    const bool is_far_too_many =
        at_.ranks(parties_[small_]).size() == 1 && at_.ranks(most_).size() >= kFarTooMany;
    return !habit && !is_far_too_many &&
           (is_unit_of_model() || (later_rounds_expect() && !most_leave_loop()));
  }

  std::optional<std::size_t> as_sister_groups() const {
    return vote_of_sister_groups(at_, parties_, {0, 1});
  }

  // Whether all of most make fewer calls like this one in its step than in their others.
  bool counts_expect() {
    const CallRef call = at_.next_call(few_);
    return std::all_of(most_.begin(), most_.end(), [&](std::size_t cursor) {
      return expected_by_counts(at_.run(), at_.agreement(), call, at_.next_call(cursor)) ==
             Expected::first;
    });
  }

  // Whether the call is one by which a framework gathers or reduces a part of the model, and which
  // no rank of the many ever makes, although they make such calls for other parts. All ranks have
  // all parts, so that these left it out. What one rank adds (a metric, a barrier) comes from a
  // line of its own, and carries no parameter. ("fusion.0.weight" is the name of one.)
  bool is_unit_of_model() {
    constexpr std::size_t kMaxCalls = 4096;  // a few steps of a large model
    const Token call = at_.next_token(few_);
    if (!has_one_tensor(call)) return false;
    const trace::StringId line = at_.sequence(few_).location(at_.cursors()[few_].next);
    const auto op = [&](const Token& t) { return at_.run().tables.signatures[t.signature].op; };
    const auto is_parameter = [&](const Token& t) {
      const std::vector<std::string> names = at_.run().tables.names(t.what);
      return !names.empty() && names[0].find('.') != std::string::npos;
    };
    const auto is_whole = [&](std::size_t cursor) {
      const trace::RankTrace& trace = at_.run().ranks[at_.rank(cursor)];
      return is_known_from_its_start(trace) && at_.knows_its_past(at_.rank(cursor));
    };
    if (!is_whole(few_) || !std::all_of(most_.begin(), most_.end(), is_whole)) return false;
    const bool parameter = is_parameter(call);
    if ((line.value == 0 && !parameter) || (call.what.value != 0 && !parameter)) return false;
    return std::all_of(most_.begin(), most_.end(), [&](std::size_t cursor) {
      Sequence& theirs = at_.sequence(cursor);
      // The few come to what the others do now. Where they block before, they may have left it out.
      const bool comes =
          at_.sequence(few_).seen_after(at_.cursors()[few_].next, at_.next_token(cursor));
      if (!comes || at_.find_edit(few_, cursor).kind != EditKind::missing ||
          go_on_alike(at_.next_call(few_), at_.next_call(cursor))) {
        return false;
      }
      bool makes_such = false;
      for (std::size_t i = 0; i < theirs.size() && i < kMaxCalls; ++i) {
        const Token t = theirs.token(i);
        if (same_call(at_.agreement(), t, call, /*with_step=*/false)) return false;
        makes_such |= op(t) == op(call) && theirs.location(i) == line &&
                      (parameter ? is_parameter(t) : line.value != 0);
      }
      return makes_such;
    });
  }

  // Frameworks put a part of a model into one flat tensor. What is not recorded counts as one.
  bool has_one_tensor(const Token& call) const {
    const trace::Signature& form = at_.run().tables.signatures[call.signature];
    if (form.in == trace::IntListId{}) return true;
    const trace::IntList& shapes = at_.run().tables.int_lists[form.in];
    return std::count(shapes.begin(), shapes.end(), -1) <= 1;
  }

  // Whether the calls after these are of equal form: then the two are one call in two forms.
  bool go_on_alike(CallRef a, CallRef b) {
    // Few, since their programs may differ later on for another reason.
    constexpr std::uint32_t kCompared = 8;
    const std::vector<trace::Call>& one = at_.run().ranks[a.rank].calls;
    const std::vector<trace::Call>& other = at_.run().ranks[b.rank].calls;
    for (std::uint32_t i = 1; i <= kCompared; ++i) {
      if (a.call + i >= one.size() || b.call + i >= other.size()) return i > 1;
      if (!at_.agreement().agree(one[a.call + i].signature, other[b.call + i].signature))
        return false;
    }
    return true;
  }

  // Whether most make the call of the few there in their later rounds, in which hosts go on over
  // NCCL. Only where their programs are known to diverge at this call.
  bool later_rounds_expect() {
    if (!at_.knows_its_past(at_.rank(few_))) return false;
    return std::all_of(most_.begin(), most_.end(), [&](std::size_t cursor) {
      const auto diverged = at_.diverged_between(at_.position(few_), at_.position(cursor));
      if (!diverged || *diverged != at_.next_call(few_).call ||
          *diverged != at_.next_call(cursor).call)
        return false;
      // One rank against many needs a reliable past.
      if (is_first_round_doubtful(at_.run(), at_.agreement(), at_.next_call(cursor))) return false;
      const auto unusual =
          is_second_unusual(at_.run(), at_.agreement(), at_.next_call(few_), at_.next_call(cursor));
      return unusual && *unusual;
    });
  }

  // Whether most come out of a loop after whole rounds, to a call that they never made before,
  // where the few begin one more. What comes after a loop breaks with the past of all ranks, so
  // that it does not show who has the wrong number of rounds:
  //
  //   few    a b | a b | a
  //   most   a b | a b | barrier
  bool most_leave_loop() {
    return goes_on_with_loop(at_.run(), at_.agreement(), at_.next_call(few_)) &&
           std::all_of(most_.begin(), most_.end(), [&](std::size_t cursor) {
             return !at_.was_made_before(cursor) &&
                    comes_after_whole_rounds(at_.run(), at_.agreement(), at_.next_call(cursor));
           });
  }

  // Whether the past of most predicts the call of the few and not their own. At most kMaxVoters
  // ranks vote; those of other stages of a pipeline by own_past_expects().
  bool past_expects() {
    if (!at_.knows_its_past(at_.rank(few_))) return false;
    bool expected = false;
    std::size_t asked = 0;
    for (const std::size_t cursor : most_) {
      for (const std::uint32_t s : at_.ranks_at(cursor).streams) {
        if (++asked > kMaxVoters) return expected;
        const Alignment::StreamPosition other{at_.group().streams[s], at_.cursors()[cursor].next};
        if (!at_.knows_its_past(other.stream.rank_index)) return false;
        CallRef call = at_.next_call(few_);
        CallRef got = other.call();
        // The two may have diverged before, in other groups.
        if (common_start(at_.run(), at_.agreement(), call.rank, got.rank)) {
          const auto diverged = at_.diverged_between(at_.position(few_), other);
          if (!diverged) {
            expected |= own_past_expects(call, got) || parted_before(call, got.rank);
            continue;
          }
          call.call = got.call = *diverged;
          if (is_message_of_varying_rounds(at_.position(few_), call) ||
              is_message_of_varying_rounds(other, got)) {
            continue;
          }
        } else if (!did_the_same_before(at_.run(), at_.agreement(), call, got)) {
          continue;
        }
        if (expected_of(at_.run(), at_.agreement(), call, got) != Expected::first) return false;
        expected = true;
      }
    }
    return expected;
  }

  // Whether the past of another stage's rank predicts this call in place of its own, as that of the
  // few does.
  bool own_past_expects(CallRef call, CallRef got) {
    const trace::Run& run = at_.run();
    const auto usual = usual_call(run, at_.agreement(), got);
    return usual && is_usual(run, at_.agreement(), call) == Usual::yes &&
           is_usual(run, at_.agreement(), got) == Usual::no &&
           is_same_of_program(at_.agreement(), run.ranks[got.rank].calls[*usual],
                              run.ranks[call.rank].calls[call.call]);
  }

  // Whether the rank, where its program and that of the few diverged before this call, broke with
  // its past and left out a call of this group, too. What followed paired with calls of equal form:
  //
  //   few    x a | x a b | x a | x a b
  //   most   x a | x a b | x   | x a b       a pairs with a, and then b with a
  bool parted_before(CallRef call, std::uint32_t other) const {
    const trace::Run& run = at_.run();
    const auto start = common_start(run, at_.agreement(), call.rank, other);
    return start && *start < call.call && *start < run.ranks[other].calls.size() &&
           calls_in(run, call.rank, *start, at_.group().group) &&
           !run.tables.is_message(run.ranks[call.rank].calls[*start]) &&
           expected_of(run, at_.agreement(), {call.rank, *start}, {other, *start}) ==
               Expected::first;
  }

  // Whether the call is a message of which the rank posts now more, now fewer in a row, between two
  // calls of the group: a batch comes in as many as it needs, which says nothing about the calls of
  // the group. Where it posts none says nothing either: layers follow each other without messages.
  bool is_message_of_varying_rounds(const Alignment::StreamPosition& at, CallRef ref) const {
    const std::vector<trace::Call>& calls = at_.run().ranks[ref.rank].calls;
    const trace::Call& message = calls[ref.call];
    if (!at_.run().tables.is_message(message)) return false;
    const auto is_alike = [&](const trace::Call& c) {
      return c.group == message.group && c.peer == message.peer &&
             at_.agreement().agree(c.signature, message.signature);
    };
    std::optional<std::ptrdiff_t> usual;
    for (std::size_t end = 1; end < at.stream.calls.size(); ++end) {
      if (end == at.next) continue;
      const auto count = std::count_if(calls.begin() + at.stream.calls[end - 1],
                                       calls.begin() + at.stream.calls[end], is_alike);
      if (count == 0) continue;
      if (usual && *usual != count) return true;
      usual = count;
    }
    return false;
  }

  Alignment& at_;
  const std::vector<Party>& parties_;
  const std::size_t small_;  // the smaller party
  const std::size_t few_;    // its cursor with the most calls left
  const Party& most_;
};

}  // namespace

bool most_left_out(Alignment& alignment, const std::vector<Party>& parties, std::size_t small) {
  return LeftOut(alignment, parties, small).by_most();
}

bool may_be_left_out_in_first_round(Alignment& alignment, const std::vector<Party>& parties,
                                    std::size_t small) {
  return LeftOut(alignment, parties, small).maybe_in_first_round();
}

}  // namespace lockstep::verify
