// Large pages for what a program is about to allocate.
//
// The first access to a page of 4 KiB takes the kernel a microsecond or more on a virtual machine:
// a tenth to a third of the time in which the dumps of a thousand ranks are read. Pages of 2 MiB
// cost a small part of that. Linux gives them to memory that asks (madvise(2), MADV_HUGEPAGE), and
// glibc's malloc asks only where the environment says so (GLIBC_TUNABLES, glibc.malloc.hugetlb).
#pragma once

#include <cstddef>

namespace lockstep {

// Has malloc serve the next `bytes` or so of the calling thread from large pages. A hint: nothing
// is taken from the system before it is used, and where the C library or the kernel does not go
// along, nothing changes. A thread other than the first gets at most 60 MiB (an arena of glibc has
// 64). Memory that is freed stays with the process afterwards. O(1).
void expect_allocations(std::size_t bytes);

}  // namespace lockstep
