// Operations, shapes and signatures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trace/run.h"

namespace lockstep::trace {
namespace {

using testing::ElementsAre;

TEST(Op, EveryNameLeadsBackToItsOperation) {
  for (int i = 1; i <= static_cast<int>(Op::finalize); ++i) {
    const Op op = static_cast<Op>(i);
    EXPECT_EQ(op_from_name(op_name(op)), op) << op_name(op);
  }
  EXPECT_EQ(op_name(Op::all_gather_into_tensor), "all_gather_into_tensor");
  EXPECT_EQ(op_from_name("other"), std::nullopt);
  EXPECT_EQ(op_from_name(""), std::nullopt);
}

TEST(Op, PointToPointOperations) {
  EXPECT_TRUE(is_point_to_point(Op::send));
  EXPECT_TRUE(is_point_to_point(Op::recv_any));
  EXPECT_TRUE(is_point_to_point(Op::probe));
  EXPECT_FALSE(is_point_to_point(Op::barrier));
  EXPECT_FALSE(is_point_to_point(Op::other));
}

TEST(Shapes, FlattenAndBack) {
  const std::vector<std::vector<std::int64_t>> shapes = {{2, 3}, {}, {0}};
  EXPECT_THAT(flatten_shapes(shapes), ElementsAre(2, 3, -1, -1, 0, -1));
  EXPECT_EQ(unflatten_shapes(flatten_shapes(shapes)), shapes);
}

TEST(Shapes, ElementsAreSummedOverTensorsAndNeverOverflow) {
  EXPECT_EQ(total_elements({}), 0);
  EXPECT_EQ(total_elements({-1}), 1);  // a scalar
  EXPECT_EQ(total_elements({2, 3, -1, 4, -1}), 10);
  EXPECT_EQ(total_elements({INT64_MAX, 2, -1}), INT64_MAX);
  EXPECT_EQ(total_elements({INT64_MAX, -1, 1, -1}), INT64_MAX);
  EXPECT_EQ(total_elements({INT64_MAX, INT64_MAX, 0, -1, 5, -1}), 5);
}

TEST(Tables, EqualSignaturesAreOneId) {
  Tables tables;
  const auto all_reduce = [&](std::int64_t elements) {
    Signature s;
    s.op = Op::all_reduce;
    s.in = s.out = tables.int_lists.intern({elements, -1});
    s.dtypes = tables.make_names({"float32"});
    return tables.make_signature(s);
  };
  EXPECT_EQ(all_reduce(4), all_reduce(4));
  EXPECT_NE(all_reduce(4), all_reduce(5));
  EXPECT_EQ(tables.signatures[all_reduce(4)].in_elements, 4);
  EXPECT_EQ(tables.make_signature({}), SignatureId{});
}

TEST(Run, FindsARankAmongThoseThatAreThere) {
  trace::Run run;
  run.ranks.resize(2);
  run.ranks[0].rank = Rank(1);
  run.ranks[1].rank = Rank(4);
  EXPECT_EQ(run.find(Rank(4)), &run.ranks[1]);
  EXPECT_EQ(run.find(Rank(2)), nullptr);
  EXPECT_EQ(run.find(Rank(9)), nullptr);
}

}  // namespace
}  // namespace lockstep::trace
