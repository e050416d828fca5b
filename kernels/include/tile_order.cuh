// The order in which blocks take the tiles of a product: what v11, v18, v20, v21, fitted_tile.cuh and ring.cuh share.
#pragma once

// Tile rows of a group where the tiles of neighbouring blocks are to form patches. A GPC has up to 18 multiprocessors, and
// neighbouring blocks run in one GPC. 16 of them share four tile rows and four tile columns, so that the GPC needs few
// bytes. Of the heights 2, 3, 4, 8 and 16, four was the fastest at most shapes.
[[maybe_unused]] constexpr int PATCH_ROWS = 4;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Places a tile in groups of `group` tile rows, column by column in a group. Positions are in tiles, or in outputs if
// tiles have HEIGHT x WIDTH outputs.
template <int HEIGHT, int WIDTH>
__device__ __forceinline__ void place_in_group(int tile, int group, int rows, int columns, int& row, int& column) {
  const int in_group = group * columns, first = tile / in_group * group;
  const int height = min(group, rows - first);
  row = (first + tile % in_group % height) * HEIGHT;
  column = tile % in_group / height * WIDTH;
}

// Orders tiles in groups of GROUP_ROWS tile rows, so that resident tiles share operands in L2.
template <int GROUP_ROWS, int HEIGHT = 1, int WIDTH = 1>
struct TileOrder {
  int rows, columns;  // of tiles
  __device__ __forceinline__ void place(int tile, int& row, int& column) const {
    place_in_group<HEIGHT, WIDTH>(tile, GROUP_ROWS, rows, columns, row, column);
  }
};

// The same in groups whose height is known at run time.
template <int HEIGHT, int WIDTH>
struct AnyOrder {
  int rows, columns, group;
  __device__ __forceinline__ void place(int tile, int& row, int& column) const {
    place_in_group<HEIGHT, WIDTH>(tile, group, rows, columns, row, column);
  }
};

#endif
