// Random programs of four ranks, most of them with a change on one rank, against what happens when
// they are run: a thread for each rank, sockets between them, waits that block. Whatever `verify
// --ranks` accepts runs to its end, and moves what every rank expects; whatever it refuses is
// stuck, or some rank gets what it did not expect. EPWEAVE_RANK_PROGRAMS=N begins at the seed N.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <random>
#include <system_error>
#include <thread>
#include <tuple>

#include "compare/ranks/verify_ranks.h"
#include "ir/text/text.h"

namespace epweave {
namespace {

constexpr int kRanks = 4;
constexpr int kPrograms = 3000;

using Members = std::vector<int>;
Members members_of(char group, int rank) {
  if (group == 'w') return {0, 1, 2, 3};
  if (group == 'e') return {rank / 2 * 2, rank / 2 * 2 + 1};
  return {rank % 2, rank % 2 + 2};
}

enum class Kind { kReduce, kGather, kScatter, kBroadcast, kExchange };

struct Call {
  Kind kind = Kind::kReduce;
  char group = 'w';
  std::string dtype = "f32", reduction = "sum";
  int source = 0, group_size = 1, rows = 4, columns = 2;
  std::vector<int> sends, receives;  // empty: equal shares
  // How it is written: of two tensors, over its operand, in a nested graph.
  bool is_of_two = false, writes = false, is_inside = false;

  bool is_coalesced() const { return is_of_two && kind != Kind::kBroadcast && kind != Kind::kExchange; }
  bool is_in_place() const { return writes && kind == Kind::kReduce; }
  bool is_nested() const { return is_inside && !is_coalesced(); }
};
struct Event {
  bool is_wait = false;
  int call = 0;
  bool is_nested = false;  // a wait in a nested graph
};
struct RandomProgram {
  std::vector<Call> calls;
  std::vector<Event> events;
};
using Programs = std::vector<RandomProgram>;

// ---------------------------------------------------------------------------------------------- as
// text

std::string type_of(const Call& call, int rows) {
  return fmt::format("{}[{}, {}]", call.dtype, rows, call.columns);
}
std::string type_of_result(const Call& call) {
  switch (call.kind) {
    case Kind::kReduce:
    case Kind::kBroadcast:
      return type_of(call, call.rows);
    case Kind::kGather:
      return type_of(call, call.rows * call.group_size);
    case Kind::kScatter:
      return type_of(call, call.rows / call.group_size);
    case Kind::kExchange:
      break;
  }
  const int received = std::accumulate(call.receives.begin(), call.receives.end(), 0);
  return type_of(call, call.receives.empty() ? call.rows : received);
}

// "_c10d_functional.all_reduce.default(%x0, "sum", "w")"
std::string print_launch(const Call& call, const std::string& operand) {
  const std::string coalesced = call.is_coalesced() ? "_coalesced" : "",
                    write = call.is_in_place() ? "_" : "";
  const auto print = [&](std::string_view op, const std::string& args) {
    return fmt::format("_c10d_functional.{}{}{}.default({}, {}\"{}\")", op, coalesced, write, operand, args,
                       call.group);
  };
  switch (call.kind) {
    case Kind::kReduce:
      return print("all_reduce", fmt::format("\"{}\", ", call.reduction));
    case Kind::kGather:
      return print("all_gather_into_tensor", fmt::format("{}, ", call.group_size));
    case Kind::kScatter:
      return print("reduce_scatter_tensor", fmt::format("\"{}\", {}, ", call.reduction, call.group_size));
    case Kind::kBroadcast:
      return print("broadcast", fmt::format("{}, ", call.source));
    case Kind::kExchange:
      break;
  }
  return print("all_to_all_single",
               fmt::format("[{}], [{}], ", fmt::join(call.receives, ", "), fmt::join(call.sends, ", ")));
}

// A call of a nested graph, whose only result is named; the graph is added to `bodies`.
std::string print_nested(std::string& bodies, const std::string& name, const std::string& operand,
                         const std::string& operand_type, const std::string& call, const std::string& type) {
  bodies += fmt::format("\ngraph of_{}\n  %i = placeholder : {}\n  %r = {} : {}\n  output([%r])\n", name,
                        operand_type, call, type);
  return fmt::format(
      "  %g_{0} = get_attr : _ attr=graph(of_{0})\n  %n_{0} = higher_order.invoke_subgraph(%g_{0}, "
      "\"of_{0}\", {1}) : [{2}]\n  %{0} = operator.getitem(%n_{0}, 0) : {2}\n",
      name, operand, type);
}

std::string print_call(const Call& call, int i, std::string& bodies) {
  const std::string type = type_of_result(call);
  if (call.is_nested())
    return print_nested(bodies, fmt::format("c{}", i), fmt::format("%x{}", i), type_of(call, call.rows),
                        print_launch(call, "%i"), type);
  if (!call.is_coalesced())
    return fmt::format("  %c{} = {} : {}\n", i, print_launch(call, fmt::format("%x{}", i)), type);
  return fmt::format("  %c{0} = {1} : [{2}, {2}]\n  %d{0} = operator.getitem(%c{0}, 1) : {2}\n", i,
                     print_launch(call, fmt::format("[%x{0}, %z{0}]", i)), type);
}

// Waits for the result, or for the memory that was written.
std::string print_wait(const Call& call, const Event& event, std::size_t number, std::string& bodies) {
  const std::string_view name =
      call.is_in_place() ? (call.is_coalesced() ? "z" : "x") : (call.is_coalesced() ? "d" : "c");
  const std::string waited = fmt::format("%{}{}", name, event.call), type = type_of_result(call);
  if (event.is_nested)
    return print_nested(bodies, fmt::format("w{}", number), waited, type,
                        "_c10d_functional.wait_tensor.default(%i)", type);
  return fmt::format("  %w{} = _c10d_functional.wait_tensor.default({})\n", number, waited);
}

std::string print_program(const RandomProgram& program, int rank) {
  std::string text = fmt::format("epweave text 1\ninfo rank = {}\ninfo world_size = {}\n", rank, kRanks);
  for (char group : {'w', 'e', 'f'})
    text += fmt::format("group {} ranks=[{}]\n", group, fmt::join(members_of(group, rank), ", "));
  text += "\ngraph\n";
  std::string bodies;
  for (std::size_t i = 0; i < program.calls.size(); ++i)
    for (const char* name : {"x", "z"})
      text += fmt::format("  %{}{} = placeholder : {}\n", name, i,
                          type_of(program.calls[i], program.calls[i].rows));
  for (std::size_t i = 0; i < program.events.size(); ++i) {
    const Event& event = program.events[i];
    const Call& call = program.calls[static_cast<std::size_t>(event.call)];
    text += event.is_wait ? print_wait(call, event, i, bodies) : print_call(call, event.call, bodies);
  }
  return text + "  output([])\n" + bodies;
}

// ----------------------------------------------------------------------------------------------
// run

enum class Launching { kGoesOn, kBlocks };

// What a rank sends to a member: what it launched, and its rows, of which only the bytes count.
struct Header {
  Kind kind = Kind::kReduce;
  std::array<char, 8> dtype = {}, reduction = {};
  int source = 0, rows = 0, columns = 0;
  bool is_coalesced = false;
};
std::array<char, 8> letters(const std::string& text) {
  std::array<char, 8> result = {};
  std::ranges::copy(text.substr(0, result.size()), result.begin());
  return result;
}
Header header_of(const Call& call) {
  return {call.kind, letters(call.dtype), letters(call.reduction), call.source,
          call.rows, call.columns,        call.is_coalesced()};
}
using Packet = std::vector<char>;
using Packets = std::map<int, Packet>;  // to each member

// A socket from each rank to each member of each of its groups, itself too: packets come whole, in
// the order in which they were sent. Whoever sends goes on.
class Wires {
 public:
  Wires() {
    for (const char group : {'w', 'e', 'f'})
      for (int from = 0; from < kRanks; ++from)
        for (const int to : members_of(group, from)) {
          std::array<int, 2> ends = {};
          if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
            throw std::system_error(errno, std::generic_category(), "socketpair");
          ends_[{group, from, to}] = ends;
        }
  }
  Wires(const Wires&) = delete;
  Wires& operator=(const Wires&) = delete;
  ~Wires() {
    for (const auto& [key, ends] : ends_)
      for (const int end : ends) ::close(end);
  }

  void send(char group, int from, int to, const Packet& packet) const {
    if (::send(ends_.at({group, from, to})[0], packet.data(), packet.size(), MSG_NOSIGNAL) < 0 &&
        errno != EPIPE)
      throw std::system_error(errno, std::generic_category(), "send");
  }
  // Where `to` finds what `from` sends.
  int end_of(char group, int from, int to) const { return ends_.at({group, from, to})[1]; }
  void cut() const {
    for (const auto& [key, ends] : ends_) ::shutdown(ends[1], SHUT_RDWR);
  }

  static bool has_packet(int end, int timeout_ms) {
    pollfd asked = {end, POLLIN, 0};
    return ::poll(&asked, 1, timeout_ms) > 0;
  }
  // None where the socket was cut.
  static std::optional<Packet> take(int end) {
    Packet packet(4096);
    const ssize_t size = ::recv(end, packet.data(), packet.size(), 0);
    if (size <= 0) return std::nullopt;
    packet.resize(static_cast<std::size_t>(size));
    return packet;
  }

 private:
  std::map<std::tuple<char, int, int>, std::array<int, 2>> ends_;
};

// The ranks' threads. A rank reads what was sent to it when it waits, and at its end.
class RandomJob {
 public:
  RandomJob(const Programs& programs, Launching launching) : programs_(programs), launching_(launching) {}

  // Whether every rank came to its end, and got what it expected.
  bool run() {
    std::vector<std::thread> threads;
    running_ = kRanks;
    for (int rank = 0; rank < kRanks; ++rank)
      threads.emplace_back([this, rank] {
        if (!run_rank(rank)) fail();
        const std::lock_guard lock(mutex_);
        --running_;
        fail_if_stuck();
      });
    for (std::thread& thread : threads) thread.join();
    return !is_wrong_;
  }

 private:
  // A rank's launches on a group, of which it has read what the members sent to some.
  struct Launches {
    std::vector<const Call*> calls;
    std::size_t read = 0;
  };

  bool run_rank(int rank) {
    const RandomProgram& program = programs_[at(rank)];
    std::map<char, Launches> groups;
    std::map<int, std::size_t> places;  // of a call among its group's launches
    for (const Event& event : program.events) {
      const Call& call = program.calls[at(event.call)];
      Launches& launches = groups[call.group];
      if (!event.is_wait) {
        places[event.call] = launches.calls.size();
        launches.calls.push_back(&call);
        const auto packets = write(rank, call, members_of(call.group, rank));
        if (!packets) return false;
        for (const auto& [member, packet] : *packets) wires_.send(call.group, rank, member, packet);
      }
      if ((event.is_wait || launching_ == Launching::kBlocks) &&
          !read(rank, call.group, launches, places.at(event.call) + 1))
        return false;
    }
    return std::ranges::all_of(groups, [&](auto& group) {
      return read(rank, group.first, group.second, group.second.calls.size());
    });
  }

  // What all members sent to the first `count` launches.
  bool read(int rank, char group, Launches& launches, std::size_t count) {
    for (; launches.read < count; ++launches.read)
      for (const int member : members_of(group, rank)) {
        const auto packet = receive(rank, wires_.end_of(group, member, rank));
        if (!packet || !is_expected(*launches.calls[launches.read], rank, *packet, member)) return false;
      }
    return true;
  }

  // A packet stays in its socket until its reader no longer counts as blocked.
  std::optional<Packet> receive(int rank, int end) {
    if (!Wires::has_packet(end, 0)) {
      {
        const std::lock_guard lock(mutex_);
        blocked_[rank] = end;
        fail_if_stuck();
      }
      Wires::has_packet(end, -1);
      const std::lock_guard lock(mutex_);
      blocked_.erase(rank);
    }
    return Wires::take(end);
  }

  void fail() {
    is_wrong_ = true;
    wires_.cut();
  }
  // With the lock held. Whoever is not blocked may send.
  void fail_if_stuck() {
    if (running_ > 0 && blocked_.size() == at(running_) &&
        std::ranges::none_of(blocked_, [](const auto& rank) { return Wires::has_packet(rank.second, 0); }))
      fail();
  }

  // What the rank sends to each member; none if it cannot.
  static std::optional<Packets> write(int rank, const Call& call, const Members& members) {
    const auto size = static_cast<int>(members.size());
    Packets packets;
    const bool reduces = call.kind == Kind::kReduce || call.kind == Kind::kScatter;
    if (reduces && call.reduction != "sum" && call.reduction != "avg" && call.reduction != "max") return {};
    if (call.kind == Kind::kBroadcast && std::ranges::find(members, call.source) == members.end()) return {};
    const bool has_size = call.kind == Kind::kGather || call.kind == Kind::kScatter;
    if (has_size && call.group_size != size) return {};
    const Header header = header_of(call);
    const auto pack = [&](int rows) {
      Packet packet(sizeof header + sizeof(float) * at(rows * call.columns));
      std::memcpy(packet.data(), &header, sizeof header);
      return packet;
    };
    if (call.kind == Kind::kExchange) {
      const std::optional<std::vector<int>> sends = table(call.sends, call.rows, size);
      if (!sends || !table(call.receives, call.rows, size) ||
          std::accumulate(sends->begin(), sends->end(), 0) != call.rows)
        return {};
      for (int i = 0; i < size; ++i) packets[members[at(i)]] = pack((*sends)[at(i)]);
      return packets;
    }
    const bool sends = call.kind != Kind::kBroadcast || rank == call.source;
    for (int member : members) packets[member] = pack(sends ? call.rows : 0);
    return packets;
  }
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }
  static std::optional<std::vector<int>> table(const std::vector<int>& given, int rows, int size) {
    if (given.empty() && rows % size == 0) return std::vector<int>(at(size), rows / size);
    if (given.size() != at(size)) return {};
    return given;
  }

  static bool is_expected(const Call& own, int receiver, const Packet& packet, int sender) {
    Header theirs;
    std::memcpy(&theirs, packet.data(), sizeof theirs);
    if (theirs.is_coalesced != own.is_coalesced()) return false;
    if (theirs.kind != own.kind || theirs.dtype != letters(own.dtype) || theirs.columns != own.columns)
      return false;
    const bool reduces = own.kind == Kind::kReduce || own.kind == Kind::kScatter;
    if (reduces && theirs.reduction != letters(own.reduction)) return false;
    if (own.kind == Kind::kBroadcast && theirs.source != own.source) return false;
    const Members members = members_of(own.group, receiver);
    const auto place = std::ranges::find(members, sender) - members.begin();
    const bool sends = own.kind != Kind::kBroadcast || sender == own.source;
    const int expected =
        own.kind == Kind::kExchange
            ? (*table(own.receives, own.rows, static_cast<int>(members.size())))[at(static_cast<int>(place))]
        : sends ? own.rows
                : 0;
    // Who sends nothing states its size all the same.
    if (own.kind == Kind::kBroadcast && theirs.rows != own.rows) return false;
    return packet.size() == sizeof theirs + sizeof(float) * at(expected * own.columns);
  }

  const Programs& programs_;
  const Launching launching_;
  const Wires wires_;
  std::mutex mutex_;
  std::map<int, int> blocked_;  // rank, and the socket that it looks at
  int running_ = 0;
  std::atomic<bool> is_wrong_ = false;
};

// ----------------------------------------------------------------------------------------------
// programs

class Maker {
 public:
  explicit Maker(std::uint32_t seed) : random_(seed) {}
  int below(int n) { return static_cast<int>(random_() % static_cast<std::uint32_t>(n)); }

  // The same on all ranks, but for what they exchange.
  Programs make() {
    Programs programs(kRanks);
    const int calls = 1 + below(5);
    for (int i = 0; i < calls; ++i) add_call(programs);
    std::vector<Event> events;
    for (int i = 0; i < calls; ++i) events.push_back({false, i, false});
    for (int i = 0; i < calls; ++i) {
      // Nobody waits, one does, or one does again.
      for (int waits = below(8) == 0 ? 0 : below(6) == 0 ? 2 : 1; waits > 0; --waits) {
        const auto launch =
            std::ranges::find_if(events, [&](const Event& e) { return !e.is_wait && e.call == i; }) -
            events.begin();
        const int behind = 1 + below(static_cast<int>(static_cast<long>(events.size()) - launch));
        events.insert(events.begin() + launch + behind, Event{true, i, false});
      }
    }
    for (RandomProgram& program : programs) {
      program.events = events;
      for (Event& event : program.events) event.is_nested = event.is_wait && below(4) == 0;
      for (Call& call : program.calls) {
        call.writes = below(3) == 0;
        call.is_inside = below(4) == 0;
      }
    }
    return programs;
  }

  void change(Programs& programs) {
    RandomProgram& program = programs[static_cast<std::size_t>(below(kRanks))];
    Call& call = program.calls[static_cast<std::size_t>(below(static_cast<int>(program.calls.size())))];
    switch (below(12)) {
      case 0:
        return void(call.dtype = below(2) == 0 ? "bf16" : "f32");
      case 1:
        return void(call.columns = 1 + below(3));
      case 2:
        return void(call.rows = 1 + below(8));
      case 3:
        return void(call.reduction = below(3) == 0 ? "summ" : below(2) == 0 ? "max" : "sum");
      case 4:
        return void(call.source = below(kRanks));
      case 5:
        return void(call.group_size = below(2) == 0 ? 2 : 4);
      case 6:
        return void(call.group = "wef"[below(3)]);
      case 7:
        return void(call.kind = below(2) == 0 ? Kind::kReduce : Kind::kGather);
      case 8:
        return change_table(call, below(2) == 0 ? call.sends : call.receives);
      case 9:
        return drop(program);
      default:
        return move(program);
    }
  }

 private:
  void add_call(Programs& programs) {
    Call call;
    call.kind = static_cast<Kind>(below(5));
    call.group = "wef"[below(3)];
    call.dtype = below(2) == 0 ? "f32" : "bf16";
    call.reduction = below(2) == 0 ? "sum" : "avg";
    call.group_size = call.group == 'w' ? 4 : 2;
    call.rows = call.group_size * (1 + below(2));
    call.columns = 1 + below(3);
    call.is_of_two = below(4) == 0;
    const bool has_tables = call.kind == Kind::kExchange && below(2) == 0;
    std::vector<std::vector<int>> sent(kRanks, std::vector<int>(kRanks));  // from, to
    for (std::vector<int>& row : sent)
      for (int& rows : row) rows = below(4);
    for (int rank = 0; rank < kRanks; ++rank) {
      Call own = call;
      const Members members = members_of(call.group, rank);
      own.source = members[0];
      if (has_tables) {
        for (int other : members) {
          own.sends.push_back(sent[static_cast<std::size_t>(rank)][static_cast<std::size_t>(other)]);
          own.receives.push_back(sent[static_cast<std::size_t>(other)][static_cast<std::size_t>(rank)]);
        }
        own.rows = std::accumulate(own.sends.begin(), own.sends.end(), 0);
      }
      programs[static_cast<std::size_t>(rank)].calls.push_back(std::move(own));
    }
  }

  void change_table(Call& call, std::vector<int>& table) {
    if (call.kind != Kind::kExchange) return;
    const int size = call.group == 'w' ? 4 : 2;
    if (table.empty() || below(3) == 0) {  // equal shares, listed on one rank
      table.assign(static_cast<std::size_t>(size), call.rows / size);
      if (below(2) == 0) return;
    }
    if (below(4) == 0) return table.clear();
    ++table[static_cast<std::size_t>(below(static_cast<int>(table.size())))];
    if (int& less = table[static_cast<std::size_t>(below(static_cast<int>(table.size())))]; less > 0) --less;
  }

  void drop(RandomProgram& program) {
    const int call = below(static_cast<int>(program.calls.size()));
    std::erase_if(program.events, [&](const Event& e) { return e.call == call; });
  }

  // One event goes elsewhere; a wait stays behind its launch.
  void move(RandomProgram& program) {
    std::vector<Event>& events = program.events;
    if (events.empty()) return;
    const auto from = below(static_cast<int>(events.size())), to = below(static_cast<int>(events.size()));
    const std::vector<Event> before = events;
    const Event event = events[static_cast<std::size_t>(from)];
    events.erase(events.begin() + from);
    events.insert(events.begin() + to, event);
    std::vector<bool> is_launched(program.calls.size());
    for (const Event& e : events) {
      if (e.is_wait && !is_launched[static_cast<std::size_t>(e.call)]) return void(events = before);
      is_launched[static_cast<std::size_t>(e.call)] = true;
    }
  }

  std::mt19937 random_;
};

RanksReport verify(const Programs& programs) {
  std::vector<RankProgram> read;
  for (int rank = 0; rank < kRanks; ++rank)
    read.push_back(list_rank_program(parse_text(print_program(programs[static_cast<std::size_t>(rank)], rank),
                                                fmt::format("rank {}", rank))));
  return verify_ranks(read);
}

TEST_CASE("random programs of four ranks do what verify_ranks says", "[repetitive]") {
  const char* env = std::getenv("EPWEAVE_RANK_PROGRAMS");
  const auto first = env == nullptr ? 0U : static_cast<std::uint32_t>(std::atoi(env));
  int right = 0;
  for (std::uint32_t seed = first; seed < first + kPrograms; ++seed) {
    Maker maker(seed);
    Programs programs = maker.make();
    for (int changes = maker.below(3); changes > 0; --changes) maker.change(programs);
    const RanksReport report = verify(programs);
    const bool runs =
        RandomJob(programs, Launching::kGoesOn).run() && RandomJob(programs, Launching::kBlocks).run();
    right += runs ? 1 : 0;
    INFO("seed " << seed << ": " << (runs ? "runs" : "does not run"));
    if (!report.violations.empty())
      INFO(report.violations[0].invariant << ": " << report.violations[0].message);
    if (runs != report.violations.empty())
      for (int rank = 0; rank < kRanks; ++rank)
        UNSCOPED_INFO(print_program(programs[static_cast<std::size_t>(rank)], rank));
    REQUIRE(runs == report.violations.empty());
  }
  CHECK(right > kPrograms / 4);
  CHECK(right < kPrograms * 3 / 4);
}

}  // namespace
}  // namespace epweave
