// Stacks of a job's processes, and in them the frame that holds each one up. Three forms, one
// process in a file or several:
//
//   py-spy dump --pid 12          Process 12: python train.py
//                                 Thread 12 (idle): "MainThread"
//                                     wait (threading.py:320)
//   faulthandler, PyTorch's       Thread 0x00007f01 (most recent call first):
//   debug server (/stacks)          File "train.py", line 12 in train
//   gdb -p 12 -batch -ex "thread  Thread 1 (Thread 0x7f01 (LWP 12) "python"):
//       apply all bt"             #0  0x00007f01 in syscall () from /lib/libc.so.6
//
// Of a process the main thread counts: py-spy's "MainThread" (else its first), faulthandler's
// "Current thread" (else its last), gdb's thread 1. Whose it is, the file's name tells, a heading
// "Rank 3: …" (the debug server's pages and dumps), or the process id.
//
// What a stack cannot tell: since when, and whether the process goes on meanwhile.
#pragma once

#include "trace/evidence/evidence.h"

namespace lockstep::trace {

EvidenceSource stack_source();

}  // namespace lockstep::trace
