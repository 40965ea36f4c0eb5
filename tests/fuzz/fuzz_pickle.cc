// Any bytes as a pickle of data: whatever was read is a tree whose values can all be looked at.
#include <string>

#include "base/check.h"
#include "tests/fuzz/targets.h"
#include "trace/formats/flight_recorder/pickle.h"

namespace lockstep {

namespace {

// Every value that is reachable in that many steps. A pickle can put a list into itself, and a
// small one can hold more paths than there is time: depth and values are bounded.
struct Walk {
  const trace::DataTree& tree;
  std::size_t left = 10000;

  void look(const trace::DataTree::Value& value, int depth) {
    if (left == 0 || depth > 64) return;
    --left;
    LOCKSTEP_CHECK(tree.text(value).empty() || value.is(trace::DataTree::Kind::string),
                   "text of strings");
    if (value.is(trace::DataTree::Kind::string)) {
      LOCKSTEP_CHECK(value.number() < tree.string_count(), "readers look strings up by number");
    }
    for (const trace::DataTree::Value& item : tree.items(value)) look(item, depth + 1);
    LOCKSTEP_CHECK(tree.pairs(value).size() % 2 == 0, "a key has a value");
    for (const trace::DataTree::Value& item : tree.pairs(value)) look(item, depth + 1);
    tree.find(value, "entries");
  }
};

}  // namespace

void fuzz_pickle(std::string_view bytes) {
  const std::string copy(bytes);
  const Result<trace::Pickle> pickle = trace::read_pickle(copy, "fuzz");
  if (!pickle) {
    LOCKSTEP_CHECK(!pickle.error().message.empty(), "an error says what is wrong");
    return;
  }
  LOCKSTEP_CHECK(pickle->damage_at <= copy.size(), "damage is in the file");
  Walk{pickle->tree}.look(pickle->tree.root, 0);
}

}  // namespace lockstep
