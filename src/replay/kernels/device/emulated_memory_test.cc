// Memory that the host cannot touch.
#include "replay/kernels/device/emulated_memory.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstring>
#include <memory>
#include <string>

#include "base/error.h"
#include "replay/kernels/device/emulated.h"

namespace epweave::replay::device {
namespace {

// How a process of its own ends that calls `f`, and what it prints to standard error.
struct Ended {
  int status = 0;
  std::string message;
};
template <class F>
Ended run_apart(const F& f) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    f();
    _exit(0);
  }
  close(ends[1]);
  Ended ended;
  char buffer[256];
  for (ssize_t count; (count = read(ends[0], buffer, sizeof buffer)) > 0;)
    ended.message.append(buffer, static_cast<std::size_t>(count));
  close(ends[0]);
  waitpid(child, &ended.status, 0);
  return ended;
}

}  // namespace

TEST_CASE("hidden memory is the device's: a copy reads it, the host's own access ends the process") {
  const auto touch = [](HostAccess access, bool is_touched) {
    const std::unique_ptr<DeviceApi> api = make_emulated_device(Emulation::kLazy, access);
    void* data = nullptr;
    Stream stream = nullptr;
    unsigned char byte = 0;
    const bool is_right =
        api->make_stream(Priority::kNormal, &stream) == nullptr && api->allocate(1000, &data) == nullptr &&
        api->fill(stream, data, 7, 1000) == nullptr &&
        api->copy_out(stream, &byte, static_cast<std::byte*>(data) + 999, 1) == nullptr && byte == 7;
    if (!is_right) _exit(3);
    if (is_touched && *static_cast<volatile unsigned char*>(data) != 7) _exit(4);
  };
  for (const bool is_touched : {false, true})
    CHECK(run_apart([&] { touch(HostAccess::kAlways, is_touched); }).status == 0);
  CHECK(run_apart([&] { touch(HostAccess::kHidden, false); }).status == 0);
  const Ended ended = run_apart([&] { touch(HostAccess::kHidden, true); });
  CHECK((WIFSIGNALED(ended.status) && WTERMSIG(ended.status) == SIGABRT));
  CHECK(ended.message ==
        "epweave: host code touched memory of the emulated device (EPWEAVE_EMULATED_MEMORY=hidden), or an "
        "address that is none\n");
}

TEST_CASE("whether memory is hidden is read whole or refused") {
  CHECK(read_host_access(nullptr) == HostAccess::kAlways);
  CHECK(read_host_access("") == HostAccess::kAlways);
  CHECK(read_host_access("hidden") == HostAccess::kHidden);
  for (const char* wrong : {"unreadable", "hidden ", "1"})
    CHECK_THROWS_AS(read_host_access(wrong), UsageError);
}

}  // namespace epweave::replay::device
