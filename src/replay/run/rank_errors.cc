#include "replay/run/rank_errors.h"

#include <fmt/format.h>

#include <new>

#include "ir/facts.h"
#include "ops/op.h"
#include "ops/type_rules.h"

namespace epweave::replay {

std::string RankErrors::describe(const Node& node, std::string_view problem) const {
  const Site site = site_of(program_.graph, node);
  std::string text = fmt::format("rank {}: %{} = {}", setup_.rank, site.node, site.op);
  if (!site.module.empty()) text += " in " + site.module;
  if (!site.source.empty()) text += " (" + site.source + ")";
  return fmt::format("{}: {}", text, problem);
}

void RankErrors::check_fault() const {
  if (setup_.device == nullptr) return;
  if (options_.process != nullptr) options_.process->exchange->require_sound();
  if (const auto fault = setup_.device->take_fault())
    throw RunError(describe(program_.body.nodes[fault->node], fault->problem));
}

void RankErrors::rethrow(const Node& node) const {
  try {
    throw;
  } catch (const KernelError& error) {
    check_fault();
    throw RunError(describe(node, error.what()));
  } catch (const std::bad_alloc&) {
    throw RunError(describe(node, "the host has no more memory to give"));
  } catch (const DeviceError&) {
    throw;
  } catch (const RunError& error) {
    throw RunError(describe(node, error.what()));
  } catch (const CollectiveError& error) {
    throw CollectiveError(describe(node, error.what()));
  } catch (const CheckError& error) {
    check_fault();
    require_arguments(node);
    throw CheckError(describe(node, error.what()));
  }
}

// A kernel takes what the type rule of its op accepts: where that refuses the call, as `verify`
// does, the graph is wrong and not the kernel.
void RankErrors::require_arguments(const Node& node) const {
  if (!has_type_rule(node)) return;
  try {
    Facts facts(program_.graph);
    infer_type(facts, program_.graph, program_.body, node);
  } catch (const TypeMismatch& mismatch) {
    throw RunError(describe(node, mismatch.what()));
  }
}

DeviceError RankErrors::locate(const DeviceError& error) const {
  std::string problem = error.what();
  RankDevice& device = setup_.device != nullptr ? *setup_.device : setup_.host_exchange->device();
  const Aftermath aftermath = device.is_lost() ? Aftermath::kLost : Aftermath::kGoesOn;
  if (aftermath == Aftermath::kLost)
    problem += "; the device takes no more work: a kernel queued earlier, of any rank, may be the cause";
  const std::vector<Step>& steps = program_.steps.list;
  std::uint32_t end = begun_;  // behind the last step that began and makes something
  while (end != 0 && (!steps[end - 1].node || steps[end - 1].kind == StepKind::kFree)) --end;
  if (end == 0)
    return DeviceError(fmt::format("rank {}: before the first node: {}", setup_.rank, problem), aftermath);
  if (end != begun_) problem = "behind it " + problem;
  return DeviceError(describe(program_.body.nodes[steps[end - 1].node], problem), aftermath);
}

}  // namespace epweave::replay
