// What a cluster's commands say about the ends of processes.
#include <string>

#include <gtest/gtest.h>

#include "tests/trace/evidence/evidence_testing.h"

namespace lockstep::trace {
namespace {

const std::string kPod =
    "Name:             train-worker-3\n"
    "Namespace:        ml\n"
    "Node:             gpu-7/10.0.0.7\n"
    "Containers:\n"
    "  pytorch:\n"
    "    State:          Running\n"
    "      Started:      Fri, 28 Nov 2026 10:00:00 +0000\n"
    "    Last State:     Terminated\n"
    "      Reason:       OOMKilled\n"
    "      Exit Code:    137\n";

TEST(Cluster, KubernetesDescribesPods) {
  EXPECT_EQ(notes_of(cluster_source(), kPod + "\n\nName:  train-worker-4\nNamespace:  ml\n"
                                              "      Reason:       Completed\n"),
            "some rank on train-worker-3 out of memory @9: OOMKilled, by Kubernetes: pod "
            "train-worker-3");
}

TEST(Cluster, KubernetesListsPods) {
  EXPECT_EQ(notes_of(cluster_source(),
                     "NAME             READY   STATUS      RESTARTS      AGE\n"
                     "train-worker-0   1/1     Running     0             4h\n"
                     "train-worker-3   0/1     OOMKilled   1 (2m ago)    4h\n"),
            "some rank on train-worker-3 out of memory @3: OOMKilled, by Kubernetes: pod "
            "train-worker-3");
  EXPECT_EQ(notes_of(cluster_source(),
                     "NAMESPACE   NAME             READY   STATUS      RESTARTS   AGE\n"
                     "ml          train-worker-3   0/1     OOMKilled   1          4h\n"),
            "some rank on train-worker-3 out of memory @2: OOMKilled, by Kubernetes: pod "
            "train-worker-3");
}

// The line of the job and that of its batch script repeat it, and what was ended then is no cause.
TEST(Cluster, SlurmsAccountingNamesTheStep) {
  EXPECT_EQ(notes_of(cluster_source(),
                     "JobID           JobName  Partition      State ExitCode \n"
                     "------------ ---------- ---------- ---------- -------- \n"
                     "4711              train        gpu OUT_OF_ME+    0:125 \n"
                     "4711.batch        batch            OUT_OF_ME+    0:125 \n"
                     "4711.0           python            OUT_OF_ME+    0:125 \n"
                     "4711.1           python             CANCELLED      0:9 \n"),
            "some rank out of memory @5: OUT_OF_ME+, by SLURM: step 4711.0");
  EXPECT_EQ(notes_of(cluster_source(),
                     "JobID|JobName|State|NodeList|ExitCode|\n"
                     "4711|train|NODE_FAIL|gpu[7-8]|1:0|\n"
                     "4711.0|python|OUT_OF_MEMORY|gpu7|0:125|\n"),
            "some rank killed @2: NODE_FAIL, by SLURM: job 4711\n"
            "some rank on gpu7 out of memory @3: OUT_OF_MEMORY, by SLURM: step 4711.0");
}

TEST(Cluster, HealthyJobsHaveNoNotes) {
  EXPECT_EQ(notes_of(cluster_source(),
                     "JobID           JobName      State ExitCode \n"
                     "------------ ---------- ---------- -------- \n"
                     "4711.0           python  COMPLETED      0:0 \n"),
            "");
  EXPECT_FALSE(cluster_source().recognises("Name: x\nOOMKilled\n", "f"));
  EXPECT_FALSE(cluster_source().recognises("step 1 OOMKilled\n", "f"));
}

TEST(Cluster, SurvivesDamage) {
  survives_damage(cluster_source(), kPod);
  survives_damage(cluster_source(), "JobID|State|\n4711.0|OUT_OF_MEMORY|\n");
  survives_damage(cluster_source(), "JobID  State \n------ --------\n4711.0 NODE_FAIL\n");
}

}  // namespace
}  // namespace lockstep::trace
