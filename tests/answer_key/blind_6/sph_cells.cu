// Smoothed particles, sorted into cells in each step. a: the cells are allocated for each step, b: once.
#include "key.h"

static const int cells = 64, slots = 16;

__device__ int cell_of(float4 p) {
  int x = min(cells - 1, (int)(p.x * cells)), y = min(cells - 1, (int)(p.y * cells)), z = min(cells - 1, (int)(p.z * cells));
  return (z * cells + y) * cells + x;
}

__global__ void scatter(float4* particles, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned h = i * 2654435761u;
  particles[i] = make_float4((h & 1023) / 1024.0f, (h >> 10 & 1023) / 1024.0f, (h >> 20 & 1023) / 1024.0f, 0.0f);
}

__global__ void sort_cells(const float4* particles, int* counts, int* members, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int cell = cell_of(particles[i]), slot = atomicAdd(&counts[cell], 1);
  if (slot < slots) members[cell * slots + slot] = i;
}

__global__ void density(const float4* particles, const int* counts, const int* members, float* dense, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float4 p = particles[i];
  int cell = cell_of(p);
  float sum = 0;
  for (int side = -1; side <= 1; side++) {
    int other = cell + side;
    if (other < 0 || other >= cells * cells * cells) continue;
    for (int k = 0; k < min(slots, counts[other]); k++) {
      float4 q = particles[members[other * slots + k]];
      float d = (p.x - q.x) * (p.x - q.x) + (p.y - q.y) * (p.y - q.y) + (p.z - q.z) * (p.z - q.z);
      sum += fmaxf(0.0f, 1e-3f - d);
    }
  }
  dense[i] = sum;
}

__global__ void move(float4* particles, const float* dense, float4* pushes, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float4 p = particles[i];
  pushes[i] = make_float4(dense[i] * 1e-3f, 0.0f, 0.0f, 0.0f);
  p.x = fminf(0.999f, fmaxf(0.0f, p.x + pushes[i].x));
  particles[i] = p;
}

struct Scratch {
  int *counts, *members;
  float* dense;
  float4* pushes;
};

struct Program {
  static const int n = 1 << 20, all = cells * cells * cells;
  char form;
  float4* particles = device<float4>(n);
  Scratch kept;
  Scratch taken() {
    Scratch s;
    CHECK(cudaMalloc(&s.counts, all * sizeof(int)));
    CHECK(cudaMalloc(&s.members, (size_t)all * slots * sizeof(int)));
    CHECK(cudaMalloc(&s.dense, n * sizeof(float)));
    CHECK(cudaMalloc(&s.pushes, n * sizeof(float4)));
    return s;
  }
  Program(char form) : form(form) {
    scatter<<<n / 256, 256>>>(particles, n);
    if (form == 'b') kept = taken();
  }
  void step(int) {
    Scratch s = form == 'b' ? kept : taken();
    for (int k = 0; k < 4; k++) {
      CHECK(cudaMemsetAsync(s.counts, 0, all * sizeof(int)));
      sort_cells<<<n / 256, 256>>>(particles, s.counts, s.members, n);
      density<<<n / 256, 256>>>(particles, s.counts, s.members, s.dense, n);
      move<<<n / 256, 256>>>(particles, s.dense, s.pushes, n);
    }
    if (form == 'a') {
      CHECK(cudaFree(s.counts));
      CHECK(cudaFree(s.members));
      CHECK(cudaFree(s.dense));
      CHECK(cudaFree(s.pushes));
    }
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
