#include "replay/kernels/device/remote_collectives.h"

#include "replay/kernels/device/collectives.h"
#include "replay/kernels/host/elements.h"

namespace epweave::replay::device {
namespace {

// One collective of this member, its result row-major.
class Collective {
 public:
  Collective(Launcher& launcher, Exchange& exchange, const Meeting& meeting, const Tensor& out)
      : launcher_(launcher),
        exchange_(exchange),
        meeting_(meeting),
        own_(meeting.contributions[meeting.member]),
        out_(out),
        channel_{meeting.group, meeting.members, launcher.native_stream(), meeting.number} {
    launcher_.pool().use(*own_.data, launcher_.stream());
    launcher_.pool().use(*out_.storage, launcher_.stream());
  }

  void run() {
    switch (own_.kind) {
      case CollectiveKind::kAllToAll:
        return exchange_rows();
      case CollectiveKind::kAllGather:
        return exchange_.gather(channel_, own_.data->data(), out_.bytes(), own_bytes());
      case CollectiveKind::kBroadcast:
        return exchange_.broadcast(channel_, {find_source(), own_.data->data(), own_bytes()}, out_.bytes());
      case CollectiveKind::kReduceScatter:
        if (is_librarys()) return exchange_.reduce_scatter(channel_, library_sum(count() / members()));
        return reduce_slices(out_);
      case CollectiveKind::kAllReduce:
        if (is_librarys()) return exchange_.all_reduce(channel_, library_sum(count()));
        return reduce_all();
    }
  }

 private:
  std::size_t members() const { return meeting_.members.size(); }
  std::size_t member() const { return meeting_.member; }

  std::size_t find_source() const {
    for (std::size_t i = 0; i < members(); ++i)
      if (static_cast<std::int64_t>(meeting_.members[i]) == own_.source) return i;
    throw CollectiveError("the source of a broadcast is not in its group");
  }

  // Bytes [from, from + bytes) of `data` as a tensor.
  static Tensor bytes_of(const std::shared_ptr<Storage>& data, std::size_t from, std::size_t bytes) {
    const Tensor tensor{
        DType::kUint8, {static_cast<std::int64_t>(bytes)}, {1}, static_cast<std::int64_t>(from), data};
    check_bounds(tensor);
    return tensor;
  }
  void copy(const Tensor& to, const Tensor& from) {
    launcher_.map({ElementOp::kCopy, DType::kUint8, to, {&from}, 1, Value()});
  }
  std::size_t first_byte(const Tensor& tensor) const {
    return static_cast<std::size_t>(tensor.offset) * tensor.element_bytes();
  }

  void exchange_rows() {
    std::vector<Parcel> sends, receives;
    for (std::size_t i = 0; i < members(); ++i) {
      // What this member sends is where the other one finds it.
      const Piece out = list_pieces(
          {meeting_.contributions, meeting_.members, i, meeting_.group, meeting_.number})[member()];
      if (i != member()) sends.push_back({i, own_.data->data() + out.from, out.bytes});
    }
    for (const Piece& piece : list_pieces(meeting_)) {
      if (piece.member != member())
        receives.push_back({piece.member, out_.bytes() + piece.to, piece.bytes});
      else
        copy(bytes_of(out_.storage, first_byte(out_) + piece.to, piece.bytes),
             bytes_of(own_.data, piece.from, piece.bytes));
    }
    exchange_.exchange(channel_, sends, receives);
  }

  std::size_t count() const { return static_cast<std::size_t>(count_elements(own_.sizes)); }
  std::size_t own_bytes() const { return count() * info(own_.dtype).bytes; }
  // The first element of a member's slice; of `members()`, the end.
  std::size_t slice(std::size_t i) const { return count() * i / members(); }

  bool is_librarys() const { return exchange_.adds_up(own_.dtype, find_reduction(own_.reduction)); }
  LibrarySum library_sum(std::size_t elements) const {
    return {own_.data->data(), out_.bytes(), elements, own_.dtype, find_reduction(own_.reduction)};
  }

  // Writes this member's slice of the reduction.
  void reduce_slices(const Tensor& out) {
    const std::size_t width = info(own_.dtype).bytes;
    const std::size_t bytes = (slice(member() + 1) - slice(member())) * width;
    const auto parts = launcher_.allocate(std::max<std::size_t>(bytes * members(), 1));
    std::vector<Parcel> sends, receives;
    ReduceOperands operands;
    for (std::size_t i = 0; i < members(); ++i) {
      if (i == member()) {
        operands.data.push_back(own_.data->data() + slice(i) * width);
        continue;
      }
      sends.push_back({i, own_.data->data() + slice(i) * width, (slice(i + 1) - slice(i)) * width});
      receives.push_back({i, parts->data() + i * bytes, bytes});
      operands.data.push_back(parts->data() + i * bytes);
    }
    exchange_.exchange(channel_, sends, receives);
    operands.dtype = own_.dtype;
    operands.reduction = own_.reduction;
    reduce(launcher_, operands, out);
  }

  void reduce_all() {
    const Tensor flat{own_.dtype, {static_cast<std::int64_t>(count())}, {1}, out_.offset, out_.storage};
    const auto first = static_cast<std::int64_t>(slice(member()));
    const auto end = static_cast<std::int64_t>(slice(member() + 1));
    reduce_slices(flat.view({end - first}, {1}, flat.offset + first));
    const std::size_t width = info(own_.dtype).bytes;
    const auto bytes = [&](std::size_t i) { return (slice(i + 1) - slice(i)) * width; };
    std::vector<Parcel> sends, receives;
    for (std::size_t i = 0; i < members(); ++i) {
      if (i == member()) continue;
      sends.push_back({i, out_.bytes() + slice(member()) * width, bytes(member())});
      receives.push_back({i, out_.bytes() + slice(i) * width, bytes(i)});
    }
    exchange_.exchange(channel_, sends, receives);
  }

  Launcher& launcher_;
  Exchange& exchange_;
  const Meeting& meeting_;
  const Contribution& own_;
  const Tensor& out_;
  Channel channel_;
};

}  // namespace

void exchange_result(Launcher& launcher, Exchange& exchange, const Meeting& meeting, const Tensor& result) {
  const bool is_direct = result.is_contiguous();
  const Tensor out = is_direct ? result : make_tensor(launcher, result.dtype, result.sizes);
  if (count_elements(meeting.contributions[meeting.member].sizes) != 0 || out.numel() != 0)
    Collective(launcher, exchange, meeting, out).run();
  if (!is_direct) launcher.map({ElementOp::kCopy, result.dtype, result, {&out}, 1, Value()});
}

}  // namespace epweave::replay::device
