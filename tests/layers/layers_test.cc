// The layers, lowest first, and a check that no #include of src/ points upwards.
//
// Includes are read from the text of every file. `#include "layer/file.h"` names a layer by its
// first folder; `<ATen/…>`, `<torch/…>`, `<c10…>` and `<gloo/…>` are the runtime's alone, and Boost
// stays out of headers.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

struct Layer {
  std::string_view name;
  std::vector<std::string_view> may_include;  // besides itself
};

// The one table of layers; docs/ARCHITECTURE.md explains it.
const std::vector<Layer>& layers() {
  static const std::vector<Layer> table = {
      {"base", {}},
      {"trace", {"base"}},
      {"job", {"base"}},
      {"replay", {"base", "trace", "job"}},
      {"sim", {"base", "trace", "job"}},
      {"verify", {"base", "trace"}},
      {"reports", {"base", "trace", "verify"}},
      {"launch", {"base", "trace", "job", "verify"}},
      {"study", {"base", "trace", "verify", "reports", "launch"}},
      {"sweep", {"base", "job", "sim", "reports"}},
      {"cli",
       {"base", "trace", "job", "replay", "sim", "verify", "reports", "launch", "study", "sweep"}},
      {"nccl", {"base", "trace"}},
      {"runtime", {"base", "trace", "job", "replay"}},
  };
  return table;
}

const Layer* layer_named(std::string_view name) {
  for (const Layer& layer : layers())
    if (layer.name == name) return &layer;
  return nullptr;
}

std::string_view first_folder(std::string_view path) { return path.substr(0, path.find('/')); }

bool contains(const std::vector<std::string_view>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool belongs_to_torch(std::string_view header) {
  const std::string_view folder = first_folder(header);
  return folder == "ATen" || folder == "torch" || folder == "c10" || folder == "gloo" ||
         folder == "caffe2";
}

// What is wrong with the includes of `text`, the file `path` (relative to src/); one line each.
std::vector<std::string> violations(const std::string& path, const std::string& text) {
  static const std::regex kInclude(R"(^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">])");
  std::vector<std::string> out;
  const Layer* layer = layer_named(first_folder(path));
  if (layer == nullptr) return {path + ": is in no layer"};
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::smatch match;
    if (!std::regex_search(line, match, kInclude)) continue;
    const std::string header = match[2];
    const std::string place = path + ":" + std::to_string(number) + ": ";
    const std::string_view target = first_folder(header);
    const bool ours = match[1] == "\"" || layer_named(target) != nullptr;
    if (ours && layer_named(target) == nullptr)
      out.push_back(place + "\"" + header + "\" does not begin with a layer");
    else if (ours && target != layer->name && !contains(layer->may_include, target))
      out.push_back(place + std::string(layer->name) + " includes " + header);
    else if (belongs_to_torch(header) && layer->name != "runtime")
      out.push_back(place + "LibTorch outside the runtime: " + header);
    else if (target == "boost" && path.ends_with(".h"))
      out.push_back(place + "Boost in a header: " + header);
  }
  return out;
}

std::string read(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

TEST(Layers, NoIncludePointsUpwards) {
  const fs::path source = fs::path(LOCKSTEP_SOURCE_DIR) / "src";
  std::size_t files = 0;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(source)) {
    const std::string extension = entry.path().extension();
    if (extension != ".h" && extension != ".cc") continue;
    ++files;
    const std::string path = fs::relative(entry.path(), source);
    for (const std::string& violation : violations(path, read(entry.path())))
      ADD_FAILURE() << violation;
  }
  EXPECT_GT(files, 20U) << "the sources were not found in " << source;
}

TEST(Layers, NoLayerMayIncludeOneThatIsListedAfterIt) {
  std::vector<std::string_view> below;
  for (const Layer& layer : layers()) {
    for (const std::string_view allowed : layer.may_include)
      EXPECT_TRUE(contains(below, allowed)) << layer.name << " -> " << allowed;
    below.push_back(layer.name);
  }
}

TEST(LayersCheck, AcceptsWhatIsAllowed) {
  EXPECT_TRUE(violations("verify/verify.cc",
                         "#include \"verify/verify.h\"\n#include \"trace/run.h\"\n"
                         "#include <boost/graph/adjacency_list.hpp>\n#include <vector>\n")
                  .empty());
  EXPECT_TRUE(violations("runtime/record/backend.h", "#include <torch/torch.h>\n").empty());
}

TEST(LayersCheck, RefusesAnIncludeUpwards) {
  EXPECT_EQ(violations("trace/run.h", "#pragma once\n  #  include \"verify/report.h\"\n"),
            std::vector<std::string>{"trace/run.h:2: trace includes verify/report.h"});
  EXPECT_EQ(violations("verify/a.cc", "#include \"job/scenario.h\"\n").size(), 1U);
  EXPECT_EQ(violations("cli/a.cc", "#include <runtime/train.h>\n").size(), 1U);
}

TEST(LayersCheck, RefusesTorchOutsideTheRuntime) {
  for (const std::string header :
       {"ATen/ATen.h", "torch/torch.h", "c10/util/Exception.h", "gloo/context.h"})
    EXPECT_EQ(violations("cli/a.cc", "#include <" + header + ">\n").size(), 1U) << header;
}

TEST(LayersCheck, RefusesBoostInHeadersAndUnknownFolders) {
  EXPECT_EQ(violations("verify/a.h", "#include <boost/graph/graph_traits.hpp>\n").size(), 1U);
  EXPECT_EQ(violations("misc/utils.h", "").size(), 1U);
  EXPECT_EQ(violations("cli/a.cc", "#include \"output.h\"\n").size(), 1U);
}

}  // namespace
}  // namespace lockstep
