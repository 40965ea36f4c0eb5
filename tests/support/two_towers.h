// A derivation's folder, written by hand: two ranks that reduce the gradients of two towers.
#pragma once

#include <filesystem>
#include <string>

#include <fmt/format.h>

#include "tests/support/temp_dir.h"
#include "tests/support/trace_lines.h"

namespace lockstep {

// Writes it below `folder`, as `name`. Under the condition "text" nobody reduces that of images,
// unless `text_reduces_all`.
inline void write_two_towers(const TempDir& folder, const std::string& name,
                             bool text_reduces_all) {
  std::filesystem::create_directories(folder.file(name));
  folder.write(name + "/product.json", R"({"product":1,"program":"two towers","world_size":2,
"assumptions":["one library"],
"conditions":[{"name":"image+text","has":["image","text"]},{"name":"text","has":["text"]}],
"choice":"free",
"histories":[{"first":"image+text","folder":"first-0"},{"first":"text","folder":"first-1"}],
"steps":["image+text","text","image+text","text"]})");
  for (int history = 0; history < 2; ++history) {
    const std::string traces = fmt::format("{}/first-{}", name, history);
    std::filesystem::create_directories(folder.file(traces));
    for (int rank = 0; rank < 2; ++rank) {
      std::string text = header_line(rank, 2, {{"backend", "gloo"}}) + world_line(2);
      int id = 0;
      for (int step = 0; step < 5; ++step) {
        const bool text_only = step == 0 ? history == 1 : step % 2 == 0;
        for (const std::string what : {"image.weight", "text.weight"}) {
          if (text_only && !text_reduces_all && what == "image.weight") continue;
          text += issue_line(id++, "world", "all_reduce",
                             {{"in", {{8}}},
                              {"dtype", "float32"},
                              {"redop", "sum"},
                              {"what", {what}},
                              {"step", step}});
        }
      }
      folder.write(fmt::format("{}/rank_{}.trace.jsonl", traces, rank), text + end_line("clean"));
    }
  }
}

}  // namespace lockstep
