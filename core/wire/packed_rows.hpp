// Packed coordinates of whole rows, as they travel: one index names all elements of a row. In
// memory each element has its own, so that nothing else needs to know of rows.
#pragma once

#include "wire/segment.hpp"

namespace sparsewire::wire {

// The byte layout is that of packed coordinates, but only the first index of every row is there:
// `unit` elements that follow each other in one chunk.

// A piece of packed coordinates with one index a row; the same piece where rows are not whole.
Piece with_rows(const Piece& packed, std::size_t chunks, std::size_t unit);

// The opposite. What is in the piece is otherwise checked as packed coordinates are, later.
Result<Piece> without_rows(const Piece& rows, std::size_t chunks, std::size_t unit);

}  // namespace sparsewire::wire
