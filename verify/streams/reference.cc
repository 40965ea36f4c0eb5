#include "verify/streams/reference.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "verify/streams/past.h"
#include "verify/streams/programs.h"

namespace lockstep::verify {

namespace {

// Sister groups that vote on what is usual. A large mesh has thousands; 64 give a clear majority.
constexpr std::size_t kMaxSisters = 64;
// Ranks whose past is searched for a call that a majority left out. Their streams agree up to
// there, so a few are enough.
constexpr std::size_t kMaxVoters = 64;

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
    if (const auto small = left_out_by_most()) return {*small, true, /*left_out_by_most=*/true};
    if (largest_.size() == 1)
      return {largest_[0], /*singled_out=*/!may_be_left_out_in_first_round()};
    if (const auto party = break_tie())
      return {*party, /*singled_out=*/!(by_habit_ && may_have_left_loop(*party))};
    return {lowest(), /*singled_out=*/false};
  }

 private:
  // Applies criteria to the largest parties (two ranks, or two halves of a group), from strong
  // evidence to weak, until exactly one party meets one. A party is judged by its first cursor: all
  // its cursors agree on their next call.
  std::optional<std::size_t> break_tie() {
    // If one side may have left out a call, a call that it did not make before is no sign of an
    // error, and the batches may explain it. Batches cannot explain a wrong size of the same call.
    const std::size_t first = parties_[largest_[0]][0];
    const std::size_t second = parties_[largest_[1]][0];
    const bool in_other_steps =
        at_.judges_steps() && at_.next_token(first).step != at_.next_token(second).step;
    const bool may_be_skip = in_other_steps || skip_explains(first, second);
    if (const auto p = only([&](std::size_t c) { return !at_.has_deviated(c); })) return p;
    if (const auto p = as_sister_groups(largest_)) return p;
    if (may_be_skip) {
      if (const auto p = fullest_batch()) return p;
    }
    // The criteria below use the ranks' other calls. A dump of open calls alone has too few.
    if (!std::all_of(largest_.begin(), largest_.end(),
                     [&](std::size_t p) { return knows_its_past(at_.rank(parties_[p][0])); })) {
      return std::nullopt;
    }
    // Where there are no other ranks, their programs show what these two did before.
    by_habit_ =
        at_.weight(parties_[largest_[0]]).second + at_.weight(parties_[largest_[1]]).second ==
        at_.run().ranks.size();
    if (const auto p = as_other_programs()) return p;
    by_habit_ = true;
    // A loop that ran now more, now less often: nothing tells how often it was to run this time.
    const bool loop_varies = do_counts_vary(first, second);
    if (!loop_varies) {
      if (const auto p = only([&](std::size_t c) { return follows_habit(c); })) return p;
    }
    // If both are forms of one call, the form that the rank used before. Not if a call may be
    // missing: a rank that left out the last call of its first round makes a familiar call next.
    if (!may_be_skip) {
      if (const auto p = only([&](std::size_t c) { return was_made_before(c); })) return p;
    }
    // A new call that is made again is usual, and one that is not is one too many. A familiar one
    // may just be the last of several in a row. Where one blocks in its call, only the other one
    // has calls after it.
    const bool all_go_on = std::all_of(largest_.begin(), largest_.end(), [&](std::size_t p) {
      const std::size_t c = at_.longest(parties_[p]);
      return at_.calls_left(c) > 1 && !was_made_before(c);
    });
    if (all_go_on) {
      if (const auto p = only([&](std::size_t c) {
            return at_.sequence(c).seen_after(at_.cursors()[c].next, at_.next_token(c));
          }))
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
    // Of two new calls of different operations, the more common one is no more right: a metric may
    // be summed or gathered. Nor is one after which comes the other one: it is not in its place.
    const bool other_operations = in_other_operations(first, second);
    if (may_differ_in_commonness(first, second) && !comes_next(first, second) &&
        !comes_next(second, first)) {
      if (const auto p = only([&](std::size_t c) {
            return is_of_common_form(c) &&
                   (!other_operations || (was_made_before(c) && !is_from_new_line(c)));
          }))
        return p;
    }
    // The call of the earliest step: the other parties skipped it and are in a later step.
    if (loop_varies || !at_.are_steps_comparable()) return std::nullopt;
    return only([&](std::size_t c) {
      return std::all_of(largest_.begin(), largest_.end(), [&](std::size_t p) {
        return at_.next_token(c).step <= at_.next_token(parties_[p][0]).step;
      });
    });
  }

  // Of two largest parties, whether the other one may as well have left a loop where this one makes
  // another round: after whole rounds it blocks in such a call from a line of its own. Then the one
  // may make a round too many, or the other one too few, or a call too many. Not of calls that
  // gather: those are mostly a checkpoint or a validation that one rank makes alone.
  bool may_have_left_loop(std::size_t party) {
    if (largest_.size() != 2) return false;
    const std::size_t on = parties_[party][0];
    const std::size_t off = at_.longest(parties_[largest_[0] == party ? largest_[1] : largest_[0]]);
    const std::size_t next = at_.cursors()[off].next;
    Sequence& sequence = at_.sequence(off);
    const trace::StringId usual = at_.sequence(on).location(at_.cursors()[on].next);
    const trace::StringId line = sequence.location(next);
    if (usual.value == 0 || line.value == 0 || at_.calls_left(off) > 1 || at_.ended_cleanly(off) ||
        !skip_explains(on, off) || !reduces(at_.next_token(off)) || !sequence.was_at(next, usual) ||
        sequence.was_at(next, line)) {
      return false;
    }
    // Their programs may have parted before, where calls paired all the same: one averages its
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

  // The smaller one of two parties, if the larger one left out its call. Most batches may have no
  // images, so the number of ranks says little about a call that is left out. The batches show it
  // (every rank of the larger party lacks a modality that those of the smaller one hold), or the
  // sister groups, which made the call, or the past: see expected_of(), or, in a first step, that
  // it is one of the calls by which a framework synchronises all parts of a model. Nothing where
  // the smaller party breaks with its own past: then that party is the odd one.
  //
  // O(ranks of the parties), the search of a past for at most kMaxVoters classes, and an edit for
  // each class of the larger party where this decides.
  std::optional<std::size_t> left_out_by_most() {
    if (parties_.size() != 2 || largest_.size() != 1) return std::nullopt;
    const std::size_t small = 1 - largest_[0];
    const std::size_t few = at_.longest(parties_[small]);
    const Party& most = parties_[largest_[0]];
    const auto deviated = [&](std::size_t c) { return at_.has_deviated(c); };
    // Ranks that left out one call of a branch leave out its other calls too, so either all of them
    // have deviated before or none has.
    if (deviated(few) || (std::any_of(most.begin(), most.end(), deviated) &&
                          !std::all_of(most.begin(), most.end(), deviated))) {
      return std::nullopt;
    }
    // The same call, but of a later step, shows it as well: the call of this step was left out.
    const bool may_be_left_out = std::all_of(most.begin(), most.end(), [&](std::size_t cursor) {
      return skip_explains(few, cursor) ||
             (at_.judges_steps() && at_.next_token(few).step < at_.next_token(cursor).step);
    });
    if (!may_be_left_out) return std::nullopt;
    const auto habit = at_.sequence(few).habit(at_.cursors()[few].next);
    const bool is_odd = habit && !at_.match(*habit, at_.next_token(few));
    const bool by_batches = !is_odd && at_.do_batches_tell(parties_[small], most);
    if (!by_batches) {
      const auto as_sisters = as_sister_groups({0, 1});
      if (as_sisters && *as_sisters != small) return std::nullopt;
      const bool decided =
          as_sisters || past_expects(few, most) ||
          (!habit && (is_unit_of_model(few, most) || later_rounds_expect(few, most)));
      if (!decided) return std::nullopt;
    }
    const auto left_out = [&](std::size_t cursor) {
      const EditKind kind = at_.find_edit(few, cursor).kind;
      return kind == EditKind::missing || kind == EditKind::replaced;
    };
    return std::all_of(most.begin(), most.end(), left_out) ? std::optional(small) : std::nullopt;
  }

  // Whether nothing shows which side is wrong where the few made several calls more in a row in
  // their first round: they may be those of a branch that most batches do not use. Neither side
  // made any such call before or makes one later, and there are no lines and no names. A single
  // call more is one too many: a barrier or a metric.
  bool may_be_left_out_in_first_round() {
    if (parties_.size() != 2 || !is_first_) return false;
    const std::size_t few = at_.longest(parties_[1 - largest_[0]]);
    const std::size_t next = at_.cursors()[few].next;
    const Token call = at_.next_token(few);
    const auto occurs = [&](std::size_t cursor, const Token& like) {
      Sequence& sequence = at_.sequence(cursor);
      const std::size_t at = at_.cursors()[cursor].next;
      return sequence.seen_before(at, like) || sequence.seen_after(at, like);
    };
    const auto is_whole = [&](std::size_t cursor) {
      return is_known_from_its_start(at_.run().ranks[at_.rank(cursor)]) &&
             knows_its_past(at_.rank(cursor)) && !at_.has_deviated(cursor);
    };
    if (call.what.value != 0 || at_.sequence(few).location(next).value != 0 || !is_whole(few) ||
        occurs(few, call) || as_sister_groups({0, 1})) {
      return false;
    }
    const Party& most = parties_[largest_[0]];
    return std::all_of(most.begin(), most.end(), [&](std::size_t cursor) {
      if (!is_whole(cursor) || !skip_explains(few, cursor) || occurs(cursor, call) ||
          occurs(cursor, at_.next_token(cursor))) {
        return false;
      }
      const Edit edit = at_.find_edit(few, cursor);
      return edit.kind == EditKind::missing && edit.count > 1;
    });
  }

  // Whether the call is one by which a framework gathers or reduces a part of the model, and which
  // no rank of `most` ever makes, although they make such calls for other parts. All ranks have all
  // parts, so that these left it out. What one rank adds (a metric, a barrier) comes from a line of
  // its own, and carries no parameter. ("fusion.0.weight" is the name of one.)
  bool is_unit_of_model(std::size_t few, const Party& most) {
    constexpr std::size_t kMaxCalls = 4096;  // a few steps of a large model
    const Token call = at_.next_token(few);
    if (!has_one_tensor(call)) return false;
    const trace::StringId line = at_.sequence(few).location(at_.cursors()[few].next);
    const auto op = [&](const Token& t) { return at_.run().tables.signatures[t.signature].op; };
    const auto is_parameter = [&](const Token& t) {
      const std::vector<std::string> names = at_.run().tables.names(t.what);
      return !names.empty() && names[0].find('.') != std::string::npos;
    };
    const auto is_whole = [&](std::size_t cursor) {
      const trace::RankTrace& trace = at_.run().ranks[at_.rank(cursor)];
      return is_known_from_its_start(trace) && knows_its_past(at_.rank(cursor));
    };
    if (!is_whole(few) || !std::all_of(most.begin(), most.end(), is_whole)) return false;
    const bool parameter = is_parameter(call);
    if ((line.value == 0 && !parameter) || (call.what.value != 0 && !parameter)) return false;
    return std::all_of(most.begin(), most.end(), [&](std::size_t cursor) {
      Sequence& theirs = at_.sequence(cursor);
      // The few come to what the others do now. Where they block before, they may have left it out.
      const bool comes =
          at_.sequence(few).seen_after(at_.cursors()[few].next, at_.next_token(cursor));
      if (!comes || at_.find_edit(few, cursor).kind != EditKind::missing ||
          go_on_alike(at_.next_call(few), at_.next_call(cursor))) {
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

  // Whether `most` make the call of `few` there in their later rounds, in which hosts go on over
  // NCCL. Only where their programs are known to diverge at this call.
  bool later_rounds_expect(std::size_t few, const Party& most) {
    if (!knows_its_past(at_.rank(few))) return false;
    return std::all_of(most.begin(), most.end(), [&](std::size_t cursor) {
      const auto diverged = at_.diverged_between(at_.position(few), at_.position(cursor));
      if (!diverged || *diverged != at_.next_call(few).call ||
          *diverged != at_.next_call(cursor).call)
        return false;
      const auto unusual =
          is_second_unusual(at_.run(), at_.agreement(), at_.next_call(few), at_.next_call(cursor));
      return unusual && *unusual;
    });
  }

  // Whether the past of `most` predicts the call of `few` and not their own. At most kMaxVoters
  // ranks vote; ranks whose programs diverged elsewhere (other stages of a pipeline) do not count.
  bool past_expects(std::size_t few, const Party& most) {
    if (!knows_its_past(at_.rank(few))) return false;
    bool expected = false;
    std::size_t asked = 0;
    for (const std::size_t cursor : most) {
      for (const std::uint32_t s : at_.ranks_at(cursor).streams) {
        if (++asked > kMaxVoters) return expected;
        const Alignment::StreamPosition other{at_.group().streams[s], at_.cursors()[cursor].next};
        if (!knows_its_past(other.stream.rank_index)) return false;
        CallRef call = at_.next_call(few);
        CallRef got = other.call();
        // The two may have diverged before, in other groups.
        if (common_start(at_.run(), at_.agreement(), call.rank, got.rank)) {
          const auto diverged = at_.diverged_between(at_.position(few), other);
          if (!diverged) continue;
          call.call = got.call = *diverged;
          if (is_message_of_varying_rounds(at_.position(few), call) ||
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

  // Whether the trace holds calls that completed: false for a dump of open calls alone.
  bool knows_its_past(std::uint32_t rank) const {
    const trace::RankTrace& trace = at_.run().ranks[rank];
    return !trace.snapshot ||
           std::any_of(trace.calls.begin(), trace.calls.end(),
                       [](const trace::Call& c) { return c.has(trace::kCompleted); });
  }

  // Whether the two calls may differ because one side left out a call. Not where both carry the
  // same parameters, or differ in type, reduction or root alone: then it is one call in two forms.
  // FSDP gathers parameters and later reduces their gradients: those are two calls, if both were
  // made before.
  bool skip_explains(std::size_t a, std::size_t b) {
    const Token x = at_.next_token(a);
    const Token y = at_.next_token(b);
    const unsigned form = at_.agreement().differences(x.signature, y.signature);
    const bool same_identity =
        x.what == y.what && x.what.value != 0 &&
        !((form & kDifferentOp) != 0 && was_made_before(a) && was_made_before(b));
    return !same_identity && (x.what != y.what || (form & (kDifferentOp | kDifferentSize)) != 0);
  }

  // Whether the calls differ in what is_of_common_form() looks at. If not, it would favour the rank
  // with more calls.
  bool may_differ_in_commonness(std::size_t a, std::size_t b) {
    constexpr unsigned kForm = kDifferentOp | kDifferentDtype | kDifferentRedop;
    const unsigned form =
        at_.agreement().differences(at_.next_token(a).signature, at_.next_token(b).signature);
    return (form & kForm) != 0;
  }

  // Whether none of the class's calls before came from the line of the cursor's next call.
  bool is_from_new_line(std::size_t cursor) {
    Sequence& sequence = at_.sequence(cursor);
    const std::size_t next = at_.cursors()[cursor].next;
    const trace::StringId line = sequence.location(next);
    return line.value != 0 && !sequence.was_at(next, line);
  }

  // Whether `a` makes the next call of `b` right after its own.
  bool comes_next(std::size_t a, std::size_t b) {
    const std::size_t then = at_.cursors()[a].next + 1;
    return then < at_.sequence(a).size() &&
           at_.match(at_.sequence(a).token(then), at_.next_token(b));
  }

  bool in_other_operations(std::size_t a, std::size_t b) {
    const unsigned form =
        at_.agreement().differences(at_.next_token(a).signature, at_.next_token(b).signature);
    return (form & kDifferentOp) != 0;
  }

  // Whether the cursor's next call is among the class's calls before it.
  bool was_made_before(std::size_t cursor) {
    return at_.sequence(cursor).seen_before(at_.cursors()[cursor].next, at_.next_token(cursor));
  }

  // The party that issues what most sister groups issued at this index. Sister groups have as many
  // members as this one, and issued the same calls up to here: the tensor-parallel groups of a
  // mesh. Nothing where there are none, the vote is tied, or groups with missing traces could have
  // turned it. At most kMaxSisters groups vote.
  std::optional<std::size_t> as_sister_groups(const std::vector<std::size_t>& among) {
    std::vector<std::size_t> votes(parties_.size());
    std::size_t asked = 0, silent = 0;
    for (std::size_t g = 0; g < at_.groups().size() && asked < kMaxSisters; ++g) {
      if (g == at_.group_index() || at_.groups()[g].members.size() != at_.group().members.size())
        continue;
      ++asked;
      // A member without a trace may have done otherwise, as the two here do.
      if (!at_.groups()[g].absent.empty()) ++silent;
      for (const std::size_t p : among) {
        if (does_alike(at_.groups()[g], parties_[p][0])) ++votes[p];
      }
    }
    const auto first = std::max_element(votes.begin(), votes.end());
    const std::size_t most = *first;
    *first = 0;
    const std::size_t next = *std::max_element(votes.begin(), votes.end());
    if (most <= next + silent) return std::nullopt;
    return static_cast<std::size_t>(first - votes.begin());
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

  // Whether every member of the other group issued what the cursor's class did, up to and including
  // its next call. Only the newest kSuffix calls are compared, which bounds the cost.
  bool does_alike(const GroupStreams& other, std::size_t cursor) {
    const std::size_t next = at_.cursors()[cursor].next;
    // By sequence number: bounded buffers keep the newest calls, so that streams begin anywhere.
    const std::uint64_t seq = at_.group().first_seq + next;
    if (!other.comparable || seq < other.first_seq || other.classes.empty() ||
        !other.absent.empty()) {
      return false;
    }
    const auto there = static_cast<std::size_t>(seq - other.first_seq);
    const Stream& mine = at_.stream(cursor);
    const CallRef own_call = at_.next_call(cursor);
    return std::all_of(other.classes.begin(), other.classes.end(), [&](const StreamClass& cls) {
      const Stream& theirs = other.streams[cls.streams[0]];
      if (theirs.calls.size() <= there) return false;
      // Another stage of a pipeline has groups of this size, too, and calls of its own between.
      const CallRef their_call{theirs.rank_index, theirs.calls[there]};
      const bool both_begin = own_call.call == 0 && their_call.call == 0;
      if (!both_begin && !did_the_same_before(at_.run(), at_.agreement(), own_call, their_call))
        return false;
      const std::size_t compared = std::min({next, there, Sequence::kSuffix});
      for (std::size_t back = 0; back <= compared; ++back) {
        const trace::Call& a = at_.run().ranks[mine.rank_index].calls[mine.calls[next - back]];
        const trace::Call& b = at_.run().ranks[theirs.rank_index].calls[theirs.calls[there - back]];
        // Parameters are not compared: other pipeline stages have others. The source location
        // distinguishes calls instead, if it was recorded.
        const bool same_location = a.at == b.at || a.at.value == 0 || b.at.value == 0;
        if (!same_location || !at_.agreement().agree(a.signature, b.signature)) return false;
      }
      return true;
    });
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
  // it predicts: "a | a a" goes on as before only if the last a is of a third step.
  bool follows_habit(std::size_t cursor) {
    const auto habit = at_.sequence(cursor).habit(at_.cursors()[cursor].next);
    const Token call = at_.next_token(cursor);
    const bool in_step = !habit || habit->step == trace::kNone || call.step == trace::kNone ||
                         habit->step == call.step;
    return habit && in_step && at_.match(*habit, call);
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
