#include "replay/nccl/remote_transport.h"

#include <fmt/format.h>

#include <algorithm>

#include "replay/nccl/coordinator.h"

namespace epweave::replay::nccl {
namespace {

constexpr std::chrono::milliseconds kFrameWait{100};
// How long a rank that failed waits for the others' reasons.
constexpr std::chrono::seconds kReasons{5};

// All members launch what this one does.
void fill_alike(Posted& meeting, std::size_t member, Contribution own) {
  Contribution others = own;
  others.data = others.bound = others.ideal = nullptr;
  others.ready = nullptr;
  for (Contribution& part : meeting.contributions) part = others;
  meeting.contributions[member] = std::move(own);
  meeting.missing = 0;
}

}  // namespace

RemoteTransport::RemoteTransport(Socket coordinator, Deadline& deadline)
    : socket_(std::move(coordinator)), deadline_(deadline) {
  listener_ = std::thread([this] { listen(); });
}

RemoteTransport::~RemoteTransport() {
  is_leaving_ = true;
  socket_.shut_down();
  listener_.join();
}

void RemoteTransport::listen() {
  try {
    while (!is_leaving_)
      if (const auto frame = socket_.receive(Clock::now() + kFrameWait)) take(*frame);
  } catch (const WireError& error) {
    const std::lock_guard lock(mutex_);
    if (!is_done_ && !is_leaving_)
      set_failure(fmt::format("rank 0 cannot be reached any more: {}", error.what()));
    changed_.notify_all();
  }
}

void RemoteTransport::take(const Frame& frame) {
  Reader reader(frame.text);
  const std::lock_guard lock(mutex_);
  if (frame.kind == FrameKind::kFailed) {
    set_failure(frame.text);
  } else if (frame.kind == FrameKind::kTime) {
    answered_at_ = seconds_now();
    their_time_ = reader.real();
    is_answered_ = true;
  } else if (frame.kind == FrameKind::kAllFinished) {
    is_answered_ = true;
  } else if (frame.kind == FrameKind::kShared || frame.kind == FrameKind::kDone) {
    texts_.resize(reader.number());
    for (std::string& text : texts_) text = reader.text();
    is_done_ = frame.kind == FrameKind::kDone;
    is_answered_ = true;
  } else if (frame.kind == FrameKind::kReady) {
    const std::string group = reader.text();
    const auto found = waiting_.find({group, reader.number()});
    if (found == waiting_.end()) throw WireError("contributions to a collective that was not launched");
    Posted& meeting = *found->second;
    for (std::size_t i = 0; i < meeting.members.size(); ++i) {
      const std::string text = reader.text();
      Reader part(text);
      Contribution contribution = decode_contribution(part);
      contribution.data = meeting.contributions[i].data;
      contribution.bound = meeting.contributions[i].bound;
      contribution.ready = meeting.contributions[i].ready;
      meeting.contributions[i] = std::move(contribution);
    }
    meeting.missing = 0;
    waiting_.erase(found);
  } else {
    throw WireError("a message that rank 0 does not send");
  }
  changed_.notify_all();
}

void RemoteTransport::send(FrameKind kind, const std::string& text) {
  const std::lock_guard lock(sending_);
  try {
    socket_.send(kind, text);
  } catch (const WireError&) {
    // The listener finds the broken connection, and whether rank 0 said why.
  }
}

void RemoteTransport::set_failure(const std::string& reason) {
  if (failure_.empty()) failure_ = reason;
}

std::string RemoteTransport::failure() {
  const std::lock_guard lock(mutex_);
  return failure_;
}

Transport::Ticket RemoteTransport::post(Rank rank, const std::string& group, Contribution contribution) {
  const std::vector<Rank>& members = find_members(*world_, rank, group);
  const auto member =
      static_cast<std::size_t>(std::find(members.begin(), members.end(), rank) - members.begin());
  auto meeting = std::make_shared<Posted>();
  meeting->group = group;
  meeting->members = members;
  meeting->contributions.resize(members.size());
  meeting->posted.resize(members.size());
  meeting->missing = members.size();
  Writer writer;
  {
    const std::lock_guard lock(mutex_);
    meeting->number = launched_[group]++;
    if (contribution.is_graphs) {
      fill_alike(*meeting, member, std::move(contribution));
      return {std::move(meeting), member};
    }
    writer.text(group).numbers({std::vector<std::int64_t>(members.begin(), members.end())});
    writer.number(meeting->number).number(member);
    waiting_[{group, meeting->number}] = meeting;
    meeting->contributions[member] = std::move(contribution);
  }
  send(FrameKind::kPost, writer.take() + encode(meeting->contributions[member]));
  return {std::move(meeting), member};
}

Meeting RemoteTransport::meet(Rank rank, const Ticket& ticket) {
  const Posted& meeting = *ticket.meeting;
  {
    const WaitClock::Wait wait(clock_, deadline_);
    std::unique_lock lock(mutex_);
    const auto is_over = [&] { return meeting.missing == 0 || !failure_.empty(); };
    if (!changed_.wait_for(lock, deadline_.now(), is_over)) {
      lock.unlock();
      abort(fmt::format("waited {} for the launch of collective {} on group {} by the others",
                        deadline_.text(), meeting.number, meeting.group));
      lock.lock();
    }
    if (meeting.missing != 0 || !failure_.empty()) throw_failure(lock);
  }
  static_cast<void>(rank);
  check_contributions(meeting);
  return {meeting.contributions, meeting.members, ticket.member, meeting.group, meeting.number};
}

void RemoteTransport::throw_failure(std::unique_lock<std::mutex>& lock) {
  const std::string reason = failure_.empty() ? "rank 0 does not say why the run failed" : failure_;
  lock.unlock();
  throw CollectiveError(reason);
}

void RemoteTransport::begin(const World& world) {
  const std::lock_guard lock(mutex_);
  world_ = &world;
  launched_.clear();
}

void RemoteTransport::finish(Rank) {
  meet_all(FrameKind::kFinished, "", "waited for the others to finish the run");
}

void RemoteTransport::abort(const std::string& problem) {
  {
    const std::lock_guard lock(mutex_);
    if (has_aborted_ || !failure_.empty()) return;
    has_aborted_ = true;
  }
  send(FrameKind::kAbort, problem);
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kReasons, [&] { return !failure_.empty(); });
  set_failure(problem);
  changed_.notify_all();
}

void RemoteTransport::meet_all(FrameKind kind, const std::string& text, const char* what) {
  {
    const std::lock_guard lock(mutex_);
    is_answered_ = false;
  }
  send(kind, text);
  const WaitClock::Wait wait(clock_, deadline_);
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, deadline_.now(), [&] { return is_answered_ || !failure_.empty(); })) {
    lock.unlock();
    abort(fmt::format("{}, {}", what, deadline_.text()));
    lock.lock();
  }
  if (!is_answered_) throw_failure(lock);
}

std::vector<std::string> RemoteTransport::share(const std::string& text) {
  meet_all(FrameKind::kShare, text, "waited for what the others found");
  const std::lock_guard lock(mutex_);
  return std::move(texts_);
}

ClockOffset RemoteTransport::compare_clocks() {
  constexpr int kTimes = 16;
  std::optional<ClockOffset> best;
  for (int i = 0; i < kTimes; ++i) {
    const double asked_at = seconds_now();
    meet_all(FrameKind::kAskTime, "", "waited for the time of rank 0");
    const std::lock_guard lock(mutex_);
    const double within = (answered_at_ - asked_at) / 2;
    if (!best || within < best->within) best = {their_time_ - (asked_at + within), within};
  }
  return *best;
}

std::vector<std::string> RemoteTransport::conclude(const std::string& report) {
  meet_all(FrameKind::kReport, report, "waited for the reports of the others");
  const std::lock_guard lock(mutex_);
  return std::move(texts_);
}

}  // namespace epweave::replay::nccl
