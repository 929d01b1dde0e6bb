#include "replay/nccl/testing/socket_communicator.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

namespace epweave::replay::nccl {
namespace {

struct Address {
  sockaddr_un address{};
  socklen_t size = 0;
};

// In the abstract namespace: nothing is left behind.
Address address_of(const std::string& comm, int rank) {
  Address made;
  made.address.sun_family = AF_UNIX;
  const std::string name = comm + "/" + std::to_string(rank);
  std::memcpy(made.address.sun_path + 1, name.data(), name.size());
  made.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return made;
}

}  // namespace

bool transfer(CommTag& comm, int peer, void* data, std::size_t bytes, short direction) {
  auto* at = static_cast<char*>(data);
  while (bytes != 0) {
    if (comm.is_aborted) return false;
    pollfd wanted{peer, direction, 0};
    if (poll(&wanted, 1, static_cast<int>(kLook.count())) <= 0) continue;
    const ssize_t moved = direction == POLLIN ? recv(peer, at, bytes, MSG_DONTWAIT)
                                              : send(peer, at, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (moved < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (moved <= 0) return false;
    at += moved;
    bytes -= static_cast<std::size_t>(moved);
  }
  return true;
}

bool connect_all(CommTag& comm) {
  comm.peers.assign(static_cast<std::size_t>(comm.size), -1);
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const Address own = address_of(comm.name, comm.rank);
  bool is_connected = bind(listener, reinterpret_cast<const sockaddr*>(&own.address), own.size) == 0 &&
                      listen(listener, comm.size) == 0;
  for (int rank = 0; rank < comm.rank && is_connected; ++rank) {
    const Address other = address_of(comm.name, rank);
    const int peer = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    comm.peers[static_cast<std::size_t>(rank)] = peer;
    while (connect(peer, reinterpret_cast<const sockaddr*>(&other.address), other.size) != 0 &&
           !comm.is_aborted)
      std::this_thread::sleep_for(kLook);
    std::int32_t number = comm.rank;
    is_connected = transfer(comm, peer, &number, sizeof number, POLLOUT);
  }
  for (int i = comm.rank + 1; i < comm.size && is_connected; ++i) {
    pollfd wanted{listener, POLLIN, 0};
    while (poll(&wanted, 1, static_cast<int>(kLook.count())) <= 0 && !comm.is_aborted) {
    }
    const int peer = comm.is_aborted ? -1 : accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    std::int32_t number = 0;
    is_connected = peer >= 0 && transfer(comm, peer, &number, sizeof number, POLLIN) && number > comm.rank &&
                   number < comm.size;
    if (is_connected) comm.peers[static_cast<std::size_t>(number)] = peer;
  }
  close(listener);
  return is_connected;
}

std::shared_ptr<CommTag> split(CommTag& parent, SplitPart own, int number) {
  std::vector<SplitPart> parts(static_cast<std::size_t>(parent.size));
  parts[static_cast<std::size_t>(parent.rank)] = own;
  for (int rank = 0; rank < parent.size; ++rank)
    if (rank != parent.rank &&
        !transfer(parent, parent.peers[static_cast<std::size_t>(rank)], &own, sizeof own, POLLOUT))
      return nullptr;
  for (int rank = 0; rank < parent.size; ++rank)
    if (rank != parent.rank && !transfer(parent, parent.peers[static_cast<std::size_t>(rank)],
                                         &parts[static_cast<std::size_t>(rank)], sizeof own, POLLIN))
      return nullptr;
  std::vector<std::pair<int, int>> members;  // key, rank
  for (int rank = 0; rank < parent.size; ++rank)
    if (const SplitPart& part = parts[static_cast<std::size_t>(rank)]; part.color == own.color)
      members.emplace_back(part.key, rank);
  std::sort(members.begin(), members.end());
  auto made = std::make_shared<CommTag>();
  made->name = parent.name + "." + std::to_string(number) + "." + std::to_string(own.color);
  made->size = static_cast<int>(members.size());
  made->rank = static_cast<int>(std::find(members.begin(), members.end(), std::pair(own.key, parent.rank)) -
                                members.begin());
  if (!connect_all(*made)) return nullptr;
  made->state = Result::kSuccess;
  return made;
}

}  // namespace epweave::replay::nccl
