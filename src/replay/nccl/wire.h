// Framed messages between the processes of a run, over TCP.
//
// A frame is its kind, the length of its text, and the text (message.h). Nothing longer than the
// reader expects is read. What breaks this format is a WireError, as is a connection that fails.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "replay/values/message.h"

namespace epweave::replay::nccl {

using Clock = std::chrono::steady_clock;
inline double seconds_now() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

constexpr std::uint64_t kMostBytes = 1ULL << 30;  // of a frame between ranks

enum class FrameKind : std::uint64_t {
  kHello = 1,    // a rank to rank 0: who it is
  kHeard,        // rank 0 to a rank: it is of this job; all are waited for
  kRefused,      // rank 0 to a rank: why it may not take part
  kWelcome,      // to all, once all have come: NCCL's unique id
  kPost,         // a launch
  kReady,        // all members have launched: their contributions
  kFinished,     // the rank will launch no more in this run
  kAllFinished,  // no rank will
  kShare,        // what a rank tells all others between runs
  kShared,       // what all ranks told, by rank
  kAskTime,      // a rank asks what rank 0's clock shows
  kTime,         // what it shows
  kReport,       // what the rank computed
  kDone,         // all reports are there; rank 0 gets them
  kAbort,        // the rank failed, and why
  kFailed,       // all stop, and why
};

struct Frame {
  FrameKind kind = FrameKind::kHello;
  std::string text;
};

// A connection; closed with its owner.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(other.descriptor_), received_(std::move(other.received_)) {
    other.descriptor_ = -1;
  }
  Socket& operator=(Socket&& other) noexcept;
  ~Socket() { close(); }

  bool is_open() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }
  void close();
  void shut_down();  // wakes who reads or writes it
  std::string peer() const;

  // Throws WireError if the connection is broken.
  void send(FrameKind kind, std::string_view text);
  // The next frame; none if none is complete by then, or at once where `until` is in the past.
  // Throws WireError if the other side has closed, or says that the frame has more than most_bytes.
  std::optional<Frame> receive(Clock::time_point until, std::uint64_t most_bytes = kMostBytes);

 private:
  std::optional<Frame> take_frame(std::uint64_t most_bytes);
  int descriptor_ = -1;
  std::string received_;
};

// Waits until one can be read, or until then: which can.
std::vector<bool> find_readable(const std::vector<int>& descriptors, Clock::time_point until);

// Two ends within this process.
std::pair<Socket, Socket> make_socket_pair();

// Takes connections. Throws WireError naming host and port.
class Listener {
 public:
  explicit Listener(std::uint16_t port);  // 0: any
  std::uint16_t port() const { return port_; }
  int descriptor() const { return socket_.descriptor(); }
  // None if nobody came by then.
  Socket accept(Clock::time_point until);

 private:
  Socket socket_;
  std::uint16_t port_ = 0;
};

// Throws WireError saying why it cannot be reached now.
Socket connect_to(const std::string& host, std::uint16_t port);

// The addresses of this machine that others may reach, then the loopback.
std::vector<std::string> list_addresses();

}  // namespace epweave::replay::nccl
