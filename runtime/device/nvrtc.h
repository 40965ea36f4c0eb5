// NVIDIA's compiler for kernels at run time (NVRTC, libnvrtc), which comes with LibTorch's CUDA
// half. It is loaded on demand: neither building nor starting the worker needs it, and compiling a
// kernel needs no GPU.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace lockstep::runtime {

// A kernel's source. All texts are literals of the program.
struct KernelText {
  struct Header {
    const char* name;  // as in the text's #include
    const char* text;
  };
  const char* name;
  const char* text;
  std::vector<Header> headers;
};

class Nvrtc {
 public:
  // Searches where the dynamic loader does, then in `folders`. The library stays loaded until the
  // process ends. Errors: no library, or one that is not NVRTC; lists where it was searched.
  static Result<Nvrtc> open(const std::vector<std::string>& folders = {});

  // Returns machine code (a cubin) for a real architecture ("sm_90": a device of compute capability
  // 9.0), and PTX for a virtual one ("compute_90"). Errors: an architecture that this NVRTC does
  // not know; a text that does not compile, with the compiler's log.
  Result<std::string> compile(const KernelText& kernel, const std::string& architecture) const;

  const std::string& file() const { return file_; }  // as the dynamic loader knows it

 private:
  // The calls of nvrtc.h that are used; 0 is success.
  using Program = void*;
  struct Calls {
    int (*create)(Program*, const char* text, const char* name, int headers,
                  const char* const* header_texts, const char* const* header_names);
    int (*compile)(Program, int options, const char* const*);
    int (*log_size)(Program, std::size_t*);
    int (*log)(Program, char*);
    int (*ptx_size)(Program, std::size_t*);
    int (*ptx)(Program, char*);
    int (*cubin_size)(Program, std::size_t*);
    int (*cubin)(Program, char*);
    int (*destroy)(Program*);
    const char* (*error_text)(int);
  };

  Nvrtc(const Calls& calls, std::string file) : calls_(calls), file_(std::move(file)) {}

  // A program's log, PTX or cubin, by the two calls for its size and its bytes.
  std::string fetch(Program program, int (*size)(Program, std::size_t*),
                    int (*bytes)(Program, char*)) const;

  Calls calls_;
  std::string file_;
};

}  // namespace lockstep::runtime
