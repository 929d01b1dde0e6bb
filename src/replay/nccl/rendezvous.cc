#include "replay/nccl/rendezvous.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <thread>
#include <utility>

#include "base/error.h"

namespace epweave::replay::nccl {
namespace {

constexpr std::string_view kMagic = "epweave rendezvous 2";
constexpr std::chrono::milliseconds kRetry{50};
constexpr std::uint64_t kHelloBytes = 1 << 16;
constexpr std::size_t kMostStrangers = 64;  // beside as many as there are ranks
// To say who one is, and to be heard where several ports may be rank 0's.
constexpr std::chrono::seconds kPatience{5};

[[noreturn]] void fail(const std::string& problem, const std::string& remedy) {
  throw PassError("replay.rendezvous", problem, Site{}, remedy);
}

double seconds(std::chrono::milliseconds time) {
  return std::chrono::duration<double>(time).count();
}

std::string make_nonce() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

// Who comes.
struct Hello {
  std::uint64_t rank = 0, ranks = 0;
  std::string job, nonce, program;

  std::string encode() const {
    return Writer().text(kMagic).number(rank).number(ranks).text(job).text(nonce).text(program).take();
  }
  static std::optional<Hello> decode(const Frame& frame) {
    if (frame.kind != FrameKind::kHello) return std::nullopt;
    Reader reader(frame.text);
    if (reader.text() != kMagic) return std::nullopt;
    Hello hello;
    hello.rank = reader.number();
    hello.ranks = reader.number();
    hello.job = reader.text();
    hello.nonce = reader.text();
    hello.program = reader.text();
    return hello;
  }
};

// Written whole under a name that nobody can know before, for this user alone, then renamed: no
// link is followed.
bool replace_file(const std::string& path, std::string_view text) {
  std::string temporary = path + ".XXXXXX";
  const int file = mkostemp(temporary.data(), O_CLOEXEC);
  if (file < 0) return false;
  const bool is_written = write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (close(file) == 0 && is_written && std::rename(temporary.c_str(), path.c_str()) == 0) return true;
  std::remove(temporary.c_str());
  return false;
}

// The file where rank 0 says where it listens; removed with its owner.
class MeetingFile {
 public:
  MeetingFile(std::string path, std::uint16_t port, const std::string& nonce) : path_(std::move(path)) {
    std::string text = fmt::format("{}\n{}\n{}\n", kMagic, nonce, port);
    for (const std::string& address : list_addresses()) text += address + "\n";
    if (!replace_file(path_, text))
      fail(fmt::format("the rendezvous file {} cannot be written", path_),
           "name a file in a folder that exists");
  }
  ~MeetingFile() { std::remove(path_.c_str()); }
  MeetingFile(const MeetingFile&) = delete;
  MeetingFile& operator=(const MeetingFile&) = delete;

 private:
  std::string path_;
};

// --- rank 0 ---

class Host {
 public:
  Host(const RankPlace& place, const RendezvousOptions& options)
      : place_(place), options_(options), until_(Clock::now() + options.deadline.least) {}

  Connections run() {
    connections_.of_rank.resize(place_.ranks);
    auto [here, there] = make_socket_pair();
    connections_.to_coordinator = std::move(here);
    connections_.of_rank[0] = std::move(there);
    if (place_.ranks > 1) wait_for_all();
    connections_.ticket = options_.make_ticket();
    for (Rank rank = 1; rank < place_.ranks; ++rank)
      connections_.of_rank[rank].send(FrameKind::kWelcome, connections_.ticket);
    return std::move(connections_);
  }

 private:
  void wait_for_all() {
    Listener listener = listen();
    std::optional<MeetingFile> file;
    if (!place_.file.empty()) {
      nonce_ = make_nonce();
      file.emplace(place_.file, listener.port(), nonce_);
    }
    while (!missing().empty()) {
      if (Clock::now() >= until_) give_up_waiting();
      hear_who_comes(listener);
    }
  }

  // At the first port that is free, of those that the others try.
  Listener listen() {
    std::string problem;
    for (std::uint16_t i = 0; i < place_.ports; ++i) {
      try {
        return Listener(static_cast<std::uint16_t>(place_.port + i));
      } catch (const WireError& error) {
        if (problem.empty()) problem = error.what();
      }
    }
    if (place_.ports > 1) problem += fmt::format(", nor can the {} ports behind it", place_.ports - 1);
    fail(fmt::format("rank 0: {}", problem), "give another port: --rendezvous HOST:PORT, or MASTER_PORT");
  }

  // Who has connected and not said who it is. None holds up the others: each has its own limit.
  struct Stranger {
    Socket socket;
    Clock::time_point until;
  };

  void hear_who_comes(Listener& listener) {
    std::vector<int> descriptors{listener.descriptor()};
    Clock::time_point until = until_;
    for (const Stranger& stranger : strangers_) {
      descriptors.push_back(stranger.socket.descriptor());
      until = std::min(until, stranger.until);
    }
    const std::vector<bool> readable = find_readable(descriptors, until);
    std::vector<Stranger> strangers = std::exchange(strangers_, {});
    for (std::size_t i = 0; i < strangers.size(); ++i) {
      if (readable[i + 1]) hear(strangers[i]);
      if (strangers[i].socket.is_open() && Clock::now() < strangers[i].until)
        strangers_.push_back(std::move(strangers[i]));
    }
    if (!readable[0]) return;
    // One connection in place of the oldest where there are more than ranks that may still come.
    if (strangers_.size() >= place_.ranks + kMostStrangers) strangers_.erase(strangers_.begin());
    Socket socket = listener.accept(Clock::now());
    if (socket.is_open()) strangers_.push_back({std::move(socket), Clock::now() + kPatience});
  }

  // Its socket is closed or moved away unless more is to come.
  void hear(Stranger& stranger) {
    try {
      const auto frame = stranger.socket.receive(Clock::now(), kHelloBytes);
      if (frame) admit(std::exchange(stranger.socket, Socket()), *frame);
    } catch (const WireError&) {
      // Somebody who is no rank, or who went away: the one that is missed is named at the deadline.
      stranger.socket.close();
    }
  }

  std::vector<Rank> missing() const {
    std::vector<Rank> ranks;
    for (Rank rank = 0; rank < place_.ranks; ++rank)
      if (!connections_.of_rank[rank].is_open()) ranks.push_back(rank);
    return ranks;
  }

  [[noreturn]] void refuse_all(const std::string& problem, const std::string& remedy) {
    for (Socket& socket : connections_.of_rank) {
      try {
        if (socket.is_open()) socket.send(FrameKind::kRefused, Writer().text(problem).text(remedy).take());
      } catch (const WireError&) {
      }
    }
    fail(problem, remedy);
  }

  [[noreturn]] void give_up_waiting() {
    const auto ranks = missing();
    refuse_all(
        fmt::format("{} {} of {} did not come within {} s (--deadline)", ranks.size() == 1 ? "rank" : "ranks",
                    fmt::join(ranks, ", "), place_.ranks, seconds(options_.deadline.least)),
        "see whether these processes were started, and reach the host of rank 0");
  }

  // A rank that has gone away may come again.
  bool is_there(Rank rank) {
    Socket& socket = connections_.of_rank[rank];
    if (rank == 0 || !socket.is_open()) return socket.is_open();
    try {
      socket.receive(Clock::now(), kHelloBytes);
    } catch (const WireError&) {
      socket.close();
    }
    return socket.is_open();
  }

  void admit(Socket socket, const Frame& frame) {
    const auto hello = Hello::decode(frame);
    if (!hello) return;
    if (hello->job != place_.job || hello->nonce != nonce_) {
      socket.send(FrameKind::kRefused,
                  Writer().text("").text("").take());  // of another job: it looks elsewhere
      return;
    }
    const std::string from = socket.peer();
    std::string problem;
    if (hello->ranks != place_.ranks)
      problem = fmt::format("rank {} ({}) is one of {} ranks, rank 0 one of {}", hello->rank, from,
                            hello->ranks, place_.ranks);
    else if (hello->rank >= place_.ranks)
      problem = fmt::format("rank {} ({}) is not one of {} ranks", hello->rank, from, place_.ranks);
    else if (is_there(static_cast<Rank>(hello->rank)))
      problem = hello->rank == 0 ? fmt::format("rank 0 is there twice: this process, and {}", from)
                                 : fmt::format("rank {} is there twice: {}, and {}", hello->rank,
                                               connections_.of_rank[hello->rank].peer(), from);
    else if (hello->program != options_.program)
      problem = fmt::format("rank {} ({}) runs something else than rank 0: {}; rank 0: {}", hello->rank, from,
                            hello->program, options_.program);
    if (!problem.empty()) {
      const std::string remedy = "start every rank with the same command, and each rank once";
      socket.send(FrameKind::kRefused, Writer().text(problem).text(remedy).take());
      refuse_all(problem, remedy);
    }
    socket.send(FrameKind::kHeard, "");
    connections_.of_rank[hello->rank] = std::move(socket);
  }

  const RankPlace& place_;
  const RendezvousOptions& options_;
  Clock::time_point until_;
  std::string nonce_;
  std::vector<Stranger> strangers_;
  Connections connections_;
};

// --- the others ---

class Guest {
 public:
  Guest(const RankPlace& place, const RendezvousOptions& options)
      : place_(place), options_(options), until_(Clock::now() + options.deadline.least) {}

  Connections run() {
    for (;;) {
      Connections connections;
      if (place_.file.empty() ? come_by_port(connections) : come_by_file(connections)) return connections;
      if (Clock::now() >= until_) give_up();
      std::this_thread::sleep_for(kRetry);
    }
  }

 private:
  [[noreturn]] void give_up() const {
    if (place_.file.empty())
      fail(fmt::format("rank {}: rank 0 does not answer within {} s (--deadline): {}", place_.rank,
                       seconds(options_.deadline.least), problem_),
           "see whether rank 0 was started, and whether its host and port can be reached");
    fail(fmt::format("rank {}: the rendezvous file {} leads nowhere within {} s (--deadline): {}",
                     place_.rank, place_.file, seconds(options_.deadline.least), problem_),
         "see whether rank 0 was started with the same file; remove a file that an earlier run left");
  }

  // Rank 0 listens at the first of the ports that was free.
  bool come_by_port(Connections& connections) {
    std::string problem;
    for (std::uint16_t i = 0; i < place_.ports; ++i) {
      if (come_to(place_.host, static_cast<std::uint16_t>(place_.port + i), "", connections)) return true;
      if (problem.empty()) problem = problem_;
    }
    problem_ = problem;
    return false;
  }

  bool come_by_file(Connections& connections) {
    std::ifstream file(place_.file);
    std::string magic, nonce, port, address;
    if (!file) {
      problem_ = "it is not there";
      return false;
    }
    std::getline(file, magic);
    std::getline(file, nonce);
    std::getline(file, port);
    if (magic != kMagic || port.empty() || port.find_first_not_of("0123456789") != std::string::npos ||
        port.size() > 5) {
      problem_ = "it is no rendezvous file";
      return false;
    }
    while (std::getline(file, address))
      if (come_to(address, static_cast<std::uint16_t>(std::stoi(port)), nonce, connections)) return true;
    return false;
  }

  bool come_to(const std::string& host, std::uint16_t port, const std::string& nonce,
               Connections& connections) {
    try {
      Socket socket = connect_to(host, port);
      const Hello hello{place_.rank, place_.ranks, place_.job, nonce, options_.program};
      socket.send(FrameKind::kHello, hello.encode());
      // What listens at one of several ports may be another program, which need not answer.
      auto frame = socket.receive(place_.ports > 1 ? Clock::now() + kPatience : until_);
      // Rank 0 says who is missing; it is given time to say so.
      if (frame && frame->kind == FrameKind::kHeard) frame = socket.receive(until_ + std::chrono::seconds(2));
      if (!frame) {
        problem_ = fmt::format("{}:{} does not answer", host, port);
        return false;
      }
      if (frame->kind == FrameKind::kRefused) return refuse(*frame, fmt::format("{}:{}", host, port));
      if (frame->kind != FrameKind::kWelcome) throw WireError(fmt::format("{}:{} is no rank 0", host, port));
      connections.to_coordinator = std::move(socket);
      connections.ticket = frame->text;
      return true;
    } catch (const WireError& error) {
      problem_ = error.what();
      return false;
    }
  }

  bool refuse(const Frame& frame, const std::string& where) {
    Reader reader(frame.text);
    const std::string problem = reader.text(), remedy = reader.text();
    if (!problem.empty()) fail(problem, remedy);
    problem_ = fmt::format("at {} is rank 0 of another job", where);
    return false;
  }

  const RankPlace& place_;
  const RendezvousOptions& options_;
  Clock::time_point until_;
  std::string problem_;
};

}  // namespace

Connections meet(const RankPlace& place, const RendezvousOptions& options) {
  return place.rank == 0 ? Host(place, options).run() : Guest(place, options).run();
}

}  // namespace epweave::replay::nccl
