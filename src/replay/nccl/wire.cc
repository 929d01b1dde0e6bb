#include "replay/nccl/wire.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

namespace epweave::replay::nccl {
namespace {

constexpr std::size_t kHeader = 16;

int milliseconds_until(Clock::time_point until) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1 << 30));
}

// Of poll's: how many are ready.
int poll_until(std::vector<pollfd>& wanted, Clock::time_point until) {
  for (;;) {
    const int found = poll(wanted.data(), wanted.size(), milliseconds_until(until));
    if (found >= 0) return found;
    if (errno != EINTR) throw WireError(std::strerror(errno));
  }
}

bool wait_readable(int descriptor, Clock::time_point until) {
  std::vector<pollfd> wanted{{descriptor, POLLIN, 0}};
  return poll_until(wanted, until) > 0;
}

void send_at_once(int descriptor) {
  const int yes = 1;
  setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &yes,
             sizeof yes);  // fails on a socket pair, which has no delay
}

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this == &other) return *this;
  close();
  descriptor_ = other.descriptor_;
  received_ = std::move(other.received_);
  other.descriptor_ = -1;
  return *this;
}

void Socket::close() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

void Socket::shut_down() {
  if (descriptor_ >= 0) ::shutdown(descriptor_, SHUT_RDWR);
}

std::string Socket::peer() const {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  char host[NI_MAXHOST], port[NI_MAXSERV];
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (getpeername(descriptor_, generic, &size) != 0 ||
      getnameinfo(generic, size, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return "this process";
  return fmt::format("{}:{}", host, port);
}

void Socket::send(FrameKind kind, std::string_view text) {
  const std::string frame = Writer().number(static_cast<std::uint64_t>(kind)).text(text).take();
  std::string_view rest = frame;
  while (!rest.empty()) {
    const ssize_t sent = ::send(descriptor_, rest.data(), rest.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) throw WireError(fmt::format("the connection is broken: {}", std::strerror(errno)));
    rest.remove_prefix(static_cast<std::size_t>(sent));
  }
}

std::optional<Frame> Socket::take_frame(std::uint64_t most_bytes) {
  if (received_.size() < kHeader) return std::nullopt;
  const auto read_number = [this](std::size_t at) {
    return Reader(std::string_view(received_).substr(at)).number();
  };
  const std::uint64_t size = read_number(8);
  if (size > most_bytes) throw WireError("a message is too long");
  if (received_.size() - kHeader < size) return std::nullopt;
  Frame frame{static_cast<FrameKind>(read_number(0)), received_.substr(kHeader, size)};
  received_.erase(0, kHeader + size);
  return frame;
}

std::optional<Frame> Socket::receive(Clock::time_point until, std::uint64_t most_bytes) {
  for (;;) {
    if (auto frame = take_frame(most_bytes)) return frame;
    if (!wait_readable(descriptor_, until)) return std::nullopt;
    char bytes[65536];
    const ssize_t count = ::recv(descriptor_, bytes, sizeof bytes, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw WireError(fmt::format("the connection is broken: {}", std::strerror(errno)));
    if (count == 0) throw WireError("the other side has closed the connection");
    received_.append(bytes, static_cast<std::size_t>(count));
  }
}

std::vector<bool> find_readable(const std::vector<int>& descriptors, Clock::time_point until) {
  std::vector<pollfd> wanted;
  for (const int descriptor : descriptors) wanted.push_back({descriptor, POLLIN, 0});
  poll_until(wanted, until);
  std::vector<bool> readable;
  for (const pollfd& one : wanted) readable.push_back(one.revents != 0);
  return readable;
}

std::pair<Socket, Socket> make_socket_pair() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw WireError(std::strerror(errno));
  return {Socket(ends[0]), Socket(ends[1])};
}

Listener::Listener(std::uint16_t port) {
  socket_ = Socket(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const bool has_ipv6 = socket_.is_open();
  if (!has_ipv6) socket_ = Socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1, no = 0;
  setsockopt(socket_.descriptor(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(port);
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = htons(port);
  if (has_ipv6) setsockopt(socket_.descriptor(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
  auto* address = has_ipv6 ? reinterpret_cast<sockaddr*>(&six) : reinterpret_cast<sockaddr*>(&four);
  socklen_t size = has_ipv6 ? sizeof six : sizeof four;
  if (bind(socket_.descriptor(), address, size) != 0 || listen(socket_.descriptor(), 1024) != 0)
    throw WireError(fmt::format("port {} cannot be listened at: {}", port, std::strerror(errno)));
  getsockname(socket_.descriptor(), address, &size);
  port_ = ntohs(has_ipv6 ? six.sin6_port : four.sin_port);
}

Socket Listener::accept(Clock::time_point until) {
  if (!wait_readable(socket_.descriptor(), until)) return {};
  Socket made(accept4(socket_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC));
  if (made.is_open()) send_at_once(made.descriptor());
  return made;
}

Socket connect_to(const std::string& host, std::uint16_t port) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string service = std::to_string(port);
  if (const int error = getaddrinfo(host.c_str(), service.c_str(), &wanted, &found); error != 0)
    throw WireError(fmt::format("{}: {}", host, gai_strerror(error)));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  std::string problem = "it has no address";
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    Socket made(::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol));
    if (made.is_open() && ::connect(made.descriptor(), at->ai_addr, at->ai_addrlen) == 0) {
      send_at_once(made.descriptor());
      return made;
    }
    problem = std::strerror(errno);
  }
  throw WireError(fmt::format("{}:{}: {}", host, port, problem));
}

std::vector<std::string> list_addresses() {
  std::vector<std::string> addresses;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) == 0) {
    for (const ifaddrs* at = all; at != nullptr; at = at->ifa_next) {
      if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != AF_INET) continue;
      if ((at->ifa_flags & IFF_UP) == 0 || (at->ifa_flags & IFF_LOOPBACK) != 0) continue;
      char text[INET_ADDRSTRLEN];
      if (inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(at->ifa_addr)->sin_addr, text,
                    sizeof text))
        addresses.emplace_back(text);
    }
    freeifaddrs(all);
  }
  addresses.emplace_back("127.0.0.1");
  return addresses;
}

}  // namespace epweave::replay::nccl
