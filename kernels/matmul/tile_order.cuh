// The order in which blocks take the tiles of a product: what v11, fitted_tile.cuh and ring.cuh share.
#pragma once

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Orders tiles in groups of GROUP_ROWS tile rows, and column by column in a group, so that resident tiles share
// operands in L2. Positions are in tiles, or in outputs if tiles have HEIGHT x WIDTH outputs.
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
