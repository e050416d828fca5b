// What the rungs of softmax share: how many columns a query sees.
#pragma once

// Keys of the row: the last query of a head sees all columns.
__device__ __forceinline__ int visible_columns(int row, int queries, int columns) {
  const int visible = row % queries + 1 + columns - queries;
  return visible > 0 ? visible : 0;
}
