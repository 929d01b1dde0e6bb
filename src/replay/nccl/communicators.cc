#include "replay/nccl/communicators.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <optional>

namespace epweave::replay::nccl {
namespace {

constexpr std::chrono::milliseconds kLook{20};   // of the watchdog
constexpr std::chrono::microseconds kSpin{500};  // calls in progress are asked without a pause so long
constexpr std::chrono::microseconds kPoll{50};   // and behind that

std::optional<Element> element_of(DType dtype) {
  switch (dtype) {
    case DType::kInt8:
      return Element::kInt8;
    case DType::kUint8:
      return Element::kUint8;
    case DType::kInt32:
      return Element::kInt32;
    case DType::kUint32:
      return Element::kUint32;
    case DType::kInt64:
      return Element::kInt64;
    case DType::kFloat16:
      return Element::kFloat16;
    case DType::kFloat32:
      return Element::kFloat32;
    case DType::kFloat64:
      return Element::kFloat64;
    case DType::kBfloat16:
      return Element::kBfloat16;
    default:
      return std::nullopt;
  }
}

Sum sum_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return Sum::kSum;
    case Reduction::kAvg:
      return Sum::kAvg;
    case Reduction::kMax:
      return Sum::kMax;
    case Reduction::kMin:
      return Sum::kMin;
    case Reduction::kProduct:
      break;
  }
  return Sum::kProduct;
}

// "gather (collective 3 on group 35)", for messages.
auto name_call(const char* what, const Channel& channel) {
  return [what, &channel] {
    return fmt::format("{} (collective {} on group {})", what, channel.number, channel.group);
  };
}

Config make_config() {
  Config config;
  config.blocking = 0;
  return config;
}

}  // namespace

Communicators::Communicators(const CommunicatorSetup& setup)
    : api_(setup.api),
      device_(setup.device),
      transport_(setup.transport),
      deadline_(setup.deadline),
      rank_(setup.rank),
      sums_(setup.sums) {
  watchdog_ = std::thread([this] { guard(); });
  try {
    make(setup);
  } catch (const std::exception& error) {
    transport_.abort(error.what());
    is_ending_ = true;
    watchdog_.join();
    abort_all();
    throw;
  }
}

Communicators::~Communicators() {
  is_ending_ = true;
  watchdog_.join();
  abort_all();  // unless closed
}

void Communicators::make(const CommunicatorSetup& setup) {
  device_.enter();
  Config config = make_config();
  Comm world = nullptr;
  Result result;
  {
    const std::lock_guard lock(calls_);
    result = api_.init_rank(&world, static_cast<int>(setup.ranks), setup.id, static_cast<int>(setup.rank),
                            &config);
    hold(world);
  }
  finish_call(result, world, [] { return std::string("make the communicator of all ranks"); });
  // All ranks split together, so whether a group of that name is made already is asked of all
  // ranks' members.
  std::multimap<std::string, const std::vector<std::vector<Rank>>*> split_already;
  for (const GraphGroups& graph : setup.graphs) {
    for (const std::string& name : graph.names) {
      const std::vector<Rank>& members = find_members(graph.world, setup.rank, name);
      const std::vector<std::vector<Rank>>& of_rank = graph.world.groups.at(name).of_rank;
      const auto [first, last] = split_already.equal_range(name);
      if (std::any_of(first, last, [&](const auto& made) { return *made.second == of_rank; })) continue;
      split_already.emplace(name, &of_rank);
      of_group_.try_emplace({name, members}, split(world, name, members));
    }
  }
}

void Communicators::hold(Comm comm) {
  if (comm != nullptr && std::find(comms_.begin(), comms_.end(), comm) == comms_.end())
    comms_.push_back(comm);
}

Comm Communicators::split(Comm world, const std::string& group, const std::vector<Rank>& members) {
  const auto key = std::find(members.begin(), members.end(), rank_) - members.begin();
  const Rank color = *std::min_element(members.begin(), members.end());
  Config config = make_config();
  Comm* made = &made_.emplace_back(nullptr);
  Result result;
  {
    const std::lock_guard lock(calls_);
    result = api_.split(world, static_cast<int>(color), static_cast<int>(key), made, &config);
  }
  const CallName what = [&] { return fmt::format("make the communicator of group {}", group); };
  // A split that goes on in a thread of NCCL returns success, and has made no communicator yet.
  finish_call(result, world, what, made);
  {
    const std::lock_guard lock(calls_);
    hold(*made);
  }
  finish_call(Result::kInProgress, *made, what);
  return *made;
}

std::string Communicators::explain(Result result, Comm comm, std::string_view what) const {
  const char* last = api_.last_error(comm);
  std::string text = fmt::format("NCCL failed to {}: {}", what, api_.error_text(result));
  if (last != nullptr && *last != '\0') text += fmt::format(" ({})", last);
  return text;
}

void Communicators::finish_call(Result result, Comm comm, const CallName& what, Comm* written) {
  const Clock::time_point began = Clock::now(), until = began + deadline_.now();
  const auto is_written = [&] {
    return written == nullptr || std::atomic_ref(*written).load(std::memory_order_acquire) != nullptr;
  };
  const auto goes_on = [&] {
    return result == Result::kInProgress || (result == Result::kSuccess && !is_written());
  };
  const bool is_waiting = goes_on();
  while (goes_on()) {
    if (const std::string failure = transport_.failure(); !failure.empty()) throw CollectiveError(failure);
    if (Clock::now() >= until)
      throw CollectiveError(fmt::format("NCCL did not {} within {}", what(), deadline_.text()));
    {
      const std::lock_guard lock(calls_);
      if (!is_aborted_) {
        const Result asked = api_.get_async_error(comm, &result);
        if (asked != Result::kSuccess) result = asked;
      }
    }
    if (goes_on() && Clock::now() - began > kSpin) std::this_thread::sleep_for(kPoll);
  }
  if (result == Result::kSuccess) {
    if (is_waiting) transport_.waited(Clock::now() - began);  // for the others, who make it with us
    return;
  }
  std::string text;
  {
    const std::lock_guard lock(calls_);
    text = explain(result, comm, what());
  }
  // A process that ended is better known to rank 0 than to NCCL.
  transport_.abort(text);
  const std::string failure = transport_.failure();
  throw CollectiveError(failure.empty() ? text : failure);
}

Comm Communicators::find(const Channel& channel) {
  const auto found = of_group_.find({channel.group, channel.members});
  if (found == of_group_.end())
    throw CollectiveError(fmt::format("process group '{}' has no communicator", channel.group));
  return found->second;
}

void Communicators::require_open() {
  if (!is_aborted_) return;
  const std::string failure = transport_.failure();
  throw CollectiveError(failure.empty() ? "the communicators were aborted" : failure);
}

void Communicators::exchange(const Channel& channel, std::span<const Parcel> sends,
                             std::span<const Parcel> receives) {
  const Comm comm = find(channel);
  Result result = Result::kSuccess;
  const auto keep = [&](Result one) {
    if (result == Result::kSuccess || result == Result::kInProgress)
      if (one != Result::kSuccess) result = one;
  };
  {
    const std::lock_guard lock(calls_);
    require_open();
    keep(api_.group_start());
    for (const Parcel& parcel : sends)
      if (parcel.bytes != 0)
        keep(api_.send(parcel.data, parcel.bytes, kByte, static_cast<int>(parcel.member), comm,
                       channel.stream));
    for (const Parcel& parcel : receives)
      if (parcel.bytes != 0)
        keep(api_.receive(parcel.data, parcel.bytes, kByte, static_cast<int>(parcel.member), comm,
                          channel.stream));
    keep(api_.group_end());
  }
  finish_call(result, comm, name_call("send and receive", channel));
}

void Communicators::gather(const Channel& channel, const void* from, void* to, std::size_t bytes) {
  const Comm comm = find(channel);
  Result result;
  {
    const std::lock_guard lock(calls_);
    require_open();
    result = api_.all_gather(from, to, bytes, kByte, comm, channel.stream);
  }
  finish_call(result, comm, name_call("gather", channel));
}

void Communicators::broadcast(const Channel& channel, const Parcel& source, void* to) {
  const Comm comm = find(channel);
  Result result;
  {
    const std::lock_guard lock(calls_);
    require_open();
    result = api_.broadcast(source.data, to, source.bytes, kByte, static_cast<int>(source.member), comm,
                            channel.stream);
  }
  finish_call(result, comm, name_call("broadcast", channel));
}

bool Communicators::adds_up(DType dtype, Reduction reduction) const {
  if (sums_ == Sums::kOwn || !element_of(dtype)) return false;
  return is_floating(dtype) || reduction != Reduction::kAvg;
}

void Communicators::reduce(const Channel& channel, const LibrarySum& sum, Reduce call, const char* what) {
  const Comm comm = find(channel);
  Result result;
  {
    const std::lock_guard lock(calls_);
    require_open();
    result = call(sum.from, sum.to, sum.count, static_cast<int>(*element_of(sum.dtype)),
                  static_cast<int>(sum_of(sum.reduction)), comm, channel.stream);
  }
  finish_call(result, comm, name_call(what, channel));
}

void Communicators::reduce_scatter(const Channel& channel, const LibrarySum& sum) {
  reduce(channel, sum, api_.reduce_scatter, "reduce and scatter");
}

void Communicators::all_reduce(const Channel& channel, const LibrarySum& sum) {
  reduce(channel, sum, api_.all_reduce, "reduce");
}

// --- the watchdog ---

void Communicators::watch(Underway work) {
  const std::lock_guard lock(work_mutex_);
  work_.push_back({std::move(work), std::nullopt});
}

void Communicators::unwatch() {
  const std::lock_guard lock(work_mutex_);
  work_.clear();
}

std::string Communicators::list_pending() const {
  std::string text;
  for (const Work& work : work_)
    text += fmt::format("\n  {} ({})", work.underway.what, work.begun ? "on the device" : "queued");
  return text;
}

std::string Communicators::describe_pending() {
  const std::lock_guard lock(work_mutex_);
  return pending_at_failure_;
}

std::string Communicators::find_problem() {
  {
    const std::lock_guard lock(work_mutex_);
    bool is_begun = false;
    for (auto work = work_.begin(); work != work_.end();) {
      if (work->underway.is_done()) {
        work = work_.erase(work);
        continue;
      }
      if (!work->begun && work->underway.has_begun()) work->begun = Clock::now();
      if (work->begun && Clock::now() - *work->begun > deadline_.now())
        return fmt::format("{} began and was not done within {}", work->underway.what, deadline_.text());
      is_begun = is_begun || work->begun;
      ++work;
    }
    note_work(is_begun);
  }
  const std::lock_guard lock(calls_);
  return find_error();
}

void Communicators::note_work(bool is_begun) {
  const Clock::time_point now = Clock::now();
  if (is_begun) on_device_ = on_device_.load() + (now - looked_at_);
  looked_at_ = now;
}

std::string Communicators::find_error() {
  for (Comm comm : comms_) {
    Result error = Result::kSuccess;
    if (api_.get_async_error(comm, &error) != Result::kSuccess) continue;
    if (error != Result::kSuccess && error != Result::kInProgress) return explain(error, comm, "move data");
  }
  return "";
}

void Communicators::give_problem(const std::string& problem) {
  await_failure(transport_, [this] { return is_ending_.load(); });
  transport_.abort(problem);
}

void Communicators::require_sound() {
  std::string problem;
  {
    const std::lock_guard lock(calls_);
    problem = is_aborted_ ? "the communicators were aborted" : find_error();
  }
  if (problem.empty()) return;
  give_problem(problem);
  const std::string failure = transport_.failure();
  throw CollectiveError(failure.empty() ? problem : failure);
}

void Communicators::guard() {
  device_.enter();
  while (!is_ending_) {
    std::string failure = transport_.failure();
    if (failure.empty()) {
      const std::string problem = find_problem();
      if (!problem.empty()) {
        give_problem(problem);
        failure = problem;
      }
    }
    if (!failure.empty()) {
      {
        const std::lock_guard lock(work_mutex_);
        std::erase_if(work_, [](const Work& work) { return work.underway.is_done(); });
        pending_at_failure_ = list_pending();
        work_.clear();
      }
      return abort_all();
    }
    std::this_thread::sleep_for(kLook);
  }
}

void Communicators::abort_all() {
  const std::lock_guard lock(calls_);
  if (is_aborted_) return;
  is_aborted_ = true;
  for (auto comm = comms_.rbegin(); comm != comms_.rend(); ++comm) api_.abort(*comm);
  comms_.clear();
}

void Communicators::close() {
  is_ending_ = true;
  const std::lock_guard lock(calls_);
  if (is_aborted_) return;
  is_aborted_ = true;
  const Clock::time_point until = Clock::now() + deadline_.now();
  for (auto comm = comms_.rbegin(); comm != comms_.rend(); ++comm) {
    Result result = api_.finalize(*comm);
    while (result == Result::kInProgress && Clock::now() < until) {
      std::this_thread::sleep_for(kPoll);
      api_.get_async_error(*comm, &result);
    }
    api_.destroy(*comm);
  }
  comms_.clear();
}

}  // namespace epweave::replay::nccl
