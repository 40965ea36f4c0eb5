#include "fuzz/targets.h"

#include <array>

namespace lockstep {

namespace {

constexpr std::array kTargets = {
    FuzzTarget{"text_trace", fuzz_text_trace},
    FuzzTarget{"ring_trace", fuzz_ring_trace},
    FuzzTarget{"verify", fuzz_verify},
    FuzzTarget{"flight_recorder", fuzz_flight_recorder},
    FuzzTarget{"kineto", fuzz_kineto},
    FuzzTarget{"chakra", fuzz_chakra},
    FuzzTarget{"nccl_log", fuzz_nccl_log},
    FuzzTarget{"watchdog_log", fuzz_watchdog_log},
    FuzzTarget{"digest", fuzz_digest},
    FuzzTarget{"pickle", fuzz_pickle},
    FuzzTarget{"archive", fuzz_archive},
    FuzzTarget{"scenario", fuzz_scenario},
    FuzzTarget{"plan", fuzz_plan},
    FuzzTarget{"suppressions", fuzz_suppressions},
    FuzzTarget{"baseline", fuzz_baseline},
    FuzzTarget{"product", fuzz_product},
    FuzzTarget{"certificate", fuzz_certificate},
};

}  // namespace

std::span<const FuzzTarget> fuzz_targets() { return kTargets; }

}  // namespace lockstep
