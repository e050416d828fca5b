// The order in which tiles of a product are taken: what v11, fitted_tile.cuh and ring.cuh share.
#pragma once

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Tiles in groups of GROUP_ROWS tile rows, column by column, so that what is resident together shares operands in L2.
// Where a tile is comes in tiles, or in outputs with tiles of HEIGHT x WIDTH.
template <int GROUP_ROWS, int HEIGHT = 1, int WIDTH = 1>
struct TileOrder {
  int rows, columns;  // of tiles
  __device__ __forceinline__ void place(int tile, int& row, int& column) const {
    const int in_group = GROUP_ROWS * columns, first = tile / in_group * GROUP_ROWS;
    const int height = min(GROUP_ROWS, rows - first);
    row = (first + tile % in_group % height) * HEIGHT;
    column = tile % in_group / height * WIDTH;
  }
};

#endif
