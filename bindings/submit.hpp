// What dense and sparse collectives share on their way into the engine.
#pragma once

#include "comm/communicator.hpp"
#include "conversions.hpp"
#include "gil.hpp"

namespace sparsewire::bindings {

inline wire::Descriptor descriptor_of(std::uint64_t count, int dtype, int op, int segment_codec,
                                      int result_codec, std::uint32_t seed) {
  return {.dtype = checked_code<DType>(dtype, kDTypeCount, "dtype"),
          .op = checked_code<ReduceOp>(op, kReduceOpCount, "operation"),
          .count = count,
          .segment_codec = checked_code<Codec>(segment_codec, kCodecCount, "codec"),
          .result_codec = checked_code<Codec>(result_codec, kCodecCount, "codec"),
          .seed = seed};
}

// A timeout in seconds; 0 is none.
inline std::shared_ptr<comm::Operation> submit(comm::Communicator& self,
                                               comm::Operation::Arguments arguments,
                                               double timeout) {
  if (timeout > 0) arguments.deadline = comm::Clock::now() + nanoseconds_of(timeout);
  const GilRelease release;
  return self.submit(arguments);
}

}  // namespace sparsewire::bindings
