// An alignment of one group's classes: where the walk of verify/streams/deviations.h is in the
// stream of each class, which classes agree on their next call, and which edit explains one that
// does not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "trace/run.h"
#include "verify/modality.h"
#include "verify/replay/replay.h"
#include "verify/streams/agreement.h"
#include "verify/streams/edits.h"
#include "verify/streams/streams.h"

namespace lockstep::verify {

// The classes whose next calls agree, as indexes of cursors (Alignment::cursors).
using Party = std::vector<std::size_t>;

class Alignment {
 public:
  // Where the walk is in the stream of one class.
  struct Cursor {
    std::size_t class_index = 0;
    std::size_t next = 0;  // index of the next call in the class's stream
    // How many more calls of the reference this class sits out, because it left them out.
    std::size_t held = 0;
  };

  // Where a rank is in its stream. Another rank of a class is where the class's first one is.
  struct StreamPosition {
    const Stream& stream;
    std::size_t next = 0;

    CallRef call() const { return {stream.rank_index, stream.calls[next]}; }
  };

  // At the first call of each class of `groups[group]`. Keeps references to all but `group`.
  Alignment(const trace::Run& run, const std::vector<GroupStreams>& groups, std::size_t group,
            const ReplayResult& where, const Modalities& modalities, Agreement& agreement,
            EditBudget& budget);

  const trace::Run& run() const { return run_; }
  Agreement& agreement() const { return agreement_; }
  const std::vector<GroupStreams>& groups() const { return groups_; }
  std::size_t group_index() const { return group_index_; }
  const GroupStreams& group() const { return groups_[group_index_]; }

  // The cursors of the classes that have calls left, in the order of the classes.
  const std::vector<Cursor>& cursors() const { return cursors_; }
  const std::vector<std::size_t>& ended_classes() const { return ended_; }

  // Takes classes without further calls out of the walk; cursors get other indexes.
  void drop_ended();
  // Partitions the cursors that are not held by agreement of their next calls. O(cursors ·
  // parties).
  std::vector<Party> split();
  // Moves the deviant's cursor so that it agrees with the reference's again. advance() follows.
  void apply(const Edit& edit, std::size_t deviant);
  // Moves every cursor past one call of the reference.
  void advance();

  // Notes that the class at the cursor deviated (`has_deviated`), or differs without proof that it
  // deviated. `is_astray`: it issued another call than expected, and nothing shows how the two
  // sequences line up from there. Until it agrees with the reference again (come_back), it does not
  // count towards a majority.
  void mark(std::size_t cursor, bool has_deviated, bool is_astray);
  void come_back(const Party& party);
  bool has_deviated(std::size_t cursor) const { return deviated_[class_of(cursor)]; }
  bool is_astray(std::size_t cursor) const { return astray_[class_of(cursor)]; }

  // The class at the cursor. Its ranks have equal streams; stream() and rank() give the first one.
  const StreamClass& ranks_at(std::size_t cursor) const {
    return group().classes[class_of(cursor)];
  }
  const Stream& stream(std::size_t cursor) const {
    return group().streams[ranks_at(cursor).streams[0]];
  }
  std::uint32_t rank(std::size_t cursor) const { return stream(cursor).rank_index; }
  StreamPosition position(std::size_t cursor) const {
    return {stream(cursor), cursors_[cursor].next};
  }
  CallRef next_call(std::size_t cursor) const { return position(cursor).call(); }
  Sequence& sequence(std::size_t cursor) { return sequences_[class_of(cursor)]; }
  Token next_token(std::size_t cursor) const {
    return sequences_[class_of(cursor)].token(cursors_[cursor].next);
  }
  // Whether the cursor's next call is among the class's calls before it.
  bool was_made_before(std::size_t cursor) {
    return sequence(cursor).seen_before(cursors_[cursor].next, next_token(cursor));
  }
  std::size_t calls_left(std::size_t cursor) const {
    return sequences_[class_of(cursor)].size() - cursors_[cursor].next;
  }

  // A party's size in ranks, not in classes: first those that are not astray, then all.
  std::pair<std::size_t, std::size_t> weight(const Party& party) const;
  // The member with the most calls left, which show best how others differ from it. A rank that was
  // killed early has few or none.
  std::size_t longest(const Party& party) const;
  // Rank indices, ascending.
  std::vector<std::uint32_t> ranks(const Party& party) const;

  // Whether two calls may belong to one collective, in steps that agree where steps are judged.
  bool match(const Token& a, const Token& b) const {
    return same_call(agreement_, a, b, judges_steps_);
  }
  // Whether step numbers of different ranks can be compared, and whether calls of different steps
  // count as different.
  bool are_steps_comparable() const { return steps_comparable_; }
  bool judges_steps() const { return judges_steps_; }
  // The batch of two different calls, as its step: the earlier of the two calls' batches, because
  // the rank in the later step went on without the other's call.
  BatchNumber batch_of(std::size_t reference, std::size_t deviant) const;

  // Whether the reference's batch held a modality that the deviant's lacked.
  bool lacks_modality(std::size_t deviant, std::size_t reference) const;
  // Whether every rank of `most` lacks a modality that `few` hold, and none of `few` lacks one.
  bool do_batches_tell(const Party& few, const Party& most) const;

  // Whether the two next calls may differ because one side left out a call. Not where both carry
  // the same parameters, or differ in type, reduction or root alone: then it is one call in two
  // forms.
  bool skip_explains(std::size_t a, std::size_t b);
  // The edit that makes the deviant's calls agree with the reference's again.
  Edit find_edit(std::size_t reference, std::size_t deviant);
  // Whether the program at the cursor finished: then no call follows the recorded ones.
  bool ended_cleanly(std::size_t cursor) const;
  // Whether the rank's trace holds calls that completed: false for a dump of open calls alone.
  bool knows_its_past(std::uint32_t rank) const;
  // Where the programs of two ranks diverge (an index into RankTrace::calls of both), if that is
  // between their last call in this group and the next one.
  std::optional<std::uint32_t> diverged_between(const StreamPosition& a,
                                                const StreamPosition& b) const;

 private:
  std::size_t class_of(std::size_t cursor) const { return cursors_[cursor].class_index; }
  bool compare_steps() const;
  bool do_steps_matter() const;
  std::int32_t step_of(std::size_t reference, std::size_t deviant) const;
  BatchNumber batch_of_next(std::size_t cursor) const;
  bool are_level(std::size_t a, std::size_t b) const;
  bool goes_on_without(std::size_t reference, std::size_t other) const;
  bool come_rounds_apart(std::size_t reference, std::size_t other) const;

  const trace::Run& run_;
  const std::vector<GroupStreams>& groups_;
  const std::size_t group_index_;
  const ReplayResult& where_;
  const Modalities& modalities_;
  Agreement& agreement_;
  std::vector<Sequence> sequences_;  // by class
  std::vector<Cursor> cursors_;
  std::vector<std::size_t> ended_;  // classes
  std::vector<bool> deviated_;      // by class
  std::vector<bool> astray_;        // by class
  bool steps_comparable_ = false;
  bool judges_steps_ = false;
  std::optional<EditFinder> edits_;
};

}  // namespace lockstep::verify
