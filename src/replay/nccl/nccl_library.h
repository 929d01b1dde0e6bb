// Loads NCCL, with its settings pinned before its first call.
//
// The library is libnccl.so.2 where the loader finds it, or the file that EPWEAVE_NCCL names. Bits
// depend on its settings only where it adds up (Sums::kLibrary): then those that choose the order
// of sums are pinned. Otherwise it moves bytes, as fast as it chooses. What was pinned, or was set
// otherwise by the user, is in the report.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "replay/nccl/nccl_api.h"

namespace epweave::replay::nccl {

// Who reduces: our kernels, in the documented order (transport.h); or NCCL, as in the user's job.
enum class Sums : std::uint8_t { kOwn, kLibrary };

struct Setting {
  std::string name, wanted, found;  // `found`: read back after it was set
  std::string taken;                // what NCCL says that it took; empty if it did not say
  bool is_pinned() const { return wanted == found; }
};

// Sets what the environment does not set yet, and reads all back. Before any thread starts.
std::vector<Setting> pin_settings(Sums sums);
// Settings of the environment that are not among those: NCCL_ variables but those that say where to
// log.
std::vector<Setting> list_other_settings(const std::vector<Setting>& pinned);

// What NCCL logs, in a file and a folder of its own, unless the environment says how NCCL logs
// (NCCL_DEBUG).
class Log {
 public:
  Log();  // before NCCL is loaded
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  // "NCCL_ALGO set by environment to Ring": fills Setting::taken.
  void read(std::vector<Setting>& settings) const;
  std::string list_warnings() const;  // a line each, each after a newline

 private:
  std::vector<std::string> lines() const;
  std::string path_;
};

struct Library {
  Api api{};
  int version = 0;   // loaded: 22809 is 2.28.9
  std::string path;  // as it was asked for
};

// Throws PassError (replay.no-nccl) saying what is missing.
Library load_library();

std::string version_text(int version);  // "2.28.9"

}  // namespace epweave::replay::nccl
