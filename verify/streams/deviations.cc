#include "verify/streams/deviations.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "verify/streams/edits.h"
#include "verify/streams/programs.h"

namespace lockstep::verify {

namespace {

// After 64 distinct deviations in one group nobody reads on, and the streams have little in common.
constexpr std::size_t kMaxDeviations = 64;
// Sister groups that vote on what is usual. A large mesh has thousands; 64 give a clear majority.
constexpr std::size_t kMostSisters = 64;
// Classes whose past is searched for what a majority left out: they did the same up to there.
constexpr std::size_t kMostVoters = 64;

// Where the walk is in the stream of one class.
struct Cursor {
  std::size_t class_index = 0;
  std::size_t next = 0;  // index of the next call in the class's stream
  // How many more calls of the reference this class sits out, because it left them out.
  std::size_t held = 0;
};

class Walker {
 public:
  Walker(const trace::Run& run, const std::vector<GroupStreams>& groups, std::size_t group,
         const ReplayResult& where, const Modalities& modalities, Agreement& agreement)
      : run_(run),
        groups_(groups),
        group_index_(group),
        group_(groups[group]),
        where_(where),
        modalities_(modalities),
        agreement_(agreement) {
    for (std::size_t c = 0; c < group_.classes.size(); ++c) {
      sequences_.emplace_back(run, group_.streams[group_.classes[c].streams[0]], agreement);
      cursors_.push_back({c, 0, 0});
    }
    deviated_.assign(group_.classes.size(), false);
    astray_.assign(group_.classes.size(), false);
    steps_comparable_ = steps_comparable();
    judge_steps_ = steps_comparable_ && steps_matter();
    edits_.emplace(run.tables, agreement, steps_comparable_);
  }

  // Each round looks at one call of the reference: where the classes disagree, resolve() records
  // the edit and moves the deviating cursors so that the next round compares matching calls again.
  std::vector<Deviation> walk() {
    // One class: all members issued the same calls.
    if (group_.classes.size() < 2 || !group_.comparable) return {};
    while (found_.size() < kMaxDeviations) {
      drop_ended();
      // The last class left has nothing to be compared with. finish_ended() looks at its rest.
      if (cursors_.size() < 2) break;
      auto parties = split();
      if (parties.size() > 1) resolve(parties);
      if (parties.size() == 1) back_in_line(parties[0]);
      advance();
    }
    finish_ended();
    return std::move(found_);
  }

 private:
  // Step numbers are labels that each program chooses. They are comparable where the ranks' first
  // or last labels are equal. A rank that left out its first step has steps 1..9 beside 0..9: the
  // last labels agree. A rank that counts from 1 has 1..10 beside 0..9: neither end agrees.
  bool steps_comparable() const {
    std::optional<std::pair<std::int32_t, std::int32_t>> reference;
    for (const StreamClass& c : group_.classes) {
      const Stream& stream = group_.streams[c.streams[0]];
      if (stream.calls.empty()) continue;
      const std::vector<trace::Call>& calls = run_.ranks[stream.rank_index].calls;
      const std::pair ends(calls[stream.calls.front()].step, calls[stream.calls.back()].step);
      if (!reference) reference = ends;
      if (ends.first != reference->first && ends.second != reference->second) return false;
    }
    return true;
  }

  // A differing step label counts as a difference only with further evidence that the ranks are
  // out of step: streams of unequal length, or ranks that wait in this group. Without it, a rank
  // that only labels a call differently (a barrier before instead of after the step counter) would
  // be reported.
  bool steps_matter() const {
    const auto length = [&](const StreamClass& c) {
      return group_.streams[c.streams[0]].calls.size();
    };
    const bool unequal =
        std::any_of(group_.classes.begin(), group_.classes.end(),
                    [&](const StreamClass& c) { return length(c) != length(group_.classes[0]); });
    return unequal || std::any_of(where_.wait_points.begin(), where_.wait_points.end(),
                                  [&](const WaitPoint& p) { return p.group == group_index_; });
  }

  bool match(const Token& a, const Token& b) { return same_call(agreement_, a, b, judge_steps_); }

  // Takes classes without further calls out of the walk.
  void drop_ended() {
    std::erase_if(cursors_, [&](const Cursor& c) {
      // A held cursor stays: the calls that it sits out are already reported as missing.
      const bool ended = c.held == 0 && c.next >= sequences_[c.class_index].size();
      if (ended) ended_.push_back(c.class_index);
      return ended;
    });
  }

  // Partitions the cursors that are not held by agreement of their next calls.
  std::vector<std::vector<std::size_t>> split() {
    std::vector<std::vector<std::size_t>> parties;
    for (std::size_t i = 0; i < cursors_.size(); ++i) {
      if (cursors_[i].held > 0) continue;
      const Token mine = next_token(i);
      // Comparing with the party's first member suffices, although unknown fields make agreement
      // not quite transitive: a call with unknown fields joins the first party that it fits.
      const auto party = std::find_if(parties.begin(), parties.end(),
                                      [&](const auto& p) { return match(next_token(p[0]), mine); });
      if (party != parties.end()) {
        party->push_back(i);
      } else {
        parties.push_back({i});
      }
    }
    return parties;
  }

  // Where a rank is in its stream.
  struct Place {
    const Stream& stream;
    std::size_t next = 0;

    CallRef call() const { return {stream.rank_index, stream.calls[next]}; }
  };

  // One rank of the class stands for all.
  Place place_of(std::size_t cursor) const { return {stream_of(cursor), cursors_[cursor].next}; }
  CallRef next_call(std::size_t cursor) const { return place_of(cursor).call(); }

  Token next_token(std::size_t cursor) const {
    const Cursor& c = cursors_[cursor];
    return sequences_[c.class_index].token(c.next);
  }

  // A party's size in ranks, not in classes: first those that are not astray, then all.
  std::pair<std::size_t, std::size_t> weight(const std::vector<std::size_t>& party) const {
    std::size_t steady = 0, ranks = 0;
    for (const std::size_t cursor : party) {
      const std::size_t c = cursors_[cursor].class_index;
      ranks += group_.classes[c].streams.size();
      if (!astray_[c]) steady += group_.classes[c].streams.size();
    }
    return {steady, ranks};
  }

  // The member with the most calls to come, which say the most about how others differ from it. One
  // that was killed early has none.
  std::size_t longest(const std::vector<std::size_t>& party) const {
    return *std::max_element(party.begin(), party.end(), [&](std::size_t a, std::size_t b) {
      return calls_left(a) < calls_left(b);
    });
  }

  std::size_t calls_left(std::size_t cursor) const {
    const Cursor& c = cursors_[cursor];
    return sequences_[c.class_index].size() - c.next;
  }

  std::vector<std::uint32_t> ranks_of(const std::vector<std::size_t>& party) const {
    std::vector<std::uint32_t> out;
    for (const std::size_t cursor : party) {
      for (const std::uint32_t s : group_.classes[cursors_[cursor].class_index].streams) {
        out.push_back(group_.streams[s].rank_index);
      }
    }
    std::sort(out.begin(), out.end());
    return out;
  }

  // Chooses the reference party where most left out nothing (left_out_by_most): the largest one. A
  // tie (two ranks, or two halves of a group) is broken by the first of these criteria that exactly
  // one of the largest parties meets:
  //
  //   1. it has not deviated before
  //   2. it issues what sister groups issued at this index
  //   3. its batch held every modality (only where a left-out call may explain the difference)
  //   4. its program, over all groups, goes on as those of the other ranks, or as its own past
  //   5. it issues what followed the last time its recent calls of this group occurred
  //   6. its call occurs earlier in its own stream (only where no left-out call may explain it)
  //   7. its call occurs later in its own stream
  //   8. of calls that all begin a step, its call is the first one of its stream
  //   9. the form of its call (operation, reduction, type) occurs elsewhere on the rank
  //   10. it is in the earliest step: the others went past that call
  //
  // The order goes from strong evidence to weak. Otherwise the party with the lowest rank is the
  // reference, so that the report does not depend on the order of files. Then the second value is
  // false: the report names the difference but no culprit.
  std::pair<std::size_t, bool> choose(const std::vector<std::vector<std::size_t>>& parties) {
    std::vector<std::size_t> largest;
    for (std::size_t p = 0; p < parties.size(); ++p) {
      if (largest.empty() || weight(parties[p]) > weight(parties[largest[0]]))
        largest = {p};
      else if (weight(parties[p]) == weight(parties[largest[0]]))
        largest.push_back(p);
    }
    if (largest.size() == 1) return {largest[0], true};
    // The one of the largest parties for which `holds`; nothing where none or several do. A party's
    // first cursor stands for all of it: their next calls agree.
    const auto only = [&](auto&& holds) -> std::optional<std::size_t> {
      std::vector<std::size_t> fit;
      std::copy_if(largest.begin(), largest.end(), std::back_inserter(fit),
                   [&](std::size_t p) { return holds(parties[p][0]); });
      if (fit.size() != 1) return std::nullopt;
      return fit[0];
    };
    const auto behaved = [&](std::size_t c) { return !deviated_[cursors_[c].class_index]; };
    if (const auto p = only(behaved)) return {*p, true};
    if (const auto p = as_sister_groups(parties, largest)) return {*p, true};
    // The party whose batch held what every other one lacked, and lacked nothing. With image
    // batches on ranks 0 and 1 and text only on 2 and 3, the ranks without images skipped the
    // branch.
    for (const std::size_t p : largest) {
      // Batches cannot explain a wrong size or type of the same parameter's call.
      if (!skip_explains(parties[largest[0]][0], parties[largest[1]][0])) break;
      const bool fullest = std::all_of(largest.begin(), largest.end(), [&](std::size_t q) {
        return q == p || (lacks_modality(parties[q][0], parties[p][0]) &&
                          !lacks_modality(parties[p][0], parties[q][0]));
      });
      if (fullest) return {p, true};
    }
    // The rest judges by the ranks' other calls. A dump of open calls alone has too few.
    if (!std::all_of(largest.begin(), largest.end(),
                     [&](std::size_t p) { return knows_its_past(rank_of(parties[p][0])); })) {
      return lowest(parties, largest);
    }
    if (const auto p = as_other_programs(parties, largest)) return {*p, true};
    if (const auto p = only([&](std::size_t c) { return follows_habit(c); })) return {*p, true};
    // Of one call in two forms, the one that the rank used before. Where a call may be missing,
    // that says nothing: of a rank that left out the last call of its first round, the next call is
    // the familiar one.
    const auto familiar = [&](std::size_t c) {
      return sequences_[cursors_[c].class_index].seen_before(cursors_[c].next, next_token(c));
    };
    if (!skip_explains(parties[largest[0]][0], parties[largest[1]][0])) {
      if (const auto p = only(familiar)) return {*p, true};
    }
    const auto made_again = [&](std::size_t c) {
      return sequences_[cursors_[c].class_index].seen_after(cursors_[c].next, next_token(c));
    };
    if (const auto p = only(made_again)) return {*p, true};
    const auto starts_again = [&](std::size_t c) {
      return sequences_[cursors_[c].class_index].starts_again(cursors_[c].next, next_token(c));
    };
    const bool all_begin = std::all_of(largest.begin(), largest.end(),
                                       [&](std::size_t p) { return begins_step(parties[p][0]); });
    if (all_begin) {
      if (const auto p = only(starts_again)) return {*p, true};
    }
    if (const auto p = only([&](std::size_t c) { return is_of_common_form(c); })) return {*p, true};
    const auto earliest = [&](std::size_t c) {
      return std::all_of(largest.begin(), largest.end(), [&](std::size_t q) {
        return next_token(c).step <= next_token(parties[q][0]).step;
      });
    };
    if (steps_comparable_) {
      if (const auto p = only(earliest)) return {*p, true};
    }
    return lowest(parties, largest);
  }

  // Of two parties, the smaller one where the larger one left out its call. Batches without images
  // may be most batches, so the number of ranks says little about a call that is left out. It is
  // told by the batches: every rank of the larger party lacks a modality that those of the smaller
  // one hold. Or by the sister groups, which made the call. Or by the past: see expected_of(). Not
  // told where the smaller party breaks with its own past: then it is the odd one.
  //
  // O(ranks of the parties), the search of a past for at most kMostVoters classes, and an edit for
  // each class of the larger party where this tells.
  std::optional<std::size_t> left_out_by_most(
      const std::vector<std::vector<std::size_t>>& parties) {
    if (parties.size() != 2 || weight(parties[0]) == weight(parties[1])) return std::nullopt;
    const std::size_t small = weight(parties[0]) < weight(parties[1]) ? 0 : 1;
    const std::size_t few = longest(parties[small]);
    const std::vector<std::size_t>& most = parties[1 - small];
    const auto deviated = [&](std::size_t c) { return deviated_[cursors_[c].class_index]; };
    // Those who left out one call of a branch leave out the others, too.
    if (deviated(few) || (std::any_of(most.begin(), most.end(), deviated) &&
                          !std::all_of(most.begin(), most.end(), deviated))) {
      return std::nullopt;
    }
    // The same call of a later step says it, too: the one of this step was left out.
    const bool may_be_left_out = std::all_of(most.begin(), most.end(), [&](std::size_t cursor) {
      return skip_explains(few, cursor) ||
             (judge_steps_ && next_token(few).step < next_token(cursor).step);
    });
    if (!may_be_left_out) return std::nullopt;
    const auto habit = sequences_[cursors_[few].class_index].habit(cursors_[few].next);
    const bool is_odd = habit && !match(*habit, next_token(few));
    const bool by_batches = !is_odd && batches_tell(parties[small], most);
    if (!by_batches) {
      const auto as_sisters = as_sister_groups(parties, {0, 1});
      if (as_sisters && *as_sisters != small) return std::nullopt;
      if (!as_sisters && !past_expects(few, most)) return std::nullopt;
    }
    const auto left_out = [&](std::size_t cursor) {
      const EditKind kind = find_edit(few, cursor).kind;
      return kind == EditKind::missing || kind == EditKind::replaced;
    };
    return std::all_of(most.begin(), most.end(), left_out) ? std::optional(small) : std::nullopt;
  }

  // Whether by the past of `most`, the call of `few` is expected and theirs is not. At most
  // kMostVoters ranks are asked; those whose programs parted elsewhere (other stages of a pipeline)
  // tell nothing.
  bool past_expects(std::size_t few, const std::vector<std::size_t>& most) {
    if (!knows_its_past(rank_of(few))) return false;
    bool expected = false;
    std::size_t asked = 0;
    for (const std::size_t cursor : most) {
      for (const std::uint32_t s : group_.classes[cursors_[cursor].class_index].streams) {
        if (++asked > kMostVoters) return expected;
        const Place other{group_.streams[s], cursors_[cursor].next};
        if (!knows_its_past(other.stream.rank_index)) return false;
        CallRef call = next_call(few);
        CallRef got = other.call();
        // The two may part before, in other groups.
        if (common_start(run_, agreement_, call.rank, got.rank)) {
          const auto parted = parted_between(place_of(few), other);
          if (!parted) continue;
          call.call = got.call = *parted;
        } else if (!did_the_same_before(run_, agreement_, call, got)) {
          continue;
        }
        if (expected_of(run_, agreement_, call, got) != Expected::first) return false;
        expected = true;
      }
    }
    return expected;
  }

  // Whether the programs part at the reference's next call in this group, and the other rank goes
  // on to calls of other groups without it. Then it left the call out, whatever its later calls in
  // this group look like:
  //
  //   rank 0   x y z(g) | x y z(g)
  //   rank 1   x y z(g) | x y | x y z(g)      its next z is that of the next round
  bool goes_on_without(std::size_t reference, std::size_t other) {
    const auto parted = parted_between(place_of(reference), place_of(other));
    return parted && next_call(reference).call == *parted && next_call(other).call != *parted;
  }

  // Whether the next two calls are of different rounds in one of the programs and not in the other,
  // where they come in the opposite order. Then no two calls changed places: the other rank left
  // out the first one and issues that of its next round.
  //
  //   rank 0   x y a b | x y a b
  //   rank 1   x y a b | x y b | x y a b      b and then a, with a round between them
  bool come_rounds_apart(std::size_t reference, std::size_t other) const {
    const auto distance = [&](std::size_t cursor) {
      const auto call =
          stream_of(cursor).calls.begin() + static_cast<std::ptrdiff_t>(cursors_[cursor].next);
      return call[1] - call[0];
    };
    const std::uint32_t a = distance(reference);
    const std::uint32_t b = distance(other);
    return std::max(a, b) > 2 * std::min(a, b);
  }

  // Where the programs of two ranks part, if that is between their last call in this group and the
  // next one.
  std::optional<std::uint32_t> parted_between(const Place& a, const Place& b) {
    const auto parted = common_start(run_, agreement_, a.stream.rank_index, b.stream.rank_index);
    const auto between = [&](const Place& p) {
      return *parted <= p.call().call && (p.next == 0 || *parted > p.stream.calls[p.next - 1]);
    };
    return parted && between(a) && between(b) ? parted : std::nullopt;
  }

  // Whether every rank of `most` lacks a modality that `few` hold, and none of `few` lacks one.
  bool batches_tell(const std::vector<std::size_t>& few,
                    const std::vector<std::size_t>& most) const {
    const BatchNumber batch = batch_of(few[0], most[0]);
    const std::vector<std::uint32_t> full = ranks_of(few);
    const std::vector<std::uint32_t> lacking = ranks_of(most);
    return std::all_of(
               lacking.begin(), lacking.end(),
               [&](std::uint32_t r) { return !modalities_.lacking(r, full[0], batch).empty(); }) &&
           std::all_of(full.begin(), full.end(), [&](std::uint32_t r) {
             return modalities_.lacking(r, lacking[0], batch).empty();
           });
  }

  // Whether the cursor's next call is the first of a step.
  bool begins_step(std::size_t cursor) const {
    const Cursor& c = cursors_[cursor];
    const std::int32_t step = next_token(cursor).step;
    if (c.next == 0 || step == trace::kNone) return false;
    const std::int32_t before = sequences_[c.class_index].token(c.next - 1).step;
    return before != trace::kNone && before < step;
  }

  // The party with the lowest rank, without a culprit.
  std::pair<std::size_t, bool> lowest(const std::vector<std::vector<std::size_t>>& parties,
                                      const std::vector<std::size_t>& among) const {
    return {*std::min_element(among.begin(), among.end(),
                              [&](std::size_t a, std::size_t b) {
                                return ranks_of(parties[a])[0] < ranks_of(parties[b])[0];
                              }),
            false};
  }

  // Whether the trace holds calls that completed: false for a dump of open calls alone.
  bool knows_its_past(std::uint32_t rank) const {
    const trace::RankTrace& trace = run_.ranks[rank];
    return !trace.snapshot ||
           std::any_of(trace.calls.begin(), trace.calls.end(),
                       [](const trace::Call& c) { return c.has(trace::kCompleted); });
  }

  // Whether the two calls may differ because one side left out a call. Not where both carry the
  // same parameters, or differ in type, reduction or root alone: then it is one call in two forms.
  // FSDP gathers parameters and later reduces their gradients: those are two calls, if both were
  // made before.
  bool skip_explains(std::size_t a, std::size_t b) {
    const Token x = next_token(a);
    const Token y = next_token(b);
    const unsigned form = agreement_.differences(x.signature, y.signature);
    const auto made_before = [&](std::size_t cursor, const Token& call) {
      return sequences_[cursors_[cursor].class_index].seen_before(cursors_[cursor].next, call);
    };
    const bool same_identity =
        x.what == y.what && x.what.value != 0 &&
        !((form & kDifferentOp) != 0 && made_before(a, x) && made_before(b, y));
    return !same_identity && (x.what != y.what || (form & (kDifferentOp | kDifferentSize)) != 0);
  }

  // The party that issues what most sister groups issued at this index. Sister groups have as many
  // members as this one, and issued the same calls up to here: the tensor-parallel groups of a
  // mesh. Nothing where there are none or the vote is tied. At most kMostSisters groups vote.
  std::optional<std::size_t> as_sister_groups(const std::vector<std::vector<std::size_t>>& parties,
                                              const std::vector<std::size_t>& among) {
    std::vector<std::size_t> votes(parties.size());
    std::size_t asked = 0;
    for (std::size_t g = 0; g < groups_.size() && asked < kMostSisters; ++g) {
      if (g == group_index_ || groups_[g].members.size() != group_.members.size()) continue;
      ++asked;
      for (const std::size_t p : among) {
        if (does_alike(groups_[g], parties[p][0])) ++votes[p];
      }
    }
    const std::size_t most = *std::max_element(votes.begin(), votes.end());
    if (most == 0 || std::count(votes.begin(), votes.end(), most) > 1) return std::nullopt;
    return static_cast<std::size_t>(std::find(votes.begin(), votes.end(), most) - votes.begin());
  }

  // The party of two that does what ranks of other groups do where the programs of the two part.
  std::optional<std::size_t> as_other_programs(const std::vector<std::vector<std::size_t>>& parties,
                                               const std::vector<std::size_t>& among) {
    if (among.size() != 2) return std::nullopt;
    const std::size_t a = parties[among[0]][0];
    const std::size_t b = parties[among[1]][0];
    // They must part at this call, and not at one that was looked at before or is still to come.
    // Before the first deviation that was seen, they may have parted unseen: in the line of a call
    // whose form agrees. The others are asked only then.
    const auto parted = common_start(run_, agreement_, rank_of(a), rank_of(b));
    const auto between = [&](std::size_t cursor) {
      const Stream& stream = stream_of(cursor);
      const std::size_t next = cursors_[cursor].next;
      return *parted <= stream.calls[next] &&
             (found_.empty() || next == 0 || *parted > stream.calls[next - 1]);
    };
    if (!parted || !between(a) || !between(b)) return std::nullopt;
    const auto parting = find_parting(run_, agreement_, rank_of(a), rank_of(b));
    if (!parting) return std::nullopt;
    return parting->usual == rank_of(a) ? among[0] : among[1];
  }

  // Whether every member of the other group issued what the cursor's class did, up to and including
  // its next call. Only the newest kSuffix calls are compared, which bounds the cost.
  bool does_alike(const GroupStreams& other, std::size_t cursor) {
    const Cursor& c = cursors_[cursor];
    // Indexes correspond only where both groups' streams start at the same sequence number.
    if (!other.comparable || other.first_seq != group_.first_seq || other.classes.empty()) {
      return false;
    }
    const Stream& mine = stream_of(cursor);
    return std::all_of(other.classes.begin(), other.classes.end(), [&](const StreamClass& cls) {
      const Stream& theirs = other.streams[cls.streams[0]];
      if (theirs.calls.size() <= c.next) return false;
      for (std::size_t back = 0; back <= c.next && back <= Sequence::kSuffix; ++back) {
        const trace::Call& a = run_.ranks[mine.rank_index].calls[mine.calls[c.next - back]];
        const trace::Call& b = run_.ranks[theirs.rank_index].calls[theirs.calls[c.next - back]];
        // Not the parameters: groups of other pipeline stages hold other ones. The source location
        // tells calls apart instead, where it was recorded.
        const bool same_location = a.at == b.at || a.at.value == 0 || b.at.value == 0;
        if (!same_location || !agreement_.agree(a.signature, b.signature)) return false;
      }
      return true;
    });
  }

  // Whether the rank uses the operation, reduction and type of the cursor's next call elsewhere, in
  // any group. In a first step there is no past, and only this tells which of two forms is unusual:
  // a rank that reduces everything in bfloat16 is more likely to be wrong about one float32 call.
  // The program's first call does not count: most begin with a single broadcast.
  bool is_of_common_form(std::size_t cursor) {
    constexpr std::size_t kMostCalls = 4096;  // a few steps of a large model
    const Stream& mine = stream_of(cursor);
    const std::vector<trace::Call>& calls = run_.ranks[mine.rank_index].calls;
    const std::uint32_t self = mine.calls[cursors_[cursor].next];
    const trace::Signature& form = run_.tables.signatures[calls[self].signature];
    for (std::size_t c = 1; c < calls.size() && c < kMostCalls; ++c) {
      const trace::Signature& other = run_.tables.signatures[calls[c].signature];
      if (c != self && other.op == form.op && other.redop == form.redop &&
          other.dtypes == form.dtypes) {
        return true;
      }
    }
    return false;
  }

  // Whether the cursor's next call is the one that the class's own past predicts.
  bool follows_habit(std::size_t cursor) {
    const Cursor& c = cursors_[cursor];
    const auto habit = sequences_[c.class_index].habit(c.next);
    return habit && match(*habit, next_token(cursor));
  }

  std::uint32_t rank_of(std::size_t cursor) const {
    const StreamClass& c = group_.classes[cursors_[cursor].class_index];
    return group_.streams[c.streams[0]].rank_index;
  }

  // The step of a deviation: the earlier of the two calls' steps, because the rank in the later
  // step went on without the other's call.
  std::int32_t step_of(std::size_t reference, std::size_t deviant) const {
    const std::int32_t a = next_token(reference).step;
    const std::int32_t b = next_token(deviant).step;
    return a == trace::kNone || b == trace::kNone ? std::max(a, b) : std::min(a, b);
  }

  // The batch of a deviation, as its step: the earlier of the two calls' batches.
  BatchNumber batch_of(std::size_t reference, std::size_t deviant) const {
    const std::int32_t step = step_of(reference, deviant);
    const BatchNumber a = batch_of_next(reference);
    const BatchNumber b = batch_of_next(deviant);
    if (a.step != b.step) return a.step == step ? a : b.step == step ? b : BatchNumber{step};
    return std::min(a, b);
  }

  BatchNumber batch_of_next(std::size_t cursor) const {
    return modalities_.batch_of(rank_of(cursor), stream_of(cursor).calls[cursors_[cursor].next]);
  }

  bool lacks_modality(std::size_t deviant, std::size_t reference) const {
    return !modalities_.lacking(rank_of(deviant), rank_of(reference), batch_of(reference, deviant))
                .empty();
  }

  // Records how each class outside the reference party deviates, and moves its cursor past the
  // difference.
  void resolve(const std::vector<std::vector<std::size_t>>& parties) {
    if (resolve_as_added_before(parties)) return;
    const std::optional<std::size_t> left_out = left_out_by_most(parties);
    const auto [chosen, singled_out] = left_out ? std::pair(*left_out, true) : choose(parties);
    const std::size_t reference = longest(parties[chosen]);
    const std::vector<std::uint32_t> reference_ranks = ranks_of(parties[chosen]);
    const auto edit_of = [&](std::size_t cursor) {
      const Edit edit = find_edit(reference, cursor);
      // Of ranks that hang in their next call too little is left to align.
      return left_out && edit.kind == EditKind::replaced ? Edit{EditKind::missing, 1} : edit;
    };
    for (std::size_t p = 0; p < parties.size(); ++p) {
      if (p == chosen) continue;
      // All members issue the same call here. Of one that was killed or hung soon after, too little
      // is left to tell how it deviates: as the member does of which the most is known.
      const std::size_t clearest = longest(parties[p]);
      const Edit of_party = edit_of(clearest);
      record(of_party, reference, clearest, reference_ranks, singled_out);
      for (const std::size_t cursor : parties[p]) {
        const Edit edit = cursor == clearest ? of_party : edit_of(cursor);
        const bool unclear =
            edit.kind == Deviation::Kind::replaced ||
            (!ended_cleanly(cursors_[cursor]) && calls_left(cursor) < calls_left(clearest));
        if (cursor != clearest)
          record(unclear ? of_party : edit, reference, cursor, reference_ranks, singled_out);
        apply(edit, cursor);
        deviated_[cursors_[cursor].class_index] = singled_out;
        astray_[cursors_[cursor].class_index] =
            singled_out && edit.kind == Deviation::Kind::replaced;
      }
    }
    back_in_line(parties[chosen]);
  }

  // Calls from lines of the program that the others never call from, and which paired with other
  // calls of the same form: a validation on rank 0 alone gathers as the next step of the others
  // does, and what differs in the end is a call further on. Names of parameters would show where it
  // began; without them the lines do, where all calls after the additions are the reference's, line
  // by line.
  //
  //   reference   g@9 g@9 r@9 | g@9 g@9 r@9           waits in r
  //   deviant     g@9 g@9 r@9 | g@5 g@5 g@9           waits in g: two additions
  struct Addition {
    std::size_t index = 0;  // in both streams
    std::size_t count = 0;
  };

  std::optional<Addition> added_before(std::size_t reference, std::size_t deviant) {
    constexpr std::size_t kMostPlaces = 16;  // where lines may part for another reason: a root's
    const std::size_t end = cursors_[reference].next;
    Sequence& ref = sequences_[cursors_[reference].class_index];
    Sequence& dev = sequences_[cursors_[deviant].class_index];
    std::set<std::uint32_t> lines;
    for (std::size_t i = 0; i < ref.size(); ++i) lines.insert(ref.location(i).value);
    const auto is_new = [&](std::size_t i) {
      return dev.location(i).value != 0 && dev.token(i).what.value == 0 &&
             !lines.contains(dev.location(i).value);
    };
    const auto same_line = [&](std::size_t r, std::size_t d) {
      return ref.location(r) == dev.location(d) && match(ref.token(r), dev.token(d));
    };
    std::size_t places = 0;
    for (std::size_t i = 0; i < end && places < kMostPlaces; ++i) {
      if (!is_new(i)) continue;
      ++places;
      Addition out{i, 1};
      while (i + out.count < dev.size() && is_new(i + out.count)) ++out.count;
      std::size_t after = 0;
      while (i + after < ref.size() && i + out.count + after < dev.size() &&
             same_line(i + after, i + out.count + after))
        ++after;
      const bool to_the_end = i + after == ref.size() || i + out.count + after == dev.size();
      if (after > 0 && to_the_end) return out;
      i += out.count - 1;
    }
    return std::nullopt;
  }

  bool resolve_as_added_before(const std::vector<std::vector<std::size_t>>& parties) {
    if (!found_.empty() || parties.size() != 2) return false;
    for (const std::size_t few : {0U, 1U}) {
      const std::vector<std::size_t>& others = parties[1 - few];
      const std::size_t reference = longest(others);
      const std::size_t deviant = longest(parties[few]);
      // Nor where the batches explain it: the others left out the calls of a branch.
      if (weight(parties[few]) > weight(others) || batches_tell(parties[few], others)) continue;
      const auto added = added_before(reference, deviant);
      if (!added) continue;
      const Edit edit{EditKind::extra, added->count};
      const std::size_t back = cursors_[reference].next - added->index;
      for (const std::size_t cursor : parties[few]) {
        record(edit, reference, cursor, ranks_of(others), /*singled_out=*/true, back);
        apply(edit, cursor);
        deviated_[cursors_[cursor].class_index] = true;
      }
      return true;
    }
    return false;
  }

  void back_in_line(const std::vector<std::size_t>& party) {
    for (const std::size_t cursor : party) astray_[cursors_[cursor].class_index] = false;
  }

  Edit find_edit(std::size_t reference, std::size_t deviant) {
    const Cursor& ref = cursors_[reference];
    const Cursor& dev = cursors_[deviant];
    const Edit edit = edits_->find({sequences_[ref.class_index], ref.next, ended_cleanly(ref)},
                                   {sequences_[dev.class_index], dev.next, ended_cleanly(dev)});
    // The group's calls alone do not show what the rank did between them.
    const bool left_out = edit.kind == EditKind::swapped ? come_rounds_apart(reference, deviant)
                                                         : goes_on_without(reference, deviant);
    return left_out && edit.kind != EditKind::missing ? Edit{EditKind::missing, 1} : edit;
  }

  // Whether the program finished: then no call follows the recorded ones. One rank stands for the
  // class.
  bool ended_cleanly(const Cursor& cursor) const {
    const std::uint32_t rank = sequences_[cursor.class_index].rank_index();
    return where_.positions[rank].state == Position::State::finished;
  }

  // `back`: how many calls before the present ones the deviation is.
  void record(const Edit& edit, std::size_t reference, std::size_t deviant,
              const std::vector<std::uint32_t>& reference_ranks, bool singled_out,
              std::size_t back = 0) {
    const Cursor& ref = cursors_[reference];
    const Cursor& dev = cursors_[deviant];
    Deviation d;
    d.kind = edit.kind;
    d.count = static_cast<std::uint32_t>(edit.count);
    d.group = group_index_;
    d.seq = group_.first_seq + ref.next - back;
    const BatchNumber batch = batch_of(reference, deviant);
    d.step = batch.step;
    d.micro_batch = batch.micro;
    d.singled_out = singled_out;
    d.reference = reference_ranks;
    d.deviants = ranks_of({deviant});
    d.expected = {rank_of(reference), stream_of(reference).calls[ref.next - back]};
    d.got = {rank_of(deviant), stream_of(deviant).calls[dev.next - back]};
    d.differences =
        agreement_.differences(sequences_[ref.class_index].token(ref.next - back).signature,
                               sequences_[dev.class_index].token(dev.next - back).signature);
    merge(std::move(d));
  }

  const Stream& stream_of(std::size_t cursor) const {
    return group_.streams[group_.classes[cursors_[cursor].class_index].streams[0]];
  }

  // Adds a deviation, or counts it to a known one of the same kind and differences: other classes
  // that deviate at the same call become its deviants, and the same ranks at a later, equal call
  // (the same skip in every step) are a repetition.
  void merge(Deviation d) {
    const trace::Call& expected = run_.ranks[d.expected.rank].calls[d.expected.call];
    for (Deviation& known : found_) {
      const bool same_way = known.kind == d.kind && known.differences == d.differences;
      if (!same_way) continue;
      if (known.seq == d.seq) {
        known.deviants.insert(known.deviants.end(), d.deviants.begin(), d.deviants.end());
        std::sort(known.deviants.begin(), known.deviants.end());
        known.deviants.erase(std::unique(known.deviants.begin(), known.deviants.end()),
                             known.deviants.end());
        return;
      }
      const bool same_ranks = std::includes(known.deviants.begin(), known.deviants.end(),
                                            d.deviants.begin(), d.deviants.end());
      const trace::Call& before = run_.ranks[known.expected.rank].calls[known.expected.call];
      if (same_ranks && before.signature == expected.signature && before.what == expected.what) {
        ++known.repeats;
        return;
      }
    }
    found_.push_back(std::move(d));
  }

  // Moves the deviant's cursor so that it agrees with the reference's again. advance() follows.
  void apply(const Edit& edit, std::size_t deviant) {
    Cursor& c = cursors_[deviant];
    switch (edit.kind) {
      case Deviation::Kind::missing:
        c.held = edit.count;
        break;
      case Deviation::Kind::extra:
        // Onto the call that corresponds to the reference's current one; advance() passes both.
        c.next += edit.count;
        break;
      case Deviation::Kind::swapped:
        // Reference: a b. Deviant: b a. It passes both of its calls now, and then waits while the
        // reference passes its two.
        c.next += 2;
        c.held = 2;
        break;
      case Deviation::Kind::replaced:
      case Deviation::Kind::identity:
        break;  // one call for one call: advance() passes both
    }
  }

  // Moves every cursor past one call of the reference.
  void advance() {
    for (Cursor& c : cursors_) {
      if (c.held > 0) {
        --c.held;
      } else {
        ++c.next;
      }
    }
  }

  // Reports calls that one class has left when the others finished without them. Only asynchronous
  // calls that nobody waited for get here: all ranks finished although the calls have no partners.
  void finish_ended() {
    if (cursors_.empty() || ended_.empty() || found_.size() >= kMaxDeviations) return;
    const Cursor& c = cursors_[0];  // walk() ended with at most one
    if (c.held > 0 || c.next >= sequences_[c.class_index].size()) return;
    const auto left_over = ranks_of({0});
    std::vector<std::uint32_t> finished;
    for (const std::size_t e : ended_) {
      for (const std::uint32_t s : group_.classes[e].streams) {
        finished.push_back(group_.streams[s].rank_index);
      }
    }
    std::sort(finished.begin(), finished.end());
    const auto done = [&](std::uint32_t r) {
      return where_.positions[r].state == Position::State::finished &&
             where_.positions[r].waiting_in() == kNoCall;
    };
    if (!std::all_of(finished.begin(), finished.end(), done) ||
        !std::all_of(left_over.begin(), left_over.end(), done)) {
      return;  // somebody waits, died or raised: the wait-for graph explains it better
    }
    // The smaller side deviates, unless the larger one broke with its past. With equal sides the
    // calls are reported as missing, and nobody is singled out.
    Deviation d;
    const auto most = most_broke_with_the_past(run_, agreement_, left_over[0], finished[0]);
    const bool left_out = most && most->deviant == finished[0];
    const bool extra = left_over.size() < finished.size() && !left_out;
    d.kind = extra ? Deviation::Kind::extra : Deviation::Kind::missing;
    d.singled_out = left_over.size() != finished.size();
    d.deviants = extra ? left_over : finished;
    d.reference = extra ? finished : left_over;
    d.group = group_index_;
    d.seq = group_.first_seq + c.next;
    d.step = next_token(0).step;
    d.count = static_cast<std::uint32_t>(sequences_[c.class_index].size() - c.next);
    const CallRef call{rank_of(0), stream_of(0).calls[c.next]};
    (extra ? d.got : d.expected) = call;
    (extra ? d.expected : d.got).rank = d.reference[0];
    if (!extra) d.got.rank = d.deviants[0];
    found_.push_back(std::move(d));
  }

  const trace::Run& run_;
  const std::vector<GroupStreams>& groups_;
  const std::size_t group_index_;
  const GroupStreams& group_;
  const ReplayResult& where_;
  const Modalities& modalities_;
  Agreement& agreement_;
  std::vector<Sequence> sequences_;  // by class
  std::vector<Cursor> cursors_;      // of the classes that have not ended
  std::vector<std::size_t> ended_;   // classes
  std::vector<bool> deviated_;       // by class
  // By class: it issued another call than expected, and nothing says how the two sequences line up
  // since. Until it agrees with the reference again, what it issues is no majority.
  std::vector<bool> astray_;
  std::vector<Deviation> found_;
  std::optional<EditFinder> edits_;
  bool steps_comparable_ = false;
  bool judge_steps_ = false;
};

}  // namespace

std::vector<Deviation> find_deviations(const trace::Run& run,
                                       const std::vector<GroupStreams>& groups, std::size_t group,
                                       const ReplayResult& where, const Modalities& modalities,
                                       Agreement& agreement) {
  return Walker(run, groups, group, where, modalities, agreement).walk();
}

}  // namespace lockstep::verify
