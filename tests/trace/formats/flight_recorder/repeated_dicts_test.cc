// A dict whose bytes are those of an earlier one is read like any other.
#include "trace/formats/flight_recorder/repeated_dicts.h"

#include <cstdint>
#include <functional>
#include <random>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/trace/formats/pickle_writer.h"
#include "trace/formats/flight_recorder/pickle.h"

namespace lockstep::trace {
namespace {

using Value = DataTree::Value;

std::string text_of(const DataTree& tree, const Value& value, int depth = 0) {
  if (depth > 6) return "…";  // a list may hold itself
  const auto all = [&](const auto& items) {
    std::string out;
    for (const Value& item : items) out += text_of(tree, item, depth + 1) + " ";
    return out;
  };
  if (value.is(DataTree::Kind::integer)) return std::to_string(value.integer(0));
  if (value.is(DataTree::Kind::boolean)) return value.boolean() ? "true" : "false";
  if (value.is(DataTree::Kind::string)) return fmt::format("\"{}\"", tree.text(value));
  if (value.is(DataTree::Kind::list)) return fmt::format("[{}]", all(tree.items(value)));
  if (value.is(DataTree::Kind::dict)) return fmt::format("{{{}}}", all(tree.pairs(value)));
  return "none";
}

std::string read_text(const std::string& bytes) {
  const Result<Pickle> pickle = read_pickle(bytes, "f");
  if (!pickle) return pickle.error().message;
  return pickle->damage + text_of(pickle->tree, pickle->tree.root);
}

// An entry with the values of the keys "number" and "sizes" as they are written.
using WriteValue = std::function<void(PickleWriter&)>;
void write_entry(PickleWriter& w, const WriteValue& number, const WriteValue& sizes) {
  w.begin_dict().text("number");
  number(w);
  w.text("sizes");
  sizes(w);
  w.text("state").text("completed").end_dict();
}

WriteValue an_integer(std::int64_t i) {
  return [i](PickleWriter& w) { w.integer(i); };
}
WriteValue a_list(std::int64_t item) {
  return [item](PickleWriter& w) { w.begin_list().integer(item).end_list(); };
}
WriteValue a_pair(std::int64_t second) {
  return [second](PickleWriter& w) { w.integer(1).integer(second).raw("\x86"); };
}

struct Last {
  std::string text;     // of the last entry
  bool shares = false;  // its sizes are those of the second one
};

// Reads four entries. The first memoizes the names, the second can be repeated, and the third tells
// that it is.
Last read_last(const WriteValue& number, const WriteValue& sizes, const WriteValue& last_number,
               const WriteValue& last_sizes) {
  PickleWriter w;
  w.begin_list();
  for (int i = 0; i < 3; ++i) write_entry(w, number, sizes);
  write_entry(w, last_number, last_sizes);
  const std::string bytes = w.end_list().finish() + std::string(16, '.');  // room for skip_ahead()
  const Result<Pickle> pickle = read_pickle(bytes, "f");
  if (!pickle || pickle->tree.items(pickle->tree.root).size() != 4) return {};
  const DataTree& tree = pickle->tree;
  const auto entries = tree.items(tree.root);
  return {text_of(tree, entries[3]),
          *tree.find(entries[1], "sizes") == *tree.find(entries[3], "sizes")};
}

TEST(RepeatedDicts, ShareAllButTheirIntegers) {
  const std::int64_t large = std::int64_t{1} << 40;
  for (const auto& [before, after] : {std::pair{5, 6L}, {300, 301L}, {70000, -70000L}}) {
    const Last last = read_last(an_integer(before), a_list(64), an_integer(after), a_list(64));
    EXPECT_EQ(last.text,
              fmt::format(R"({{"number" {} "sizes" [64 ] "state" "completed" }})", after));
    EXPECT_TRUE(last.shares) << before;
  }
  EXPECT_TRUE(read_last(an_integer(large), a_list(4), an_integer(large + 1), a_list(4)).shares);
}

TEST(RepeatedDicts, ShareNothingWithOthers) {
  const WriteValue nothing = [](PickleWriter& w) { w.none(); };
  const std::string text = R"("state" "completed" })";
  const Last other_size = read_last(an_integer(5), a_list(64), an_integer(6), a_list(65));
  EXPECT_EQ(other_size.text, R"({"number" 6 "sizes" [65 ] )" + text);
  const Last wider = read_last(an_integer(5), a_list(64), an_integer(300), a_list(64));
  EXPECT_EQ(wider.text, R"({"number" 300 "sizes" [64 ] )" + text);
  EXPECT_FALSE(wider.shares);
  const Last none = read_last(an_integer(5), a_list(64), nothing, a_list(64));
  EXPECT_EQ(none.text, R"({"number" none "sizes" [64 ] )" + text);
  // Integers of a tuple are not the entry's own.
  const Last pair = read_last(an_integer(5), a_pair(7), an_integer(6), a_pair(8));
  EXPECT_EQ(pair.text, R"({"number" 6 "sizes" [1 8 ] )" + text);
}

// What random pickles mean is what they mean with an opcode pair in each dict that does nothing
// (NONE, POP), and for which none is repeated.
TEST(RepeatedDicts, MeanTheSame) {
  for (std::uint32_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto written = [&](const char* nothing) {
      std::mt19937 random(seed);
      const auto below = [&](std::uint32_t n) { return static_cast<int>(random() % n); };
      PickleWriter w;
      w.begin_list();
      for (const char* name : {"a", "b", "c"}) w.text(name);
      const std::uint32_t shared = (w.begin_list().integer(1).end_list(), w.memoize());
      const std::vector<std::function<void()>> values = {
          [&] { w.integer(below(4)); },
          [&] { w.integer(300 + below(4)); },
          [&] { w.integer(below(2) == 0 ? INT64_MAX / 4 : -70000); },
          [&] { w.none(); },
          [&] { w.text("a"); },
          [&] { w.pair("b", "c"); },
          [&] { w.integer(below(2)).integer(below(2)).raw("\x86"); },
          [&] { w.begin_list().begin_list().integer(below(2)).end_list().end_list(); },
          [&] { w.get(shared); },
          [&] { w.get(shared).raw("(").integer(below(2)).raw("e"); },
          [&] { w.begin_dict().text("b").integer(below(2)).end_dict(); },
      };
      // A few kinds of entries, which come again and again.
      std::vector<std::vector<std::size_t>> kinds(3);
      for (auto& kind : kinds) {
        for (int i = below(4); i >= 0; --i) kind.push_back(random() % values.size());
      }
      for (int i = 0; i < 24; ++i) {
        w.raw("}(").raw(nothing);
        for (const std::size_t value : kinds[random() % kinds.size()]) {
          w.text(below(20) == 0 ? "b" : "a");
          values[value]();
        }
        w.raw("u");
        // Now and then a number gets another meaning.
        if (below(20) == 0) w.raw(std::string("q") + static_cast<char>(below(3)));
      }
      return w.end_list().finish();
    };
    ASSERT_EQ(read_text(written("")), read_text(written("N0")));
  }
}

}  // namespace
}  // namespace lockstep::trace
