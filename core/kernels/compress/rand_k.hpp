// Rand-k: so many positions of a vector, drawn without replacement from a seed that both ends know.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sparsewire {

// Sets k bits of the bitmap, k <= count, and clears the others, up to the end of the last word.
// Every set of k is as likely as any other; which one it is depends on the arguments alone.
void rand_k(std::size_t count, std::size_t k, std::uint64_t key, std::uint64_t* bitmap);

}  // namespace sparsewire
