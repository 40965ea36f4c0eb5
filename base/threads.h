// Work on several threads.
#pragma once

#include <cstddef>
#include <functional>

namespace lockstep {

// How many processors this process may use; at least 1.
std::size_t processors();

// Calls work(0) to work(threads - 1), each on a thread of its own, the first on the caller's, and
// returns when all have ended. Rethrows the exception of the lowest number, if there is one.
void on_threads(std::size_t threads, const std::function<void(std::size_t)>& work);

// Calls work(i) once for each i below `count`, in no order, on `threads` threads, at least one and
// at most `count`; each takes the next index when it is done with one. Exceptions as above.
void for_each_index_on(std::size_t threads, std::size_t count,
                       const std::function<void(std::size_t)>& work);

// The same on up to processors() threads. `elements`: what all of the work goes through together; a
// job of few is not worth a thread, which takes about as long to start as 10,000 of them.
void for_each_index(std::size_t count, std::size_t elements,
                    const std::function<void(std::size_t)>& work);

}  // namespace lockstep
