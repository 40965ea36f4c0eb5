#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "sim/forecast/machine_fit.h"
#include "sim/forecast/training_steps.h"
#include "tests/sim/machine/kernel_job.h"

namespace lockstep::sim {
namespace {

Machine two_cores(double contention, Picos refill) {
  Machine machine = millisecond_kernels();
  machine.cores = 2;
  machine.contention = contention;
  machine.refill = refill;
  return machine;
}

using Ranks = std::vector<std::vector<KernelStep>>;
// With few calls for their work, and with many; each with as many ranks as cores, and with more.
std::vector<Ranks> jobs() {
  const std::vector<KernelStep> long_steps(4, KernelStep{30, 4, ""});
  const std::vector<KernelStep> short_steps(9, KernelStep{3, 0, ""});
  return {Ranks(2, long_steps), Ranks(2, short_steps), Ranks(4, long_steps), Ranks(4, short_steps)};
}

double mean_step(const KernelJob& job) {
  const MeasuredSteps steps =
      measured_steps(step_times(job.run, job.program, job.folding, job.result));
  return steps.seconds() / static_cast<double>(steps.count);
}

TEST(FitSharing, FindsWhatMadeTheStepsSoLong) {
  for (const auto& [contention, refill] :
       {std::pair(1.3, ms(0.8)), std::pair(1.05, ms(0)), std::pair(2.0, ms(1.5))}) {
    std::vector<double> seconds;
    for (const Ranks& ranks : jobs())
      seconds.push_back(mean_step(KernelJob(ranks, two_cores(contention, refill))));
    Machine machine = two_cores(1, Picos{});
    std::vector<KernelJob> unfitted;
    for (const Ranks& ranks : jobs()) unfitted.emplace_back(ranks, machine);
    std::vector<MeasuredJob> measured;
    for (std::size_t i = 0; i < unfitted.size(); ++i)
      measured.push_back({&unfitted[i].run, &unfitted[i].program, seconds[i]});
    ASSERT_TRUE(fit_sharing(measured, machine));
    EXPECT_NEAR(machine.contention, contention, 0.02);
    EXPECT_NEAR(machine.refill.seconds(), refill.seconds(), 0.1e-3);
  }
}

TEST(FitSharing, JobsThatAreFasterThanTheirWorkSlowNothingDown) {
  Machine machine = two_cores(1.5, ms(1));
  const KernelJob job(jobs().front(), machine);
  ASSERT_TRUE(fit_sharing({{&job.run, &job.program, 1e-3}}, machine));
  EXPECT_DOUBLE_EQ(machine.contention, 1);
  EXPECT_EQ(machine.refill, Picos{});
}

}  // namespace
}  // namespace lockstep::sim
