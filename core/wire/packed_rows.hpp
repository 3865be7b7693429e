// Packed coordinates of whole rows, as they travel: one index names all elements of a row. In
// memory each element has its own index, so that no other code needs to know of rows.
#pragma once

#include "wire/segment.hpp"

namespace sparsewire::wire {

// The byte layout is that of packed coordinates, but with only the first index of every row. A row
// is `unit` consecutive elements in one chunk.

// A piece of packed coordinates with one index for each row; the same piece if rows are not whole.
Piece with_rows(const Piece& packed, std::size_t chunks, std::size_t unit);

// The opposite. Everything else in the piece is checked later, as in other packed coordinates.
Result<Piece> without_rows(const Piece& rows, std::size_t chunks, std::size_t unit);

}  // namespace sparsewire::wire
