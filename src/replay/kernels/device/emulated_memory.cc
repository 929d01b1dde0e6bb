#include "replay/kernels/device/emulated_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string_view>

#include "base/error.h"

namespace epweave::replay::device {
namespace {

constexpr std::size_t kAlignment = 512;  // of a GPU's allocations, at least

std::size_t round_up(std::size_t bytes, std::size_t to) {
  return (bytes + to - 1) / to * to;
}

// Calls nothing that a signal handler may not. Only hidden pages, and what is no memory at all,
// bring a process here.
void report_access(int) {
  constexpr std::string_view kMessage =
      "epweave: host code touched memory of the emulated device (EPWEAVE_EMULATED_MEMORY=hidden), or an "
      "address that is none\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, kMessage.data(), kMessage.size());
  std::signal(SIGABRT, SIG_DFL);
  std::abort();
}

}  // namespace

HostAccess read_host_access(const char* text) {
  const std::string_view all = text == nullptr ? "" : text;
  if (all.empty()) return HostAccess::kAlways;
  if (all != "hidden") throw UsageError(fmt::format("{}: '{}' is not 'hidden'", kMemoryVariable, all));
  return HostAccess::kHidden;
}

EmulatedMemory::EmulatedMemory(HostAccess access) : access_(access) {
  if (access == HostAccess::kHidden) std::signal(SIGSEGV, report_access);
}

EmulatedMemory::~EmulatedMemory() {
  for (const auto& [data, bytes] : blocks_) munmap(data, bytes);
}

void* EmulatedMemory::allocate(std::size_t bytes) {
  if (access_ == HostAccess::kAlways) return std::aligned_alloc(kAlignment, round_up(bytes, kAlignment));
  const std::size_t pages = round_up(bytes, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
  const std::lock_guard lock(mutex_);
  const int protection = working_ != 0 ? PROT_READ | PROT_WRITE : PROT_NONE;
  void* data = mmap(nullptr, pages, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return nullptr;
  blocks_.emplace(data, pages);
  return data;
}

void EmulatedMemory::release(void* data) {
  if (access_ == HostAccess::kAlways) return std::free(data);
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(data);
  if (found == blocks_.end()) return;
  munmap(data, found->second);
  blocks_.erase(found);
}

void EmulatedMemory::protect_all(int protection) {
  for (const auto& [data, bytes] : blocks_) EPWEAVE_CHECK(mprotect(data, bytes, protection) == 0);
}

EmulatedMemory::Work::Work(EmulatedMemory& memory) : memory_(memory) {
  if (memory_.access_ == HostAccess::kAlways) return;
  const std::lock_guard lock(memory_.mutex_);
  if (memory_.working_++ == 0) memory_.protect_all(PROT_READ | PROT_WRITE);
}

EmulatedMemory::Work::~Work() {
  if (memory_.access_ == HostAccess::kAlways) return;
  const std::lock_guard lock(memory_.mutex_);
  if (--memory_.working_ == 0) memory_.protect_all(PROT_NONE);
}

}  // namespace epweave::replay::device
