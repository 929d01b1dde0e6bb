// What a rewrite keeps beside its results: what the caller, later passes, other ranks and devices
// rest on. Asked without the verifier.
//
//   interface    inputs, outputs, rank, number of ranks and meshes are the first graph's
//   facts        what it says of numbers is so for other numbers that the first graph allows
//   traffic      its collectives send no more elements than the first graph's
//   masks        are made for as many keys as their calls take, where the first graph's are
//   devices      a collective that sends from the memory that it fills sends from the rank's own place; nothing
//                writes memory that one sends before its wait, nor looks at what a wait has freed
#pragma once

#include <string>

#include "ir/graph.h"
#include "replay/inputs/inputs.h"
#include "replay/kernels/kernel.h"

namespace epweave {

struct ContractSetup {
  const replay::KernelTable& kernels;
  const replay::Recipe& recipe;
};

// What B breaks; "": nothing.
std::string find_broken_contract(const Graph& a, const Graph& b, const ContractSetup& setup);

}  // namespace epweave
