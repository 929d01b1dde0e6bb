#include "replay/nccl/session.h"

#include <cstring>

namespace epweave::replay::nccl {
namespace {

// Groups that collectives are launched on, in the order of the steps, which is that of every rank.
std::vector<std::string> list_groups(const Steps& steps) {
  constexpr std::string_view kPrefix = "comm:";
  std::vector<std::string> groups;
  for (const std::string& stream : steps.streams)
    if (stream.starts_with(kPrefix)) groups.push_back(stream.substr(kPrefix.size()));
  return groups;
}

}  // namespace

Session::Session(const SessionSetup& setup)
    : sums_(setup.sums),
      settings_(pin_settings(setup.sums)),
      library_(load_library()),
      deadline_(setup.rendezvous.deadline),
      process_{setup.place.rank, nullptr, nullptr, &setup.device, {}} {
  RendezvousOptions options = setup.rendezvous;
  options.make_ticket = [&] {
    UniqueId id{};
    if (const Result result = library_.api.get_unique_id(&id); result != Result::kSuccess)
      throw CollectiveError(std::string("NCCL gives no unique id: ") + library_.api.error_text(result));
    return std::string(id.bytes, sizeof id.bytes);
  };
  Connections connections = meet(setup.place, options);
  UniqueId id{};
  EPWEAVE_CHECK(connections.ticket.size() == sizeof id.bytes);
  std::memcpy(id.bytes, connections.ticket.data(), sizeof id.bytes);
  if (setup.place.rank == 0) coordinator_ = std::make_unique<Coordinator>(std::move(connections.of_rank));
  transport_ = std::make_unique<RemoteTransport>(std::move(connections.to_coordinator), deadline_);
  std::vector<GraphGroups> groups;
  for (const SessionGraph& graph : setup.graphs) groups.push_back({graph.world, list_groups(graph.steps)});
  try {
    communicators_ = std::make_unique<Communicators>(
        CommunicatorSetup{library_.api, setup.device, *transport_, setup.place.ranks, setup.place.rank,
                          groups, id, deadline_, setup.sums});
  } catch (const CollectiveError& error) {
    throw CollectiveError(error.what() + log_.list_warnings());
  }
  log_.read(settings_);
  process_.transport = transport_.get();
  process_.exchange = communicators_.get();
  process_.share = [this](const std::string& text) { return transport_->share(text); };
}

// The transport goes before the coordinator, which waits until all ranks have left.
Session::~Session() = default;

std::string Session::describe_failure() {
  const std::string pending = communicators_->describe_pending(), warnings = log_.list_warnings();
  return (pending.empty() ? "" : "\nnot done on this rank:" + pending) +
         (warnings.empty() ? "" : "\nNCCL warned:" + warnings);
}

std::vector<std::string> Session::conclude(const std::string& report) {
  std::vector<std::string> reports = transport_->conclude(report);
  communicators_->close();
  return reports;
}

}  // namespace epweave::replay::nccl
