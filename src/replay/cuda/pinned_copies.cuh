// Copies between the host's pageable memory and the device by way of pinned memory: while one chunk
// is on its way, the next is filled or emptied.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

namespace epweave::replay::device {

class PinnedCopies {
 public:
  // `from` may change once the call returns; the stream may still be copying. The host waits for
  // the chunk before.
  cudaError_t copy_in(cudaStream_t stream, void* to, const void* from, std::size_t bytes) {
    Chunks* chunks = nullptr;
    cudaError_t error = take(&chunks);
    if (error == cudaErrorMemoryAllocation) return copy_pageable(chunks, stream, to, from, bytes);
    for (std::size_t at = 0; error == cudaSuccess && at < bytes; at += kChunk) {
      const std::size_t taken = size_of(bytes, at), k = at / kChunk % 2;
      error = cudaEventSynchronize(chunks->passed[k]);
      if (error != cudaSuccess) break;
      std::memcpy(chunks->data[k], static_cast<const char*>(from) + at, taken);
      error = queue(*chunks, k, stream, static_cast<char*>(to) + at, chunks->data[k], taken);
    }
    give_back(chunks);
    return error;
  }
  // The host waits for it.
  cudaError_t copy_out(cudaStream_t stream, void* to, const void* from, std::size_t bytes) {
    Chunks* chunks = nullptr;
    cudaError_t error = take(&chunks);
    if (error == cudaErrorMemoryAllocation) return copy_pageable(chunks, stream, to, from, bytes);
    const auto begin = [&](std::size_t at) {
      if (at >= bytes || error != cudaSuccess) return;
      const std::size_t k = at / kChunk % 2;
      // What another stream copied in from here last.
      error = cudaEventSynchronize(chunks->passed[k]);
      if (error == cudaSuccess)
        error = queue(*chunks, k, stream, chunks->data[k], static_cast<const char*>(from) + at,
                      size_of(bytes, at));
    };
    begin(0);
    for (std::size_t at = 0; error == cudaSuccess && at < bytes; at += kChunk) {
      begin(at + kChunk);
      if (error == cudaSuccess) error = cudaEventSynchronize(chunks->passed[at / kChunk % 2]);
      if (error == cudaSuccess)
        std::memcpy(static_cast<char*>(to) + at, chunks->data[at / kChunk % 2], size_of(bytes, at));
    }
    give_back(chunks);
    return error;
  }
  // Not of a device that is lost.
  void release() {
    for (const auto& chunks : all_)
      for (std::size_t k = 0; k < 2; ++k) {
        if (chunks->passed[k] != nullptr) cudaEventDestroy(chunks->passed[k]);
        if (chunks->data[k] != nullptr) cudaFreeHost(chunks->data[k]);
      }
    all_.clear();
    free_.clear();
  }

 private:
  static constexpr std::size_t kChunk = std::size_t{4} << 20;
  static constexpr std::size_t kMostChunks = 16;  // 128 MiB; more where more copy at a time
  // Of one copy at a time; `passed`: the last copy from or to a chunk is done.
  struct Chunks {
    void* data[2] = {};
    cudaEvent_t passed[2] = {};
  };

  static std::size_t size_of(std::size_t bytes, std::size_t at) {
    return bytes - at < kChunk ? bytes - at : kChunk;
  }
  static cudaError_t queue(Chunks& chunks, std::size_t k, cudaStream_t stream, void* to, const void* from,
                           std::size_t bytes) {
    const cudaError_t error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
    return error != cudaSuccess ? error : cudaEventRecord(chunks.passed[k], stream);
  }

  // Where no memory can be pinned.
  cudaError_t copy_pageable(Chunks* chunks, cudaStream_t stream, void* to, const void* from,
                            std::size_t bytes) {
    cudaGetLastError();  // else the next launch reports it
    give_back(chunks);
    const cudaError_t error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
    return error != cudaSuccess ? error : cudaStreamSynchronize(stream);
  }

  // Whether all copies by way of them are done.
  static bool is_idle(const Chunks& chunks) {
    for (const cudaEvent_t event : chunks.passed)
      if (event != nullptr && cudaEventQuery(event) == cudaErrorNotReady) {
        cudaGetLastError();  // no error
        return false;
      }
    return true;
  }

  // Those that nobody uses and no stream copies from, made where there are few; else those that
  // were given back first.
  Chunks* find_free() {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto at = std::find_if(free_.begin(), free_.end(), [](const Chunks* each) { return is_idle(*each); });
    if (at == free_.end() && (free_.empty() || all_.size() < kMostChunks)) {
      all_.push_back(std::make_unique<Chunks>());
      at = free_.insert(free_.end(), all_.back().get());
    }
    if (at == free_.end()) at = free_.begin();
    Chunks* found = *at;
    free_.erase(at);
    return found;
  }

  cudaError_t take(Chunks** taken) {
    *taken = find_free();
    for (std::size_t k = 0; k < 2; ++k) {
      if ((*taken)->data[k] == nullptr)
        if (const cudaError_t error = cudaMallocHost(&(*taken)->data[k], kChunk)) return error;
      if ((*taken)->passed[k] == nullptr)
        if (const cudaError_t error = cudaEventCreateWithFlags(&(*taken)->passed[k], cudaEventDisableTiming))
          return error;
    }
    return cudaSuccess;
  }
  void give_back(Chunks* chunks) {
    const std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(chunks);
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<Chunks>> all_;
  std::vector<Chunks*> free_;
};

}  // namespace epweave::replay::device
