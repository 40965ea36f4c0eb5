// The threads on which a transport carries calls out, at the end of a Python program.
#pragma once

#include <chrono>

namespace lockstep::runtime {

// Waits until Gloo's threads have nothing left to do, but not longer than `most`.
//
// Such a thread wakes whoever waits for a call, and lets go of the call afterwards. If that was the
// program's last, Python may be ending by then; and where what the thread releases belongs to
// Python, it asks for Python's lock. Python answers a thread that asks so late by ending it, which
// C++ answers with std::terminate(): a job that had done all its work dies of SIGABRT. It can
// happen without a recorder, too; with one the thread has more to do before it lets go.
//
// Whether a thread still has something to do is read from its state: one that waits for work
// sleeps, one that was only stopped in favour of others does not.
void wait_for_transport_threads(std::chrono::milliseconds most);

}  // namespace lockstep::runtime
