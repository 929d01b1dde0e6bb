#include "replay/collectives/transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>
#include <type_traits>

#include "replay/kernels/math/portable_math.h"
#include "replay/values/block_cache.h"

namespace epweave::replay {

namespace {

// --- sums ---

template <Reduction kReduction, class T>
T combine(T a, T b) {
  constexpr bool kIsFloat = std::is_floating_point_v<T>;
  if constexpr (kReduction == Reduction::kMax)
    return (kIsFloat && a != a) || a > b ? a : b;
  else if constexpr (kReduction == Reduction::kMin)
    return (kIsFloat && a != a) || a < b ? a : b;
  else if constexpr (kIsFloat)
    return kReduction == Reduction::kProduct ? a * b : a + b;
  else {
    using U = std::make_unsigned_t<T>;  // wraps
    const std::uint64_t left = static_cast<U>(a), right = static_cast<U>(b);
    return static_cast<T>(kReduction == Reduction::kProduct ? left * right : left + right);
  }
}

// Calls f with the reduction as a constant.
template <class F>
void with_reduction(Reduction reduction, const F& f) {
  switch (reduction) {
    case Reduction::kMax:
      return f(std::integral_constant<Reduction, Reduction::kMax>());
    case Reduction::kMin:
      return f(std::integral_constant<Reduction, Reduction::kMin>());
    case Reduction::kProduct:
      return f(std::integral_constant<Reduction, Reduction::kProduct>());
    case Reduction::kSum:
    case Reduction::kAvg:
      return f(std::integral_constant<Reduction, Reduction::kSum>());
  }
}

// Elements [first, first + count) of the operands reduced in order, a run of them at a time; `load`
// and `store` convert between the stored and the summed type.
template <class Stored, class Summed, class Load, class Store>
void reduce_range(std::span<const Contribution> operands, std::size_t first, std::span<std::byte> to,
                  Load load, Store store) {
  constexpr std::size_t kRun = 512;
  const Reduction reduction = find_reduction(operands[0].reduction);
  const std::size_t total = to.size() / sizeof(Stored);
  std::array<Stored, kRun> stored;
  std::array<Summed, kRun> sums;
  const auto read = [&](const Contribution& from, std::size_t at, std::size_t count) {
    std::memcpy(stored.data(), from.data->data() + (first + at) * sizeof(Stored), count * sizeof(Stored));
  };
  for (std::size_t at = 0; at < total; at += kRun) {
    const std::size_t count = std::min(kRun, total - at);
    read(operands[0], at, count);
    for (std::size_t i = 0; i < count; ++i) sums[i] = load(stored[i]);
    for (const Contribution& operand : operands.subspan(1)) {
      read(operand, at, count);
      with_reduction(reduction, [&](auto tag) {
        for (std::size_t i = 0; i < count; ++i)
          sums[i] = combine<tag.value, Summed>(sums[i], load(stored[i]));
      });
    }
    if (reduction == Reduction::kAvg)
      for (std::size_t i = 0; i < count; ++i)
        sums[i] = static_cast<Summed>(sums[i] / static_cast<Summed>(operands.size()));
    for (std::size_t i = 0; i < count; ++i) stored[i] = store(sums[i]);
    std::memcpy(to.data() + at * sizeof(Stored), stored.data(), count * sizeof(Stored));
  }
}

template <class T>
void reduce_plain(std::span<const Contribution> operands, std::size_t first, std::span<std::byte> to) {
  reduce_range<T, T>(
      operands, first, to, [](T v) { return v; }, [](T v) { return v; });
}

void reduce(std::span<const Contribution> operands, std::size_t first, std::span<std::byte> to) {
  switch (operands[0].dtype) {
    case DType::kFloat32:
      return reduce_plain<float>(operands, first, to);
    case DType::kComplex64:
      return reduce_plain<float>(operands, 2 * first, to);
    case DType::kFloat64:
      return reduce_plain<double>(operands, first, to);
    case DType::kInt64:
      return reduce_plain<std::int64_t>(operands, first, to);
    case DType::kInt32:
      return reduce_plain<std::int32_t>(operands, first, to);
    case DType::kInt16:
      return reduce_plain<std::int16_t>(operands, first, to);
    case DType::kInt8:
      return reduce_plain<std::int8_t>(operands, first, to);
    case DType::kUint8:
      return reduce_plain<std::uint8_t>(operands, first, to);
    case DType::kBfloat16:
      return reduce_range<std::uint16_t, float>(operands, first, to, math::float_from_bf16,
                                                math::bf16_from_float);
    case DType::kFloat16:
      return reduce_range<std::uint16_t, float>(operands, first, to, math::float_from_fp16,
                                                math::fp16_from_float);
    default:
      throw CollectiveError(fmt::format("{} cannot be reduced", info(operands[0].dtype).name));
  }
}

// --- checks ---

}  // namespace

std::string describe(const Contribution& part) {
  std::string text =
      fmt::format("{} of {}[{}]", part.what, info(part.dtype).short_name, fmt::join(part.sizes, ", "));
  if (!part.reduction.empty()) text += ", " + part.reduction;
  if (part.kind == CollectiveKind::kAllToAll)
    text += fmt::format(", sends [{}], expects [{}]", fmt::join(part.sends, ", "),
                        fmt::join(part.receives, ", "));
  return text;
}

namespace {

[[noreturn]] void fail_mismatch(const Posted& meeting, const std::string& reason) {
  std::string text = fmt::format("collective {} on group {}: {}", meeting.number, meeting.group, reason);
  for (std::size_t i = 0; i < meeting.members.size(); ++i)
    text += fmt::format("\n  rank {}: {}", meeting.members[i], describe(meeting.contributions[i]));
  throw CollectiveError(text);
}

void check_splits(const Posted& meeting) {
  const auto& parts = meeting.contributions;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].sends.size() != parts.size() || parts[i].receives.size() != parts.size())
      fail_mismatch(meeting, fmt::format("the splits of rank {} do not name {} ranks", meeting.members[i],
                                         parts.size()));
    std::int64_t total = 0;
    for (std::int64_t rows : parts[i].sends) {
      if (rows < 0) fail_mismatch(meeting, fmt::format("rank {} has a negative split", meeting.members[i]));
      total += rows;
    }
    if (parts[i].sizes.empty() || total != parts[i].sizes[0])
      fail_mismatch(meeting,
                    fmt::format("the rows rank {} sends are not all of its operand", meeting.members[i]));
  }
  for (std::size_t i = 0; i < parts.size(); ++i)
    for (std::size_t j = 0; j < parts.size(); ++j)
      if (parts[i].sends[j] != parts[j].receives[i])
        fail_mismatch(meeting,
                      fmt::format("rank {} sends {} rows to rank {}, which expects {}", meeting.members[i],
                                  parts[i].sends[j], meeting.members[j], parts[j].receives[i]));
}

// --- results ---

std::size_t row_bytes(const Contribution& part) {
  std::size_t bytes = info(part.dtype).bytes;
  for (std::size_t d = 1; d < part.sizes.size(); ++d) bytes *= static_cast<std::size_t>(part.sizes[d]);
  return bytes;
}

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes != 0) std::memcpy(to, from, bytes);
}

// The member's result, row-major, into memory of its size.
void write_result(const Meeting& meeting, std::span<std::byte> to) {
  const auto& parts = meeting.contributions;
  const Contribution& own = parts[meeting.member];
  if (own.kind == CollectiveKind::kReduceScatter || own.kind == CollectiveKind::kAllReduce)
    return reduce(parts, first_reduced(meeting), to);
  for (const Piece& piece : list_pieces(meeting))
    copy_bytes(to.data() + piece.to, parts[piece.member].data->data() + piece.from, piece.bytes);
}

std::size_t result_bytes(const Meeting& meeting) {
  const auto& parts = meeting.contributions;
  const Contribution& own = parts[meeting.member];
  const std::size_t bytes = static_cast<std::size_t>(count_elements(own.sizes)) * info(own.dtype).bytes;
  if (own.kind == CollectiveKind::kAllReduce) return bytes;
  if (own.kind == CollectiveKind::kReduceScatter) return bytes / parts.size();
  const std::vector<Piece> pieces = list_pieces(meeting);
  return pieces.empty() ? 0 : pieces.back().to + pieces.back().bytes;
}

}  // namespace

void write_result(const Meeting& meeting, const Tensor& result) {
  const std::size_t bytes = result_bytes(meeting);
  EPWEAVE_CHECK(bytes == static_cast<std::size_t>(result.numel()) * result.element_bytes());
  if (result.is_contiguous()) return write_result(meeting, {result.bytes(), bytes});
  Buffer<std::byte> elements(bytes);
  write_result(meeting, elements);
  scatter_elements(elements.data(), result);
}

void check_contributions(const Posted& meeting) {
  const Contribution& first = meeting.contributions[0];
  for (const Contribution& part : meeting.contributions) {
    if (part.kind != first.kind) fail_mismatch(meeting, "the ranks launch different operations");
    if (part.dtype != first.dtype) fail_mismatch(meeting, "the ranks' dtypes differ");
    if (part.reduction != first.reduction) fail_mismatch(meeting, "the ranks' reductions differ");
    if (part.source != first.source) fail_mismatch(meeting, "the ranks' sources differ");
    const std::size_t from = first.kind == CollectiveKind::kAllToAll ? 1 : 0;
    if (part.sizes.size() != first.sizes.size() ||
        !std::equal(part.sizes.begin() + static_cast<std::ptrdiff_t>(std::min(from, part.sizes.size())),
                    part.sizes.end(),
                    first.sizes.begin() + static_cast<std::ptrdiff_t>(std::min(from, first.sizes.size()))))
      fail_mismatch(meeting, "the ranks' sizes differ");
  }
  if (first.kind == CollectiveKind::kAllToAll) check_splits(meeting);
  if (first.kind == CollectiveKind::kReduceScatter &&
      (first.sizes.empty() || first.sizes[0] % static_cast<std::int64_t>(meeting.members.size()) != 0))
    fail_mismatch(meeting, "the rows cannot be divided among the ranks");
}

Reduction find_reduction(const std::string& name) {
  if (name == "sum") return Reduction::kSum;
  if (name == "avg") return Reduction::kAvg;
  if (name == "max") return Reduction::kMax;
  if (name == "min") return Reduction::kMin;
  if (name == "product" || name == "prod") return Reduction::kProduct;
  throw CollectiveError(fmt::format("the reduction '{}' is not supported", name));
}

std::vector<Piece> list_pieces(const Meeting& meeting) {
  const auto& parts = meeting.contributions;
  const Contribution& own = parts[meeting.member];
  const std::size_t bytes = static_cast<std::size_t>(count_elements(own.sizes)) * info(own.dtype).bytes;
  const std::size_t row = row_bytes(own);
  std::vector<Piece> pieces;
  std::size_t to = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Piece piece{i, 0, to, bytes};
    if (own.kind == CollectiveKind::kAllToAll) {
      for (std::size_t k = 0; k < meeting.member; ++k)
        piece.from += static_cast<std::size_t>(parts[i].sends[k]) * row;
      piece.bytes = static_cast<std::size_t>(parts[i].sends[meeting.member]) * row;
    } else if (own.kind == CollectiveKind::kBroadcast &&
               static_cast<std::int64_t>(meeting.members[i]) != own.source) {
      continue;
    }
    pieces.push_back(piece);
    to += piece.bytes;
  }
  return pieces;
}

std::size_t first_reduced(const Meeting& meeting) {
  const Contribution& own = meeting.contributions[meeting.member];
  if (own.kind != CollectiveKind::kReduceScatter) return 0;
  return meeting.member * static_cast<std::size_t>(count_elements(own.sizes)) / meeting.contributions.size();
}

std::optional<std::vector<Contribution>> find_bound_contributions(const std::vector<Contribution>& parts) {
  std::vector<Contribution> bounds = parts;
  for (Contribution& part : bounds) {
    part.what = "bounds of " + part.what;
    part.data = part.bound;
    part.dtype = DType::kFloat32;
    if (part.reduction.empty() || part.reduction == "avg") continue;
    if (find_reduction(part.reduction) == Reduction::kProduct) return std::nullopt;
    part.reduction = "sum";  // of a largest or smallest one too: at least the largest of the bounds
  }
  return bounds;
}

std::optional<std::vector<Contribution>> find_ideal_contributions(const std::vector<Contribution>& parts) {
  std::vector<Contribution> ideals = parts;
  for (Contribution& part : ideals) {
    if (part.ideal == nullptr) return std::nullopt;
    part.what = "ideals of " + part.what;
    part.data = part.ideal;
    part.dtype = DType::kFloat64;
  }
  return ideals;
}

LocalTransport::LocalTransport(const World& world, WaitLimit limit)
    : world_(world), deadline_(limit), ranks_(world.size) {}

const std::vector<Rank>& find_members(const World& world, Rank rank, const std::string& group) {
  const auto found = world.groups.find(group);
  if (found == world.groups.end())
    throw CollectiveError(fmt::format("process group '{}' is not in the graph's table", group));
  if (found->second.of_rank.empty())
    throw CollectiveError(fmt::format("the members of process group '{}' on other ranks are unknown: {}",
                                      group, found->second.problem));
  return found->second.of_rank[rank];
}

std::size_t LocalTransport::member_count(Rank rank, const std::string& group) const {
  return find_members(world_, rank, group).size();
}

Transport::Ticket LocalTransport::post(Rank rank, const std::string& group, Contribution contribution) {
  const std::vector<Rank>& members = find_members(world_, rank, group);
  const std::lock_guard lock(mutex_);
  if (aborted_) throw Aborted();
  const std::uint64_t number = launched_[{rank, group}]++;
  std::shared_ptr<Posted>& meeting = open_[{group, members[0], number}];
  if (meeting == nullptr) {
    meeting = std::make_shared<Posted>();
    meeting->group = group;
    meeting->number = number;
    meeting->members = members;
    meeting->contributions.resize(members.size());
    meeting->posted.resize(members.size());
    meeting->missing = members.size();
  }
  Ticket ticket{meeting,
                static_cast<std::size_t>(std::find(members.begin(), members.end(), rank) - members.begin())};
  meeting->contributions[ticket.member] = std::move(contribution);
  meeting->posted[ticket.member] = true;
  if (--meeting->missing == 0) {
    open_.erase({group, members[0], number});
    changed_.notify_all();
  }
  return ticket;
}

bool LocalTransport::nobody_can_go_on() const {
  bool somebody_waits = false;
  for (const Waiting& rank : ranks_) {
    if (rank.finished) continue;
    if (rank.meeting == nullptr || rank.meeting->missing == 0) return false;
    somebody_waits = true;
  }
  return somebody_waits;
}

std::string LocalTransport::describe_waiting() const {
  std::string text;
  for (Rank rank = 0; rank < ranks_.size(); ++rank) {
    const Waiting& state = ranks_[rank];
    if (state.finished) {
      text += fmt::format("\n  rank {}: finished", rank);
    } else if (state.meeting == nullptr) {
      text += fmt::format("\n  rank {}: computes", rank);
    } else {
      std::vector<Rank> missing;
      std::string what;
      for (std::size_t i = 0; i < state.meeting->members.size(); ++i) {
        if (!state.meeting->posted[i]) missing.push_back(state.meeting->members[i]);
        if (state.meeting->members[i] == rank) what = describe(state.meeting->contributions[i]);
      }
      text += fmt::format("\n  rank {}: waits for rank {} in collective {} on group {}: {}", rank,
                          fmt::join(missing, ", "), state.meeting->number, state.meeting->group, what);
    }
  }
  return text;
}

void LocalTransport::fail(const std::string& reason) {
  const std::string text = reason + describe_waiting();
  aborted_ = true;
  changed_.notify_all();
  throw CollectiveError(text);
}

Meeting LocalTransport::meet(Rank rank, const Ticket& ticket) {
  {
    std::unique_lock lock(mutex_);
    Waiting& own = ranks_[rank];
    own.meeting = ticket.meeting;
    const WaitClock::Wait wait(own.clock, deadline_);
    const auto began = std::chrono::steady_clock::now();
    while (ticket.meeting->missing != 0) {
      if (aborted_) throw Aborted();
      if (nobody_can_go_on()) fail("no rank can go on:");
      const bool is_late =
          changed_.wait_until(lock, began + deadline_.now()) == std::cv_status::timeout &&
          std::chrono::steady_clock::now() >= began + deadline_.now();  // it may have grown meanwhile
      if (is_late && ticket.meeting->missing != 0 && !aborted_)
        fail(fmt::format("rank {} waited {}:", rank, deadline_.text()));
    }
    own.meeting = nullptr;
    if (aborted_) throw Aborted();
  }
  check_contributions(*ticket.meeting);  // complete now: nobody writes it any more
  return {ticket.meeting->contributions, ticket.meeting->members, ticket.member, ticket.meeting->group,
          ticket.meeting->number};
}

void LocalTransport::complete(Rank rank, const Ticket& ticket, const Tensor& result) {
  write_result(meet(rank, ticket), result);
}

void LocalTransport::finish(Rank rank) {
  const std::lock_guard lock(mutex_);
  ranks_[rank].finished = true;
  changed_.notify_all();
}

void LocalTransport::abort(const std::string&) {
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  changed_.notify_all();
}

std::string await_failure(Transport& transport, const std::function<bool()>& is_over) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kLook{20};
  const Clock::time_point until = Clock::now() + std::chrono::seconds(1);
  std::string failure = transport.failure();
  while (failure.empty() && Clock::now() < until && !is_over()) {
    std::this_thread::sleep_for(kLook);
    failure = transport.failure();
  }
  return failure;
}

}  // namespace epweave::replay
