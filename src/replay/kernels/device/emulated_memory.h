// Memory of the emulated device: of the host's allocator, or hidden from the host as a GPU's is.
// Hidden memory cannot be touched but while the device works; host code that reads or writes it
// ends the process with a message.
//
//   EPWEAVE_EMULATED_MEMORY=hidden epweave-replay run G --device emulated
//
// Pages are opened for all threads: while the device works for one rank, another rank's access goes
// unseen. With one rank each is seen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace epweave::replay::device {

inline constexpr const char* kMemoryVariable = "EPWEAVE_EMULATED_MEMORY";

enum class HostAccess : std::uint8_t { kAlways, kHidden };
// "hidden"; null or empty: always. Throws UsageError for anything else.
HostAccess read_host_access(const char* text);

class EmulatedMemory {
 public:
  explicit EmulatedMemory(HostAccess access);
  ~EmulatedMemory();
  EmulatedMemory(const EmulatedMemory&) = delete;
  EmulatedMemory& operator=(const EmulatedMemory&) = delete;

  // Null where there is no more.
  void* allocate(std::size_t bytes);
  void release(void* data);

  // The device works as long as one lives.
  class Work {
   public:
    explicit Work(EmulatedMemory& memory);
    ~Work();
    Work(const Work&) = delete;
    Work& operator=(const Work&) = delete;

   private:
    EmulatedMemory& memory_;
  };

 private:
  void protect_all(int protection);

  const HostAccess access_;
  std::mutex mutex_;
  std::map<void*, std::size_t> blocks_;  // that are hidden: bytes, whole pages
  int working_ = 0;
};

}  // namespace epweave::replay::device
