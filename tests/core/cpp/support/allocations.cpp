// Replaces operator new and delete in the program that this is linked into.
#include "allocations.hpp"

using sparsewire::test::Allocations;

void* operator new(std::size_t size) { return Allocations::take(size); }
void operator delete(void* memory) noexcept { Allocations::give_back(memory); }
void operator delete(void* memory, std::size_t) noexcept { Allocations::give_back(memory); }
