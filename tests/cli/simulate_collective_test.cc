// `lockstep simulate collective`: options in, numbers and messages out.
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/run_lockstep.h"
#include "tests/support/temp_dir.h"

namespace lockstep::sim {
namespace {

using Json = nlohmann::json;

const std::vector<std::string> kLink = {"--alpha", "500ns", "--beta", "50GB/s"};

cli::Outcome collective(std::vector<std::string> options, bool with_link = true) {
  options.insert(options.begin(), {"simulate", "collective"});
  if (with_link) options.insert(options.end(), kLink.begin(), kLink.end());
  return cli::run_lockstep(options);
}

Json json_of(std::vector<std::string> options, bool with_link = true) {
  options.insert(options.end(), {"--output", "json=-"});
  const cli::Outcome outcome = collective(std::move(options), with_link);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  return outcome.status == 0 ? Json::parse(outcome.out) : Json();
}

TEST(SimulateCollective, BothLevelsGiveThePublishedInteger) {
  for (const std::string level : {"closed-form", "message"}) {
    const Json out = json_of({"--op", "all_reduce", "--algorithm", "ring", "--ranks", "64",
                              "--bytes", "1MiB", "--level", level});
    EXPECT_EQ(out["time_ps"], 104'287'680) << level;
    EXPECT_EQ(out["level"], level);
  }
}

TEST(SimulateCollective, ShowsTheFormulaItsSourceAndTheBusBandwidth) {
  const cli::Outcome outcome = collective({"--ranks", "8", "--bytes", "1MiB"});
  EXPECT_EQ(outcome.out,
            "all_reduce by ring, 8 ranks, 1 MiB\n"
            "  time     43.7 us\n"
            "  algbw    24 GB/s\n"
            "  busbw    42 GB/s\n"
            "  formula  2(n-1)a + 2(n-1)/n B b + (n-1)/n B g\n"
            "  source   Patarasuk and Yuan, J. Parallel Distrib. Comput. 69(2), 2009, section\n"
            "           3\n");
}

TEST(SimulateCollective, HierarchicalTakesTheInnerLevelFirst) {
  const Json out = json_of({"--algorithm", "hierarchical", "--ranks", "64", "--ranks-per-node", "8",
                            "--bytes", "1MiB", "--alpha", "500ns,500ns", "--beta", "50GB/s,50GB/s"},
                           false);
  // 14·500 + 1.75·20,971.52 ns inside, and 14·500 + 1.75·2,621.44 ns between the nodes.
  EXPECT_EQ(out["time_ps"], 43'700'160 + 7'000'000 + 4'587'520);
}

TEST(SimulateCollective, SeveralAtOnceShareTheirLinks) {
  const Json out = json_of({"--ranks", "8", "--bytes", "1MiB,2MiB", "--level", "message", "--alpha",
                            "0ns", "--beta", "50GB/s"},
                           false);
  EXPECT_EQ(out["collectives"][0]["time_ps"], 2 * 36'700'160);
  EXPECT_EQ(out["collectives"][1]["time_ps"], 3 * 36'700'160);
  EXPECT_GT(out["shared_messages"], 0);
}

TEST(SimulateCollective, RefusesWhatCannotBeWithTheOptionTheReasonAndAFix) {
  const auto refused = [](std::vector<std::string> options, const std::string& why,
                          bool with_link = true) {
    const cli::Outcome outcome = collective(std::move(options), with_link);
    EXPECT_EQ(outcome.status, 2);
    EXPECT_EQ(outcome.out, "");
    EXPECT_NE(outcome.err.find(why), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.err.find("fix: "), std::string::npos) << outcome.err;
  };
  refused({"--ranks", "8", "--bytes", "1"}, "--bytes: \"1\" has no unit");
  refused({"--ranks", "8", "--bytes", "-1MiB"}, "--bytes: \"-1MiB\" is negative");
  refused({"--ranks", "0", "--bytes", "1MiB"}, "0 ranks cannot do a collective");
  refused({"--ranks", "-4", "--bytes", "1MiB"}, "-4 ranks cannot do a collective");
  refused({"--ranks", "6", "--bytes", "1MiB", "--algorithm", "halving_doubling"},
          "needs a power of two, and 6 ranks are none");
  refused({"--ranks", "8", "--bytes", "1MiB", "--algorithm", "rings"}, "no algorithm \"rings\"");
  refused({"--ranks", "8", "--bytes", "1MiB", "--op", "reduce_all"}, "no operation \"reduce_all\"");
  refused({"--ranks", "8", "--bytes", "1MiB,2MiB"}, "add --level message");
  refused({"--ranks", "8", "--bytes", "1MiB", "--output", "csv=x"}, "no such kind of result");
  refused({"--ranks", "8", "--bytes", "1MiB", "--alpha", "1us", "--beta", "0GB/s"},
          "--beta: \"0GB/s\" is zero", false);
  refused({"--ranks", "8", "--bytes", "1MiB", "--alpha", "1us", "--beta", "1GB/s,2GB/s"},
          "describe different numbers of levels", false);
  refused({"--ranks", "8"}, "--bytes is missing");
}

// Each of them would look as if it made no difference.
TEST(SimulateCollective, RefusesOptionsOfOtherAlgorithmsAndLevels) {
  const auto error_of = [](std::vector<std::string> options, bool with_link = true) {
    options.insert(options.end(), {"--ranks", "8", "--bytes", "1MiB"});
    const cli::Outcome outcome = collective(std::move(options), with_link);
    EXPECT_EQ(outcome.status, outcome.err.empty() ? 0 : 2);
    return outcome.err;
  };
  EXPECT_NE(error_of({"--ranks-per-node", "4"}).find("makes no difference to ring"),
            std::string::npos);
  EXPECT_NE(error_of({"--segments", "4"}).find("makes no difference to ring"), std::string::npos);
  EXPECT_NE(error_of({"--wiring", "pairs"}).find("add --level message"), std::string::npos);
  EXPECT_NE(error_of({"--algorithm", "hierarchical", "--alpha", "1us,2us", "--beta", "2GB/s,1GB/s"},
                     false)
                .find("--ranks-per-node is missing"),
            std::string::npos);
  // Where they count they are taken.
  EXPECT_EQ(error_of({"--op", "broadcast", "--algorithm", "chain", "--segments", "4"}), "");
  EXPECT_EQ(error_of({"--algorithm", "double_binary_tree", "--segments", "4"}), "");
  EXPECT_EQ(error_of({"--level", "message", "--wiring", "pairs"}), "");
}

TEST(SimulateCollective, ABarrierHasNoSize) {
  EXPECT_EQ(
      json_of({"--op", "barrier", "--algorithm", "recursive_doubling", "--ranks", "8"})["time_ps"],
      3 * 500'000);
  const cli::Outcome on_machine =
      collective({"--op", "barrier", "--ranks", "8", "--machine", "dgx-h100"}, false);
  EXPECT_EQ(on_machine.status, 0) << on_machine.err;
}

const std::string kDgx = LOCKSTEP_SOURCE_DIR "/sim/machines/dgx-h100.yaml";

TEST(SimulateCollective, OnAMachineItSaysWhatNcclChooses) {
  const cli::Outcome several =
      collective({"--machine", kDgx, "--ranks", "32", "--bytes", "64KiB,1MiB,64MiB"}, false);
  EXPECT_EQ(several.status, 0) << several.err;
  for (const char* chosen : {"tree       ll ", "tree       ll128", "nvls_tree  simple"})
    EXPECT_NE(several.out.find(chosen), std::string::npos) << several.out;
  cli::expect_fits_a_terminal(several.out);
  const Json json = json_of({"--machine", kDgx, "--ranks", "8", "--bytes", "16MiB"}, false);
  EXPECT_EQ(json["collectives"][0]["algorithm"], "nvls");
  EXPECT_EQ(json["collectives"][0]["protocol"], "simple");
  EXPECT_EQ(json["collectives"][0]["estimates"].size(), 7U);
  EXPECT_EQ(json["nodes"], 1);
}

TEST(SimulateCollective, OnAMachineWhatNcclDoesNotTuneTakesAFormula) {
  const Json json =
      json_of({"--machine", kDgx, "--ranks", "8", "--bytes", "16MiB", "--op", "all_to_all"}, false);
  EXPECT_EQ(json["collectives"][0]["algorithm"], "direct");
  EXPECT_FALSE(json["collectives"][0].contains("protocol"));
}

// Sixteen ranks in four nodes: 12 of 15 parts of an all-to-all leave a node, whose uplinks have a
// quarter of its ports.
TEST(SimulateCollective, OnANetworkItNamesTheLinkThatIsTooNarrow) {
  const TempDir folder;
  const auto machine = [&](const std::string& oversubscription) {
    return folder.write("m.yaml",
                        "machine: 1\nname: four nodes\nranks_per_node: 4\n"
                        "compute: {float32: {peak: 1TFLOP/s}}\nmemory: {bandwidth: 1TB/s}\n"
                        "links: [{alpha: 0us, beta: 400GB/s}, {alpha: 0us, beta: 50GB/s}]\n"
                        "network: {topology: fat-tree, tiers: [{nodes: 1, oversubscription: " +
                            oversubscription + "}]}\n");
  };
  const auto options = [](const std::string& file) {
    return std::vector<std::string>{"--machine", file,   "--ranks", "16",
                                    "--bytes",   "16MB", "--op",    "all_to_all"};
  };
  const Json wide = json_of(options(machine("1")), false)["collectives"][0];
  EXPECT_EQ(wide["time_ps"], 247'500'000);  // 12 MB at 50 GB/s, 3 MB inside the node at 400 GB/s
  EXPECT_FALSE(wide.contains("slowed"));
  const Json narrow = json_of(options(machine("4")), false)["collectives"][0];
  EXPECT_EQ(narrow["time_ps"], 960'000'000);  // 12 MB of each of four ranks at 50 GB/s
  EXPECT_NEAR(double{narrow["slowed"]["factor"]}, 960 / 247.5, 1e-12);
  EXPECT_EQ(narrow["slowed"]["by"], "uplink of leaf switch 0");
  const cli::Outcome text = collective(options(machine("4")), false);
  EXPECT_NE(text.out.find("3.88 times as long as on wider links: the uplink of leaf switch 0"),
            std::string::npos)
      << text.out;
  cli::expect_fits_a_terminal(text.out);
}

TEST(SimulateCollective, SaysWhetherSwitchesReduce) {
  const TempDir folder;
  const std::string file =
      folder.write("m.yaml",
                   "machine: 1\nname: two nodes\nranks_per_node: 8\n"
                   "compute: {float32: {peak: 1TFLOP/s}}\nmemory: {bandwidth: 1TB/s}\n"
                   "links: [{alpha: 0us, beta: 400GB/s}, {alpha: 0us, beta: 50GB/s}]\n"
                   "network: {topology: fat-tree, tiers: [{nodes: 4}], sharp: true}\n");
  const auto algorithm = [&](const char* ranks) {
    return json_of({"--machine", file, "--ranks", ranks, "--bytes", "16MB", "--op", "all_reduce"},
                   false)["collectives"][0]["algorithm"];
  };
  EXPECT_EQ(algorithm("16"), "in_network");
  EXPECT_EQ(algorithm("12"), "in_network");  // nodes of 8 and 4
  EXPECT_EQ(algorithm("8"), "ring");         // one node
}

TEST(SimulateCollective, AMachineReplacesTheLinks) {
  const auto refusal = [](std::vector<std::string> options) {
    const cli::Outcome outcome = collective(std::move(options), false);
    EXPECT_EQ(outcome.status, 2);
    return outcome.err;
  };
  EXPECT_NE(refusal({"--machine", kDgx, "--ranks", "8", "--bytes", "1MiB", "--alpha", "1us"})
                .find("cannot be combined with --machine"),
            std::string::npos);
  EXPECT_NE(refusal({"--ranks", "8", "--bytes", "1MiB"}).find("--machine"), std::string::npos);
  for (const char* ranks : {"1", "0", "-8", "99999999999"})
    EXPECT_NE(refusal({"--machine", kDgx, "--ranks", ranks, "--bytes", "1MiB"}).find("--ranks"),
              std::string::npos);
  refusal({"--machine", "none.yaml", "--ranks", "8", "--bytes", "1MiB"});
  refusal({"--machine", kDgx, "--ranks", "8", "--bytes", "1MiB", "--op", "none"});
}

}  // namespace
}  // namespace lockstep::sim
