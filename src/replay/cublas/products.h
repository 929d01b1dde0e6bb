// Products by cuBLASLt: one algorithm for each class of shapes, chosen once and recorded.
//
//   class      dtypes, layouts, extents and alignment of a product; with pinned rows, without the
//              numbers of rows and batches and the leading dimensions, so that a product of some of
//              the rows, or of some of the batches, takes the algorithm of all of them
//   algorithm  of the library's candidates, best first, those that neither split the reduced index
//              nor add up partial results, as the library itself says; of these the first that
//              needs no workspace, else the first. A pinned one is asked for with kPinnedRows rows
//              (and kPinnedBatches batches), whatever the product has: it depends on the class, the
//              library and the GPU alone, in every process
//
// Products accumulate in float32 (the 16-bit floats), in float32 without TF32 (float32), in float64
// (float64). A pinned algorithm that the library refuses for a number of rows is replaced by that
// number's own; the record shows it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "replay/cublas/cublaslt_library.h"
#include "replay/run/rank_device.h"

namespace epweave::replay::cublas {

// A row-major matrix or its transpose, `batch_stride` elements apart.
struct Matrix {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  bool is_transposed = false;  // columns lie apart by `leading`, else rows do
  std::int64_t leading = 1, batch_stride = 0;
};
// How a tensor of two dimensions, or of three with batches, is such a matrix; none if it is not.
std::optional<Matrix> as_matrix(const Tensor& tensor);
bool has_products(DType dtype);

// c = a b, for every batch; no extent is 0.
struct Product {
  std::int64_t batches = 1, rows = 0, columns = 0, depth = 0;
  std::int64_t group = 0;  // LibraryProduct::group
  Matrix a, b, c;          // c is not transposed
};

std::string describe(const Product& product);  // "bf16[512, 256] x [256, 64]"

class Handle {
 public:
  explicit Handle(const Library& library);
  ~Handle();
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  const Library& library() const { return library_; }
  Context get() const { return context_; }

 private:
  const Library& library_;
  Context context_ = nullptr;
};

class Call;

// Whose kernel makes a product.
enum class Kernel : std::uint8_t { kLibrary, kOwn };

inline constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;
inline constexpr std::int64_t kPinnedRows = 1024, kPinnedBatches = 8;

// The products of one rank: what was chosen, kept over the runs of a process, so that the second
// graph of a comparison takes what the first one chose. Used by one thread at a time.
class Products {
 public:
  Products(const Handle& handle, PinRows pin) : handle_(handle), pin_(pin) {}

  // All that the work of a product depends on.
  struct Launch {
    Product product;
    AlgorithmBits algorithm{};
    void* workspace = nullptr;  // kWorkspaceBytes
  };
  // Chooses the algorithm; none where the library has no algorithm for the product: a kernel of
  // ours has to make it. Records either. Throws KernelError with the shape where the library fails.
  std::optional<Launch> prepare(const Product& product, void* workspace, NodeId node);
  // Queues it on the device's native stream. Why the library refused it, else null.
  const char* launch(const Launch& launch, void* native_stream) const;
  // Of the products since the last call.
  std::vector<LibraryProduct> take_record();

 private:
  struct Choice {
    AlgorithmBits bits{};
    std::string text;
    Kernel kernel = Kernel::kLibrary;
  };
  const Choice& choose(const Product& product);
  Choice ask(const Product& product, const Call& call) const;

  const Handle& handle_;
  PinRows pin_;
  std::map<std::string, Choice> chosen_;  // by class
  std::vector<LibraryProduct> record_;
};

}  // namespace epweave::replay::cublas
