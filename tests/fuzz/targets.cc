#include "tests/fuzz/targets.h"

#include <array>

namespace lockstep {

namespace {

constexpr std::array kTargets = {
    FuzzTarget{"text_trace", fuzz_text_trace},
    FuzzTarget{"ring_trace", fuzz_ring_trace},
    FuzzTarget{"verify", fuzz_verify},
    FuzzTarget{"flight_recorder", fuzz_flight_recorder},
    FuzzTarget{"kineto", fuzz_kineto},
    FuzzTarget{"nsys", fuzz_nsys},
    FuzzTarget{"chakra", fuzz_chakra},
    FuzzTarget{"nccl_log", fuzz_nccl_log},
    FuzzTarget{"watchdog_log", fuzz_watchdog_log},
    FuzzTarget{"detail_log", fuzz_detail_log},
    FuzzTarget{"execution_trace", fuzz_execution_trace},
    FuzzTarget{"clog", fuzz_clog},
    FuzzTarget{"evidence", fuzz_evidence},
    FuzzTarget{"digest", fuzz_digest},
    FuzzTarget{"pickle", fuzz_pickle},
    FuzzTarget{"archive", fuzz_archive},
    FuzzTarget{"scenario", fuzz_scenario},
    FuzzTarget{"plan", fuzz_plan},
    FuzzTarget{"suppressions", fuzz_suppressions},
    FuzzTarget{"baseline", fuzz_baseline},
    FuzzTarget{"product", fuzz_product},
    FuzzTarget{"work_costs", fuzz_work_costs},
    FuzzTarget{"machine", fuzz_machine},
    FuzzTarget{"sweep_file", fuzz_sweep_file},
    FuzzTarget{"sweep_row", fuzz_sweep_row},
    FuzzTarget{"measured_table", fuzz_measured_table},
    FuzzTarget{"calibration", fuzz_calibration},
    FuzzTarget{"replay", fuzz_replay},
    FuzzTarget{"simulation", fuzz_simulation},
    FuzzTarget{"forecast", fuzz_forecast},
};

}  // namespace

std::span<const FuzzTarget> fuzz_targets() { return kTargets; }

}  // namespace lockstep
