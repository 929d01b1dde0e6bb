#include "replay/nccl/coordinator.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <thread>

namespace epweave::replay::nccl {
namespace {

// How long reasons are gathered: a process that ends makes the others fail at almost the same time.
constexpr std::chrono::milliseconds kGathering{300};
// How long the ranks have to take the news.
constexpr std::chrono::seconds kLeaving{5};

}  // namespace

std::string encode(const Contribution& part) {
  return Writer()
      .number(static_cast<std::uint64_t>(part.kind))
      .text(part.what)
      .text(part.reduction)
      .number(static_cast<std::uint64_t>(part.source))
      .number(static_cast<std::uint64_t>(part.dtype))
      .numbers(part.sizes)
      .numbers(part.sends)
      .numbers(part.receives)
      .take();
}

Contribution decode_contribution(Reader& reader) {
  Contribution part;
  part.kind = static_cast<CollectiveKind>(reader.number());
  part.what = reader.text();
  part.reduction = reader.text();
  part.source = static_cast<std::int64_t>(reader.number());
  part.dtype = static_cast<DType>(reader.number());
  part.sizes = reader.numbers();
  part.sends = reader.numbers();
  part.receives = reader.numbers();
  return part;
}

struct Coordinator::Table {
  explicit Table(std::vector<Socket> sockets) : ranks(sockets.size()) {
    for (std::size_t rank = 0; rank < sockets.size(); ++rank) ranks[rank].socket = std::move(sockets[rank]);
    thread = std::thread([this] { work(); });
  }

  struct Member {
    Socket socket;
    Posted* waits_for = nullptr;  // the last launch, while it misses members
    bool is_finished = false, is_gone = false;
    std::optional<std::string> shared, report;
  };
  struct Key {
    std::string group;
    std::vector<std::int64_t> members;
    std::uint64_t number;
    auto operator<=>(const Key&) const = default;
  };

  void work() {
    while (!has_ended()) {
      std::vector<pollfd> wanted;
      for (const Member& place : ranks)
        wanted.push_back({place.is_gone ? -1 : place.socket.descriptor(), POLLIN, 0});
      poll(wanted.data(), wanted.size(), 50);
      for (std::size_t rank = 0; rank < ranks.size(); ++rank)
        if (wanted[rank].revents != 0) listen_to(static_cast<Rank>(rank));
      if (!reasons.empty() && !is_told && Clock::now() >= tell_at) tell_failure();
    }
  }

  // All know how it ended, and have left.
  bool has_ended() const {
    const bool all_gone = std::all_of(ranks.begin(), ranks.end(), [](const Member& p) { return p.is_gone; });
    return is_told && (all_gone || Clock::now() >= leave_at);
  }

  void listen_to(Rank rank) {
    Member& place = ranks[rank];
    try {
      while (const auto frame = place.socket.receive(Clock::now())) take(rank, *frame);
    } catch (const WireError&) {
      place.is_gone = true;
      if (!is_told) fail(fmt::format("rank {}: its process ended, or cannot be reached any more", rank));
    }
  }

  void take(Rank rank, const Frame& frame) {
    Member& place = ranks[rank];
    switch (frame.kind) {
      case FrameKind::kPost:
        return post(rank, frame.text);
      case FrameKind::kFinished:
        place.is_finished = true;
        end_run();
        return check_progress();
      case FrameKind::kShare:
        place.shared = frame.text;
        tell_shared();
        return check_progress();
      case FrameKind::kAskTime:
        return send(rank, FrameKind::kTime, Writer().real(seconds_now()).take());
      case FrameKind::kReport:
        place.report = frame.text;
        return tell_done();
      case FrameKind::kAbort:
        return fail(fmt::format("rank {}: {}", rank, frame.text));
      default:
        throw WireError("a message that no rank sends");
    }
  }

  void post(Rank rank, const std::string& text) {
    Reader reader(text);
    Key key{reader.text(), {}, 0};
    key.members = reader.numbers();
    key.number = reader.number();
    const std::uint64_t member = reader.number();
    std::unique_ptr<Posted>& meeting = open[key];
    if (meeting == nullptr) {
      meeting = std::make_unique<Posted>();
      meeting->group = key.group;
      meeting->number = key.number;
      for (std::int64_t one : key.members) meeting->members.push_back(static_cast<Rank>(one));
      meeting->contributions.resize(key.members.size());
      meeting->posted.resize(key.members.size());
      meeting->missing = key.members.size();
    }
    if (member >= meeting->members.size() || meeting->members[member] != rank || meeting->posted[member])
      throw WireError("a launch that is not the rank's");
    meeting->contributions[member] = decode_contribution(reader);
    meeting->posted[member] = true;
    ranks[rank].waits_for = meeting.get();
    if (--meeting->missing == 0) {
      send_ready(*meeting);
      for (Rank one : meeting->members) ranks[one].waits_for = nullptr;
      open.erase(key);
    }
    check_progress();
  }

  void send_ready(const Posted& meeting) {
    Writer writer;
    writer.text(meeting.group).number(meeting.number);
    for (const Contribution& part : meeting.contributions) writer.text(encode(part));
    const std::string text = writer.take();
    for (Rank rank : meeting.members) send(rank, FrameKind::kReady, text);
  }

  void send(Rank rank, FrameKind kind, const std::string& text) {
    try {
      if (!ranks[rank].is_gone) ranks[rank].socket.send(kind, text);
    } catch (const WireError&) {
      // Its end is read where it is listened to.
    }
  }

  // Fails where every rank waits for one that will not come.
  void check_progress() {
    bool somebody_waits = false;
    for (const Member& place : ranks) {
      if (place.is_finished || place.shared) continue;
      if (place.waits_for == nullptr) return;
      somebody_waits = true;
    }
    if (somebody_waits) fail("no rank can go on");
  }

  std::string describe_rank(const Member& place, std::size_t rank) const {
    if (place.is_gone) return "ended";
    if (place.is_finished) return "finished";
    if (place.shared) return "waits for what the others found";
    if (place.waits_for == nullptr) return "computes";
    const Posted& meeting = *place.waits_for;
    std::vector<Rank> missing;
    std::string what;
    for (std::size_t i = 0; i < meeting.members.size(); ++i) {
      if (!meeting.posted[i]) missing.push_back(meeting.members[i]);
      if (meeting.members[i] == rank) what = describe(meeting.contributions[i]);
    }
    return fmt::format("waits for rank {} in collective {} on group {}: {}", fmt::join(missing, ", "),
                       meeting.number, meeting.group, what);
  }

  void fail(const std::string& reason) {
    if (is_told) return;
    if (reasons.empty()) tell_at = Clock::now() + kGathering;
    if (std::find(reasons.begin(), reasons.end(), reason) == reasons.end()) reasons.push_back(reason);
  }

  void tell_failure() {
    std::string text = fmt::format("{}", fmt::join(reasons, "\n"));
    text += "\nwhat each rank did then:";
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
      text += fmt::format("\n  rank {}: {}", rank, describe_rank(ranks[rank], rank));
    tell(FrameKind::kFailed, text);
  }

  // Once all ranks have finished, they go on to the next run.
  void end_run() {
    if (!std::all_of(ranks.begin(), ranks.end(), [](const Member& place) { return place.is_finished; }))
      return;
    for (Member& place : ranks) place.is_finished = false;
    for (Rank rank = 0; rank < ranks.size(); ++rank) send(rank, FrameKind::kAllFinished, "");
  }

  void tell_shared() {
    if (!std::all_of(ranks.begin(), ranks.end(),
                     [](const Member& place) { return place.shared.has_value(); }))
      return;
    Writer texts;
    texts.number(ranks.size());
    for (Member& place : ranks) {
      texts.text(*place.shared);
      place.shared.reset();
    }
    const std::string all = texts.take();
    for (Rank rank = 0; rank < ranks.size(); ++rank) send(rank, FrameKind::kShared, all);
  }

  void tell_done() {
    if (!std::all_of(ranks.begin(), ranks.end(),
                     [](const Member& place) { return place.report.has_value(); }))
      return;
    Writer reports;
    reports.number(ranks.size());
    for (const Member& place : ranks) reports.text(*place.report);
    is_told = true;
    leave_at = Clock::now() + kLeaving;
    send(0, FrameKind::kDone, reports.take());
    for (Rank rank = 1; rank < ranks.size(); ++rank) send(rank, FrameKind::kDone, Writer().number(0).take());
  }

  void tell(FrameKind kind, const std::string& text) {
    is_told = true;
    leave_at = Clock::now() + kLeaving;
    for (Rank rank = 0; rank < ranks.size(); ++rank) send(rank, kind, text);
  }

  std::vector<Member> ranks;
  std::map<Key, std::unique_ptr<Posted>> open;
  std::vector<std::string> reasons;
  bool is_told = false;
  Clock::time_point tell_at, leave_at;
  std::thread thread;
};

Coordinator::Coordinator(std::vector<Socket> ranks) : table_(std::make_unique<Table>(std::move(ranks))) {}

Coordinator::~Coordinator() {
  table_->thread.join();
}

}  // namespace epweave::replay::nccl
