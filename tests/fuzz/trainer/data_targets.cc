#include <array>

#include "tests/fuzz/targets.h"

namespace lockstep {

namespace {

constexpr std::array kTargets = {
    FuzzTarget{"captions", fuzz_captions},
    FuzzTarget{"jsonl", fuzz_jsonl},
    FuzzTarget{"webdataset", fuzz_webdataset},
    FuzzTarget{"jpeg", fuzz_jpeg},
    FuzzTarget{"png", fuzz_png},
    FuzzTarget{"wordpiece", fuzz_wordpiece},
    FuzzTarget{"safetensors", fuzz_safetensors},
};

}  // namespace

std::span<const FuzzTarget> fuzz_targets() { return kTargets; }

}  // namespace lockstep
