// The archive that torch.export.save writes (`.pt2`): a zip with the program as JSON, weights, and
// pickles.
//
// Only JSON is read, into memory; nothing is unpacked to a file. Weights are not needed for a
// graph. An archive that keeps parts of the program as pickles is refused: reading a pickle runs
// what it says.
#pragma once

#include <string>
#include <string_view>

namespace epweave {

struct Pt2Source {
  std::string path;             // read where `bytes` is empty; names the archive in messages
  std::string_view bytes = {};  // the archive itself
};

// The JSON text of the only program in the archive. Throws InputError.
std::string read_pt2_program(const Pt2Source& source);

}  // namespace epweave
