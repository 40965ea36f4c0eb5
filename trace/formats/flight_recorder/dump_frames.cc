#include "trace/formats/flight_recorder/dump_frames.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include <fmt/format.h>

#include "trace/formats/flight_recorder/names.h"

namespace lockstep::trace {

namespace {

constexpr std::size_t kLongestStack = 16384;    // bytes of a stack's text
constexpr std::size_t kLongestLocation = 1024;  // bytes of a path or function name

// Whose code a frame is, from what says least about the program to what says most.
enum class Origin : std::uint8_t { library, package, program };

// `file`: the frame's path. library: PyTorch and Python; package: another installed one (a trainer,
// a wrapper of torch.distributed).
Origin origin_of(std::string_view file) {
  constexpr std::array<std::string_view, 4> kLibraries = {"/torch/", "/lib/python3", "<frozen ",
                                                          "torch/csrc"};
  const bool installed = file.find("-packages/") != std::string_view::npos;
  for (const std::string_view library : kLibraries) {
    if (file.find(library) == std::string_view::npos) continue;
    if (library == "/lib/python3" && installed) continue;  // /lib/python3.12/site-packages/…
    return Origin::library;
  }
  if (file.ends_with("distributed_c10d.py") || file.ends_with("c10d_logger.py"))
    return Origin::library;
  // What pip puts into bin/ ("litgpt") only calls an installed package.
  const std::size_t folder_end = file.rfind('/');
  const bool starter = folder_end != std::string_view::npos && !file.ends_with(".py") &&
                       file.substr(0, folder_end).ends_with("/bin");
  return installed || starter ? Origin::package : Origin::program;
}

// Whether the file holds torch.distributed's functions, each of which issues one kind of call.
bool is_of_collectives(std::string_view file) {
  return file.ends_with("distributed_c10d.py") || file.ends_with("_functional_collectives.py");
}

}  // namespace

// A collision of two hashes would show a wrong stack, nothing worse.
DumpFrames::Location DumpFrames::location(std::span<const DataTree::Value> frames) {
  if (frames.empty() || !visits_.spend(frames.size())) return {};
  std::uint64_t hash = frames.size();
  for (const DataTree::Value& frame : frames)
    hash = hash * 0x9e3779b97f4a7c15U + frame.number() + 1;
  const auto [known, is_new] = known_.try_emplace(hash);
  if (is_new) known->second = read(frames);
  return known->second;
}

DumpFrames::Location DumpFrames::read(std::span<const DataTree::Value> frames) {
  std::string stack;
  std::string at;
  std::string first;
  std::string_view function;
  Origin best = Origin::library;
  for (const DataTree::Value& frame : frames) {
    if (!visits_.spend(tree_.pairs(frame).size())) break;
    const DataTree::Value* const file = tree_.find(frame, "filename");
    const DataTree::Value* const line = tree_.find(frame, "line");
    const DataTree::Value* const name = tree_.find(frame, "name");
    if (file == nullptr) continue;
    const std::string_view path = tree_.text(*file).substr(0, kLongestLocation);
    std::string location(path);
    if (line != nullptr) location += fmt::format(":{}", line->integer(0));
    if (first.empty()) first = location;
    if (const Origin origin = origin_of(path); origin > best) {
      at = location;
      best = origin;
    }
    // The innermost that is an operation: all_gather() of all_gather_object().
    if (function.empty() && name != nullptr && is_of_collectives(path) &&
        op_of_function(tree_.text(*name)))
      function = tree_.text(*name);
    if (stack.size() > kLongestStack) break;
    stack += location;
    if (name != nullptr) {
      stack += " ";
      stack += tree_.text(*name).substr(0, kLongestLocation);
    }
    stack += "\n";
  }
  if (at.empty()) at = first;  // nothing but library frames
  return {tables_.strings.intern(at), tables_.strings.intern(stack), function};
}

}  // namespace lockstep::trace
