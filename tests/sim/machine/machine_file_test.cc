#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files/read_file.h"
#include "sim/machine/machine.h"

namespace lockstep::sim {
namespace {

using testing::HasSubstr;

const std::string kFile = R"(machine: 1
name: two nodes
ranks_per_node: 4
compute:
  bfloat16: {peak: 312TFLOP/s, matmul: 0.5, convolution: 0.25}
memory: {bandwidth: 2TB/s, efficiency: 0.8, per_device: 80GiB, reserved: 1.5GB, fragmentation: 1.05}
kernels: {launch: 5us, hidden: false}
links:
  - {alpha: 1us, beta: 100GB/s, gamma: 1TB/s}
  - {alpha: 10us, beta: 200Gb/s}
)";

std::string file_with(const std::string& from, const std::string& to) {
  std::string text = kFile;
  text.replace(text.find(from), from.size(), to);
  return text;
}

std::string refusal(const std::string& text) {
  const auto machine = parse_machine(text, "m.yaml");
  return machine ? std::string("accepted") : machine.error().str();
}

TEST(MachineFile, EveryKeyIsRead) {
  const auto machine = parse_machine(kFile, "m.yaml");
  ASSERT_TRUE(machine) << machine.error().str();
  EXPECT_EQ(machine->name, "two nodes");
  EXPECT_EQ(machine->ranks_per_node, 4);
  EXPECT_EQ(machine->compute.at("bfloat16").peak.per_second, 312'000'000'000'000);
  EXPECT_EQ(machine->compute.at("bfloat16").convolution, 0.25);
  EXPECT_EQ(machine->memory_bandwidth.bits_per_second, 16'000'000'000'000);
  EXPECT_EQ(machine->memory_efficiency, 0.8);
  EXPECT_EQ(machine->reserved.value, 1'500'000'000);
  EXPECT_EQ(machine->fragmentation, 1.05);
  EXPECT_EQ(machine->launch.value, 5'000'000);
  EXPECT_FALSE(machine->launches_hidden);
  EXPECT_FALSE(machine->cores);
  ASSERT_EQ(machine->links.size(), 2U);
  EXPECT_EQ(machine->links[0].gamma->bits_per_second, 8'000'000'000'000);
  EXPECT_EQ(machine->links[1].beta.bits_per_second, 200'000'000'000);
}

TEST(MachineFile, RanksMayStaySlow) {
  const auto machine = parse_machine(
      kFile + "slow:\n  - {first: 8, last: 15, work: 1.5}\n  - {first: 9, work: 4}\n", "m.yaml");
  ASSERT_TRUE(machine) << machine.error().str();
  EXPECT_EQ(slowness_of(*machine, 7), 1);
  EXPECT_EQ(slowness_of(*machine, 8), 1.5);
  EXPECT_EQ(slowness_of(*machine, 9), 4);  // the last entry that names it
  EXPECT_EQ(slowness_of(*machine, 15), 1.5);
  EXPECT_EQ(slowness_of(*machine, 16), 1);
  EXPECT_THAT(refusal(kFile + "slow: [{first: 3, last: 2, work: 2}]\n"),
              HasSubstr("before the first one"));
  EXPECT_THAT(refusal(kFile + "slow: [{first: 3, work: 0}]\n"), HasSubstr("0.01"));
}

TEST(MachineFile, ANetworkIsAFewKeys) {
  const auto network = [](const std::string& keys) {
    return parse_machine(kFile + "network: {" + keys + "}\n", "m.yaml");
  };
  const auto tree = network(
      "topology: fat-tree, tiers: [{nodes: 2}, {nodes: 384, oversubscription: 7}], hop: 300ns, "
      "sharp: true");
  ASSERT_TRUE(tree) << tree.error().str();
  EXPECT_EQ(tree->network->tiers[0].oversubscription, 1);
  EXPECT_EQ(tree->network->tiers[1].nodes, 384);
  EXPECT_EQ(tree->network->tiers[1].oversubscription, 7);
  EXPECT_EQ(tree->network->hop, Picos{300'000});
  EXPECT_TRUE(tree->network->sharp);
  for (const char* keys :
       {"topology: fat-tree, tiers: [{nodes: 2}, {nodes: 384, oversubscription: 7}], hop: 300ns, "
        "sharp: true",
        "topology: rails, tiers: [{nodes: 32, oversubscription: 1.5}], rails: 2",
        "topology: torus, sides: [8, 8, 4], link: 50GB/s",
        "topology: dragonfly, nodes_per_router: 2, routers_per_group: 4, global_links: 2, groups: "
        "5"}) {
    const auto machine = network(keys);
    ASSERT_TRUE(machine) << machine.error().str();
    // What is written is read as it was.
    const auto again = parse_machine(machine_text(*machine, ""), "again.yaml");
    ASSERT_TRUE(again) << again.error().str();
    EXPECT_EQ(*again->network, *machine->network) << keys;
  }
  const auto why = [&](const std::string& keys) {
    const auto machine = network(keys);
    return machine ? std::string("accepted") : machine.error().str();
  };
  EXPECT_THAT(why("topology: hypercube"), HasSubstr("hypercube"));
  EXPECT_THAT(why("tiers: [{nodes: 2}]"), HasSubstr("topology"));
  EXPECT_THAT(why("topology: fat-tree"), HasSubstr("the switches are missing"));
  EXPECT_THAT(why("topology: fat-tree, tiers: [{nodes: 2}], sides: [2]"),
              HasSubstr("a fat-tree has no \"sides\""));
  EXPECT_THAT(why("topology: fat-tree, tiers: [{nodes: 2}], rails: 2"),
              HasSubstr("a fat-tree has no \"rails\""));
  EXPECT_THAT(why("topology: torus, sides: [4], sharp: true"),
              HasSubstr("a torus has no \"sharp\""));
  EXPECT_THAT(why("topology: fat-tree, tiers: [{nodes: 2, oversubscription: 0.5}]"),
              HasSubstr("oversubscription"));
  EXPECT_THAT(why("topology: rails, tiers: [{nodes: 2}], rails: 3"),
              HasSubstr("4 ranks of a node do not divide into 3 rails"));
  EXPECT_THAT(why("topology: torus, sides: [4], link: 50"), HasSubstr("50"));
  EXPECT_THAT(refusal("machine: 1\nname: x\ncores: 2\ncompute: {float32: {peak: 1TFLOP/s}}\n"
                      "memory: {bandwidth: 1TB/s}\nlinks: [{alpha: 1us, beta: 1GB/s}]\n"
                      "network: {topology: torus, sides: [4]}\n"),
              HasSubstr("share cores"));
}

TEST(MachineFile, MeasurementsGrow) {
  const auto points = [](const std::string& list) {
    return kFile + "measured: [{from: t, ranks: 8, points: " + list + "}]\n";
  };
  const auto machine = parse_machine(points("[[1KiB, 10us], [1MiB, 40us]]"), "m.yaml");
  ASSERT_TRUE(machine) << machine.error().str();
  EXPECT_EQ(machine->measured[0].points[1].bytes.value, 1 << 20);
  for (const char* wrong :
       {"[[1KiB, 10us]]", "[[1MiB, 10us], [1KiB, 40us]]", "[[1KiB, 40us], [1MiB, 10us]]",
        "[[0B, 10us], [1MiB, 40us]]", "[[1KiB, 10], [1MiB, 40us]]", "[[1KiB], [1MiB, 40us]]"})
    EXPECT_THAT(refusal(points(wrong)), HasSubstr("m.yaml:")) << wrong;
  EXPECT_THAT(refusal(kFile + "measured: [{from: t, ranks: 8, points: [[1B, 1us], [2B, 2us]]}, "
                              "{from: u, ranks: 8, points: [[1B, 1us], [2B, 2us]]}]\n"),
              HasSubstr("measured twice"));
}

TEST(MachineFile, DecimalAndBinaryUnitsDiffer) {
  const auto bytes = [](const std::string& unit) {
    return parse_machine(file_with("80GiB", unit), "m.yaml")->per_device->value;
  };
  EXPECT_EQ(bytes("80GB"), 80'000'000'000);
  EXPECT_EQ(bytes("80GiB"), std::int64_t{80} << 30U);
}

TEST(MachineFile, WhatIsWrongIsSaidWithItsLine) {
  EXPECT_EQ(refusal(kFile), "accepted");
  EXPECT_THAT(refusal(file_with("2TB/s", "2TB")), HasSubstr("m.yaml:6:"));
  EXPECT_THAT(refusal(file_with("100GB/s", "100")), HasSubstr("m.yaml:9:"));
  EXPECT_THAT(refusal(file_with("100GB/s", "0GB/s")), HasSubstr("m.yaml:9:"));
  EXPECT_THAT(refusal(file_with("matmul: 0.5", "matmul: 1.5")), HasSubstr("m.yaml:5:"));
  EXPECT_THAT(refusal(file_with("matmul: 0.5", "matmul: 0")), HasSubstr("matmul"));
  EXPECT_THAT(refusal(file_with("fragmentation: 1.05", "fragmentation: 0.9")),
              HasSubstr("m.yaml:6:"));
  EXPECT_THAT(refusal(file_with("1.5GB", "-1.5GB")), HasSubstr("m.yaml:6:"));
  EXPECT_THAT(refusal(file_with("80GiB", "0GB")), HasSubstr("memory holds nothing"));
  EXPECT_THAT(refusal("contention: 0.5\n" + kFile), HasSubstr("m.yaml:1:"));
  // Each slice is an event: so short ones would never end.
  EXPECT_THAT(refusal("cores: 2\nthreads: {slice: 1ps}\n" + kFile), HasSubstr("at least 100us"));
  EXPECT_EQ(refusal("cores: 2\nthreads: {slice: 100us}\n" + kFile), "accepted");
  EXPECT_EQ(refusal("cores: 2\nthreads: {start: 100us, refill: 1ms}\n" + kFile), "accepted");
  EXPECT_THAT(refusal("cores: 2\nthreads: {refill: 1}\n" + kFile), HasSubstr("m.yaml:2:"));
  EXPECT_THAT(refusal(file_with("bfloat16", "float12")), HasSubstr("float12"));
  EXPECT_THAT(refusal(file_with("bandwidth", "bandwith")), HasSubstr("\"bandwidth\" is missing"));
  EXPECT_THAT(refusal(file_with("ranks_per_node: 4", "ranks_per_node: 0")), HasSubstr("m.yaml:3:"));
  EXPECT_THAT(refusal("machine: 1\nname: none\n"), HasSubstr("error"));
  EXPECT_THAT(refusal("machine: 1\nname: x\ncompute: {}\nmemory: {bandwidth: 1B/s}\n"
                      "links: [{alpha: 0s, beta: 1B/s}]\n"),
              HasSubstr("has no type"));
}

const std::string kNccl = R"(machine: 1
name: two nodes under NCCL
ranks_per_node: 8
compute:
  bfloat16: {peak: 989TFLOP/s}
memory: {bandwidth: 3TB/s}
nccl: {gpu: hopper, cpu: amd, fitted_to: ["h100, 8 GPUs, 1 MiB"]}
links:
  - {alpha: 1us, beta: 450GB/s, kind: nvlink, ring: 12x30GB/s, nvls: 8x40GB/s, latency: 1.5}
  - {alpha: 9us, beta: 45GB/s, kind: network, ring: 8x48GB/s, tree: 8x50GB/s, speed: 2, fill: 1}
)";

std::string nccl_with(const std::string& from, const std::string& to) {
  std::string text = kNccl;
  text.replace(text.find(from), from.size(), to);
  return text;
}

TEST(MachineFile, WhatNcclFoundIsReadAndWritten) {
  const auto machine = parse_machine(kNccl, "m.yaml");
  ASSERT_TRUE(machine) << machine.error().str();
  ASSERT_TRUE(machine->nccl);
  EXPECT_EQ(machine->nccl->gpu, GpuGeneration::hopper);
  EXPECT_TRUE(machine->nccl->amd);
  EXPECT_TRUE(machine->nccl->nvlink);
  EXPECT_EQ(machine->nccl->inside.ring.count, 12);
  EXPECT_EQ(machine->nccl->inside.nvls->each.bits_per_second, 320'000'000'000);
  EXPECT_FALSE(machine->nccl->inside.tree);
  EXPECT_EQ(machine->nccl->inside.latency, 1.5);
  EXPECT_EQ(machine->nccl->between->tree->count, 8);
  EXPECT_EQ(machine->nccl->between->speed, 2);
  EXPECT_EQ(machine->nccl->between->fill, 1);
  const auto again = parse_machine(machine_text(*machine, ""), "again.yaml");
  ASSERT_TRUE(again) << again.error().str();
  EXPECT_EQ(machine_text(*again, ""), machine_text(*machine, ""));
  EXPECT_EQ(again->nccl->fitted_to, machine->nccl->fitted_to);
}

TEST(MachineFile, WhatNcclCannotHaveFoundIsRefused) {
  EXPECT_THAT(refusal(nccl_with("12x30GB/s", "12")), HasSubstr("m.yaml:9:"));
  EXPECT_THAT(refusal(nccl_with("12x30GB/s", "12x30")), HasSubstr("m.yaml:9:"));
  EXPECT_THAT(refusal(nccl_with("ring: 12x30GB/s, ", "")), HasSubstr("\"ring\""));
  EXPECT_THAT(refusal(nccl_with("kind: nvlink", "kind: network")), HasSubstr("nvlink or pci"));
  EXPECT_THAT(refusal(nccl_with("tree: 8x50GB/s", "nvls: 8x50GB/s")), HasSubstr("first link"));
  EXPECT_THAT(refusal(nccl_with("hopper", "grasshopper")), HasSubstr("m.yaml:7:"));
  EXPECT_THAT(refusal("cores: 2\n" + kNccl), HasSubstr("share cores"));
  EXPECT_THAT(refusal(nccl_with("latency: 1.5", "latency: 0")), HasSubstr("m.yaml:9:"));
  // Without `nccl` the file would look as if its channels counted.
  EXPECT_THAT(refusal(nccl_with(
                  "nccl: {gpu: hopper, cpu: amd, fitted_to: [\"h100, 8 GPUs, 1 MiB\"]}\n", "")),
              HasSubstr("nccl: {gpu: hopper}"));
  for (std::size_t length = 0; length < kNccl.size(); ++length) {
    const auto machine = parse_machine(kNccl.substr(0, length), "m.yaml");
    EXPECT_TRUE(machine || machine.error().location.file == "m.yaml") << length;
  }
}

TEST(MachineFile, CutOffAnywhereItIsReadOrRefusedWithALocation) {
  for (std::size_t length = 0; length < kFile.size(); ++length) {
    const auto machine = parse_machine(kFile.substr(0, length), "m.yaml");
    EXPECT_TRUE(machine || machine.error().location.file == "m.yaml") << length;
  }
}

TEST(MachineFile, EveryBitThatFlipsIsReadOrRefused) {
  int refused = 0;
  for (std::size_t bit = 0; bit < 8 * kFile.size(); ++bit) {
    std::string damaged = kFile;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    refused += parse_machine(damaged, "m.yaml") ? 0 : 1;
  }
  EXPECT_GT(refused, 0);
}

TEST(MachineFile, WhatIsWrittenIsReadAgain) {
  Machine machine = *parse_machine(kFile, "m.yaml");
  machine.name = "a \"quoted\" name: # no comment";
  machine.cores = 2;
  machine.sample = Picos{123};
  machine.dispatch = Picos{456};
  machine.contention = 1.25;
  machine.compute["float32"] = {FlopRate{1234567}, 1.0 / 3, 1};
  const auto again = parse_machine(machine_text(machine, "# why\n"), "again.yaml");
  ASSERT_TRUE(again) << again.error().str();
  EXPECT_EQ(machine_text(*again, ""), machine_text(machine, ""));
  EXPECT_EQ(again->name, machine.name);
  EXPECT_EQ(again->cores, machine.cores);
  EXPECT_EQ(again->dispatch.value, 456);
  EXPECT_EQ(again->contention, 1.25);
  EXPECT_EQ(again->compute.at("float32").matmul, 1.0 / 3);
}

TEST(MachineFile, WhatIsShippedCanBeRead) {
  int files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(LOCKSTEP_SOURCE_DIR "/sim/machines")) {
    const auto machine = load_machine(entry.path().string());
    EXPECT_TRUE(machine) << machine.error().str();
    ++files;
  }
  EXPECT_GE(files, 12);
}

}  // namespace
}  // namespace lockstep::sim
