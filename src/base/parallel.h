// The same work many times, on the machine's cores.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

namespace epweave {

// Calls visit(i) for each i < count, on as many threads as the machine has cores. Throws what the
// smallest i threw.
template <class Visit>
void for_each_in_parallel(std::size_t count, const Visit& visit) {
  std::vector<std::exception_ptr> errors(count);
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        visit(i);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    }
  };
  std::vector<std::thread> others;
  const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
  try {
    while (others.size() + 1 < std::min(cores, count)) others.emplace_back(work);
  } catch (const std::system_error&) {
    // The system gives no more of them: those that are there do the work.
  }
  work();
  for (std::thread& thread : others) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error != nullptr) std::rethrow_exception(error);
}

}  // namespace epweave
