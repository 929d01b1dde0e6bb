#include "replay/run/host_exchange.h"

#include "replay/run/device_wait.h"
#include "replay/run/watch_values.h"

namespace epweave::replay {

HostExchange::Underway HostExchange::start(const Launch& launch) {
  const Meeting& meeting = launch.meeting;
  Underway underway{launch.stream, move(launch, meeting.contributions, launch.operand), std::nullopt};
  const std::shared_ptr<Storage>& bound = meeting.contributions[meeting.member].bound;
  if (bound == nullptr) return underway;
  auto bounds = find_bound_contributions(meeting.contributions);
  if (!bounds) return underway;
  const Extents& sizes = launch.operand.sizes;
  underway.bound =
      move(launch, std::move(*bounds), Tensor{DType::kFloat32, sizes, contiguous_strides(sizes), 0, bound});
  return underway;
}

Tensor HostExchange::move(const Launch& launch, std::vector<Contribution> parts, const Tensor& operand) {
  const Meeting& meeting = launch.meeting;
  HostMemory host;  // a view's own elements alone are copied
  // post() makes the group's stream wait for what is queued for the result's memory.
  Tensor result = make_tensor(device_.memory(), operand.dtype, launch.sizes);
  device_.post(device_.memory().place(copy_tensor(operand, host)), launch.stream, parts[meeting.member]);
  device_.start({parts, meeting.members, meeting.member, meeting.group, meeting.number}, launch.stream,
                result);
  return result;
}

void HostExchange::take(const Tensor& from, std::uint32_t stream, const Tensor& to) {
  device_.join_all(stream);
  const DeviceWait wait(&process_);
  const Tensor host = device_.download(from);
  process_.exchange->require_sound();
  scatter_elements(host.bytes(), to);
}

void HostExchange::take_result(const Underway& underway, const Tensor& result) {
  take(*underway.result, underway.stream, result);
}

std::optional<Tensor> HostExchange::take_bound(const Underway& underway, const BoundRequest& request) {
  if (!underway.bound) return std::nullopt;
  Tensor bound = make_tensor(request.memory, DType::kFloat32, request.sizes);
  take(*underway.bound, underway.stream, bound);
  return bound;
}

}  // namespace epweave::replay
