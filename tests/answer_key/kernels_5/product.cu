// A product whose operands come from shared memory by LDSM: rows of 64 bytes, which meet in banks, or of 80.
#include "set.h"

template <int PITCH> __global__ void __launch_bounds__(256) kinship(const float* a, float* out, int steps) {
  __shared__ __align__(16) __half genes[128 * PITCH];
  for (int i = threadIdx.x; i < 128 * 32; i += 256) genes[i / 32 * PITCH + (i & 31)] = __float2half(a[i] * 0.1f);
  __syncthreads();
  int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  float sum[2][4] = {};
  for (int s = 0; s < steps; ++s) {
    int column = (s & 1) * 16 + lane / 16 * 8, first = (warp + s) * 16 & 127, second = s / 2 * 16 & 127;
    unsigned p[4], q[4];
    unsigned from = (unsigned)__cvta_generic_to_shared(&genes[(first + (lane & 15)) * PITCH + column]);
    unsigned with = (unsigned)__cvta_generic_to_shared(&genes[(second + (lane & 15)) * PITCH + column]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(p[0]), "=r"(p[1]), "=r"(p[2]), "=r"(p[3]) : "r"(from));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(q[0]), "=r"(q[1]), "=r"(q[2]), "=r"(q[3]) : "r"(with));
#pragma unroll
    for (int j = 0; j < 2; ++j)
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                   : "+f"(sum[j][0]), "+f"(sum[j][1]), "+f"(sum[j][2]), "+f"(sum[j][3])
                   : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "r"(q[j]), "r"(q[j + 2]));
  }
#pragma unroll
  for (int k = 0; k < 8; ++k) out[k * STRIDE + T] = sum[k / 4][k & 3];
}

void product_cases() {
  cases.push_back({"kinship", "shared_bank_conflicts", "", [] { kinship<32><<<528, 256>>>(A, C, 1024); }, [] { kinship<40><<<528, 256>>>(A, C, 1024); }, C, 8 * 528 * 256});
}
