// Who may include whom, and a check that every #include obeys.
//
// Includes are read from the text of every file. A file belongs to the layer whose folder is the
// longest that it lies in. `<ATen/…>`, `<torch/…>`, `<c10…>` and `<gloo/…>` belong to the layers
// that say so, and Boost stays out of headers. What a file uses of the standard library, it
// includes.
#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
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
  std::string_view folder;
  std::vector<std::string_view> may_include;  // folders with all that is in them, besides itself
  bool torch = false;                         // may include LibTorch
};

// The one table of layers, lowest first; docs/ARCHITECTURE.md explains it.
const std::vector<Layer>& layers() {
  // What every part of lockstep-worker that needs LibTorch may include; these also include each
  // other.
  static const std::vector<std::string_view> below_torch = {
      "base",           "trace",          "runtime/job",          "sim/pipeline",
      "runtime/record", "runtime/replay", "runtime/data",         "runtime/device",
      "runtime/groups", "runtime/models", "runtime/remedies",     "runtime/strategies",
      "runtime/train",  "runtime/faults", "runtime/derive/torch", "runtime/replay/torch",
      "runtime/worker"};
  static const std::vector<Layer> table = {
      {"base", {}},
      {"trace", {"base"}},
      {"runtime/job", {"base"}},
      {"verify", {"base", "trace"}},
      {"sim/pipeline", {"base"}},
      {"sim", {"base", "trace", "runtime/job", "sim/pipeline"}},
      {"reports", {"base", "trace", "verify"}},
      {"reports/forecasts",
       {"base", "trace", "verify", "sim", "sim/pipeline", "reports", "runtime/job"}},
      {"reports/sweeps", {"base", "trace", "sim", "reports", "runtime/job"}},
      {"runtime/record", {"base", "trace", "runtime/job"}},
      {"runtime/record/nccl", {"base", "trace", "runtime/record"}},
      {"runtime/replay", {"base", "trace", "runtime/job"}},
      {"runtime/launch", {"base", "trace", "verify", "reports", "runtime/job", "runtime/replay"}},
      {"runtime/derive", {"base", "trace", "verify", "reports", "runtime/job", "runtime/launch"}},
      {"runtime/study", {"base", "trace", "verify", "reports", "runtime/job", "runtime/launch"}},
      {"runtime/forecast",
       {"base", "trace", "verify", "sim", "reports", "reports/forecasts", "reports/sweeps",
        "runtime/job", "runtime/launch", "runtime/derive"}},
      {"cli",
       {"base", "trace", "verify", "sim", "sim/pipeline", "reports", "reports/forecasts",
        "reports/sweeps", "runtime/job", "runtime/replay", "runtime/launch", "runtime/derive",
        "runtime/study", "runtime/forecast"}},
      {"runtime/data", {"base"}},
      {"runtime/device", below_torch, true},
      {"runtime/groups", below_torch, true},
      {"runtime/models", below_torch, true},
      {"runtime/remedies", below_torch, true},
      {"runtime/strategies", below_torch, true},
      {"runtime/train", below_torch, true},
      {"runtime/faults", below_torch, true},
      {"runtime/record/c10d", below_torch, true},
      {"runtime/record/preload", below_torch, true},
      {"runtime/derive/torch", below_torch, true},
      {"runtime/replay/torch", below_torch, true},
      {"runtime/worker", below_torch, true},
  };
  return table;
}

bool lies_in(std::string_view path, std::string_view folder) {
  return path.starts_with(folder) && path.substr(folder.size()).starts_with('/');
}

// The layer of a file; nullptr: it lies in none.
const Layer* layer_of(std::string_view path) {
  const Layer* found = nullptr;
  for (const Layer& layer : layers()) {
    if (lies_in(path, layer.folder) &&
        (found == nullptr || layer.folder.size() > found->folder.size()))
      found = &layer;
  }
  return found;
}

// A folder that is allowed is allowed with what is in it, except layers in it that need LibTorch
// where the one that includes has none, or that are above it.
bool may_include(const Layer& layer, std::string_view path) {
  const Layer* target = layer_of(path);
  if (target == nullptr) return false;
  if (target == &layer) return true;
  if (target->torch && !layer.torch) return false;
  return std::any_of(
      layer.may_include.begin(), layer.may_include.end(), [&](std::string_view folder) {
        return folder == target->folder || (lies_in(target->folder, folder) && layer.torch);
      });
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

// What is wrong with the includes of `text`, the file `path` of the repository; one line each.
std::vector<std::string> violations(const std::string& path, const std::string& text) {
  static const std::regex kInclude(R"(^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">])");
  std::vector<std::string> out;
  const Layer* layer = layer_of(path);
  if (layer == nullptr) return {path + ": is in no layer"};
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::smatch match;
    if (!std::regex_search(line, match, kInclude)) continue;
    const std::string header = match[2];
    const std::string location = path + ":" + std::to_string(number) + ": ";
    const bool ours = match[1] == "\"" || layer_of(header) != nullptr;
    if (ours && layer_of(header) == nullptr)
      out.push_back(location + "\"" + header + "\" does not begin with a layer");
    else if (ours && !may_include(*layer, header))
      out.push_back(location + std::string(layer->folder) + " includes " + header);
    else if (belongs_to_torch(header) && !layer->torch)
      out.push_back(location + "LibTorch in a layer without: " + header);
    else if (first_folder(header) == "boost" && path.ends_with(".h"))
      out.push_back(location + "Boost in a header: " + header);
  }
  return out;
}

// A text with the layout that clang-format gives: namespaces, and what is defined in them, begin in
// the first column. Calls visit(line, namespaces) for each line that does, with the namespaces that
// enclose it; "" is an anonymous one.
template <class Visit>
void visit_definitions(const std::string& text, Visit&& visit) {
  static const std::regex kOpened(R"(^namespace ?([A-Za-z_0-9:]*) \{)");
  std::vector<std::string> namespaces;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || std::string_view(" #/").find(line.front()) != std::string_view::npos)
      continue;
    std::smatch match;
    if (line.starts_with("namespace") && std::regex_search(line, match, kOpened)) {
      namespaces.push_back(match[1]);
    } else if (line.starts_with("}")) {
      if (line.starts_with("}  // namespace") && !namespaces.empty()) namespaces.pop_back();
    } else {
      visit(line, namespaces);
    }
  }
}

bool contains_anonymous(const std::vector<std::string>& namespaces) {
  return std::find(namespaces.begin(), namespaces.end(), "") != namespaces.end();
}

// "lockstep::verify::" of the named ones.
std::string prefix_of(const std::vector<std::string>& namespaces) {
  std::string out;
  for (const std::string& space : namespaces)
    if (!space.empty()) out += space + "::";
  return out;
}

// The type that the line begins to define; empty: none.
std::string type_defined(const std::string& line) {
  static const std::regex kType(
      R"(^(?:struct|class|enum class|enum|union) ([A-Za-z_0-9]+)(?: final)?(?: [:{].*)?$)");
  std::smatch match;
  return std::regex_match(line, match, kType) ? std::string(match[1]) : std::string();
}

// The types that `text` defines at the level of a named namespace, each with its namespaces:
// "lockstep::verify::Context". What is in an anonymous one belongs to its file.
std::vector<std::string> types_defined(const std::string& text) {
  std::vector<std::string> out;
  visit_definitions(text, [&](const std::string& line, const std::vector<std::string>& namespaces) {
    const std::string type = contains_anonymous(namespaces) ? "" : type_defined(line);
    if (!type.empty()) out.push_back(prefix_of(namespaces) + type);
  });
  return out;
}

// What `text` defines in anonymous namespaces: types, constants, and functions with the first line
// of their parameters, because names may be overloaded.
std::vector<std::string> hidden_names(const std::string& text) {
  static const std::regex kConstant(
      R"(^(?:constexpr|const) [^(=]*?([A-Za-z_0-9]+)(?:\[[^\]]*\])? ?[={].*)");
  static const std::regex kFunction(R"(^[A-Za-z_][^()=;]*?([A-Za-z_0-9]+\([^{;]*).*)");
  std::vector<std::string> out;
  visit_definitions(text, [&](const std::string& line, const std::vector<std::string>& namespaces) {
    if (!contains_anonymous(namespaces) || line.starts_with("using") ||
        line.starts_with("template") || line.starts_with("static_assert"))
      return;
    std::smatch match;
    std::string name = type_defined(line);
    if (name.empty() &&
        (std::regex_match(line, match, kConstant) || std::regex_match(line, match, kFunction)))
      name = match[1];
    if (!name.empty()) out.push_back(prefix_of(namespaces) + name);
  });
  return out;
}

std::string read(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

// The sources of all layers, by their paths from the top of the repository.
std::vector<std::string> all_sources() {
  const fs::path root = LOCKSTEP_SOURCE_DIR;
  std::vector<std::string> out;
  for (const Layer& layer : layers()) {
    if (layer_of(std::string(fs::path(layer.folder).parent_path()) + "/x.h") != nullptr) continue;
    for (const fs::directory_entry& entry :
         fs::recursive_directory_iterator(root / std::string(layer.folder))) {
      const std::string extension = entry.path().extension();
      if (extension == ".h" || extension == ".cc") out.push_back(fs::relative(entry.path(), root));
    }
  }
  return out;
}

TEST(Layers, EveryIncludeIsAllowed) {
  const std::vector<std::string> files = all_sources();
  for (const std::string& path : files) {
    for (const std::string& violation :
         violations(path, read(fs::path(LOCKSTEP_SOURCE_DIR) / path)))
      ADD_FAILURE() << violation;
  }
  EXPECT_GT(files.size(), 500U) << "the sources were not found";
}

// Two types of one name in one program are one to the linker, which then takes the wrong
// constructor.
TEST(Layers, NoTypeIsDefinedTwiceInOneNamespace) {
  std::map<std::string, std::string> defined;
  for (const std::string& path : all_sources()) {
    for (const std::string& type : types_defined(read(fs::path(LOCKSTEP_SOURCE_DIR) / path))) {
      const auto [first, added] = defined.emplace(type, path);
      EXPECT_TRUE(added) << type << " is defined in " << first->second << " and in " << path;
    }
  }
  EXPECT_GT(defined.size(), 500U) << "the types were not found";
}

// Quick builds compile files of one library as one, and which ones changes with every new file. So
// names that are hidden in two files of a layer clash sooner or later, in an unrelated change.
TEST(Layers, NoNameIsHiddenInTwoFilesOfALayer) {
  std::map<std::string, std::string> defined;
  for (const std::string& path : all_sources()) {
    // The libraries that NCCL loads are of a few files each, and are compiled apart.
    if (path.ends_with(".h") || path.starts_with("runtime/record/")) continue;
    for (const std::string& name : hidden_names(read(fs::path(LOCKSTEP_SOURCE_DIR) / path))) {
      const auto [first, added] =
          defined.emplace(std::string(layer_of(path)->folder) + ' ' + name, path);
      EXPECT_TRUE(added || first->second == path)
          << name << " is hidden in " << first->second << " and in " << path;
    }
  }
  EXPECT_GT(defined.size(), 2000U) << "the names were not found";
}

TEST(Layers, EveryFolderOfTheRuntimeIsALayer) {
  const fs::path root = LOCKSTEP_SOURCE_DIR;
  for (const fs::directory_entry& entry : fs::directory_iterator(root / "runtime")) {
    if (!entry.is_directory()) continue;
    EXPECT_NE(layer_of(std::string(fs::relative(entry.path(), root)) + "/x.h"), nullptr)
        << entry.path();
  }
}

TEST(Layers, NoLayerWithoutTorchMayIncludeOneThatIsListedAfterIt) {
  std::vector<std::string_view> below;
  for (const Layer& layer : layers()) {
    for (const std::string_view allowed : layer.may_include)
      EXPECT_TRUE(layer.torch || contains(below, allowed)) << layer.folder << " -> " << allowed;
    below.push_back(layer.folder);
  }
}

TEST(LayersCheck, FindsTheTypesOfNamedNamespaces) {
  EXPECT_EQ(types_defined("namespace a::b {\nstruct One {\nclass Two final : public X {\n"
                          "enum class Three : int { x };\nstruct Declared;\n  struct Inner {\n"
                          "namespace {\nstruct Hidden {\n}  // namespace\n"
                          "}  // namespace a::b\n"),
            (std::vector<std::string>{"a::b::One", "a::b::Two", "a::b::Three"}));
}

TEST(LayersCheck, FindsWhatIsHidden) {
  EXPECT_EQ(
      hidden_names("namespace a {\nstruct One {\n};\nnamespace {\n"
                   "constexpr std::array<int, 2> kTwo = {1, 2};\nstruct Three {\n  int x = 1;\n"
                   "bool four(int x) { return x; }\nbool four(const std::string& x,\n"
                   "          int y) {\nusing Six = int;\nconst int kFive[] = {1};\n"
                   "}  // namespace\nvoid seven() {}\n}  // namespace a\n"),
      (std::vector<std::string>{"a::kTwo", "a::Three", "a::four(int x) ",
                                "a::four(const std::string& x,", "a::kFive"}));
}

TEST(LayersCheck, AcceptsWhatIsAllowed) {
  EXPECT_TRUE(violations("verify/verify.cc",
                         "#include \"verify/verify.h\"\n#include \"trace/run.h\"\n"
                         "#include <boost/graph/adjacency_list.hpp>\n#include <vector>\n")
                  .empty());
  EXPECT_TRUE(violations("runtime/record/c10d/backend.h", "#include <torch/torch.h>\n").empty());
}

TEST(LayersCheck, RefusesAnIncludeUpwards) {
  EXPECT_EQ(violations("trace/run.h", "#pragma once\n  #  include \"verify/report.h\"\n"),
            std::vector<std::string>{"trace/run.h:2: trace includes verify/report.h"});
  EXPECT_EQ(violations("verify/a.cc", "#include \"runtime/job/scenario.h\"\n").size(), 1U);
  EXPECT_EQ(violations("cli/a.cc", "#include <runtime/train/a.h>\n").size(), 1U);
}

TEST(LayersCheck, RefusesTorchWhereItIsNotAllowed) {
  for (const std::string header :
       {"ATen/ATen.h", "torch/torch.h", "c10/util/Exception.h", "gloo/context.h"})
    EXPECT_EQ(violations("cli/a.cc", "#include <" + header + ">\n").size(), 1U) << header;
  EXPECT_EQ(violations("runtime/record/a.h", "#include <torch/torch.h>\n").size(), 1U);
  EXPECT_EQ(violations("runtime/derive/a.cc", "#include \"runtime/derive/torch/a.h\"\n").size(),
            1U);
}

TEST(LayersCheck, RefusesBoostInHeadersAndUnknownFolders) {
  EXPECT_EQ(violations("verify/a.h", "#include <boost/graph/graph_traits.hpp>\n").size(), 1U);
  EXPECT_EQ(violations("misc/utils.h", "").size(), 1U);
  EXPECT_EQ(violations("cli/a.cc", "#include \"output.h\"\n").size(), 1U);
}

}  // namespace
}  // namespace lockstep
