#include "memory.h"

#include <cstdlib>

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__)
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <limits>
#endif

namespace epweave::cli {

void prepare_memory() {
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__)
  constexpr int kReserved = std::numeric_limits<int>::max();  // addresses; memory follows as it is touched
  constexpr int kStep = 64 << 20;                             // for what goes beyond
  constexpr std::size_t kForcesGrowth = 4 << 20;
  mallopt(M_MMAP_THRESHOLD, kReserved);
  mallopt(M_TRIM_THRESHOLD, kReserved);
  mallopt(M_TOP_PAD, kReserved);
  // Freed small pieces are merged with their neighbours at once. Else malloc merges all there are,
  // in the middle of whatever asks for a large piece next.
  mallopt(M_MXFAST, 0);
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<std::uintptr_t>(sbrk(0)) + page - 1) / page * page;
  void* volatile grown = std::malloc(kForcesGrowth);  // volatile: a compiler may leave out the pair
  std::free(grown);
  const auto end = reinterpret_cast<std::uintptr_t>(sbrk(0));
  // A wish: without large pages the program works the same.
  if (end > begin) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
  mallopt(M_TOP_PAD, kStep);
#endif
}

}  // namespace epweave::cli
